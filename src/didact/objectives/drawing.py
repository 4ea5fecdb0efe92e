"""Models whose drawing takes many passes: judged as the games are, on the first examples of a split."""

from math import nan

import torch
from torch import Tensor, nn

from didact.data.core import Batch
from didact.objectives.core import Objective, Player
from didact.objectives.referee import side_by_side, study, verdict

ROWS = 1024  # examples of a split beside which an image is drawn


class Drawing(Objective):
    """The Fréchet distance of thumbnails is watched, as for the games; the referee learns beside the model and never touches it.

    Drawing may take many passes, so that only the first examples of a split have an image drawn beside them: `there`. NaN stands with the
    others, but one that is drawn spoils the scores.
    """

    watch = "frechet"
    noises: Tensor

    def __init__(self, shape: tuple[int, ...], *, classes: int = 0, referee: nn.Module | None = None):
        super().__init__()
        self.classes, self.referee = classes, referee
        self.register_buffer("noises", torch.randn(ROWS, *shape, generator=torch.Generator().manual_seed(0)), persistent=False)

    def players(self) -> tuple[Player, ...]:
        judges = [] if self.referee is None else list(self.referee.parameters())
        apart = {id(p) for p in judges}
        found = (Player(parameters=[p for p in self.parameters() if p.requires_grad and id(p) not in apart]),)
        return (*found, Player("referee", judges)) if judges else found

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """The model's own loss."""
        raise NotImplementedError

    def drawn(self, row: Tensor, y: Tensor | None) -> Tensor:
        """Images in [0, 1] beside these rows of a split, the same for a row in whatever batch it comes."""
        raise NotImplementedError

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        if player == "referee":
            assert self.referee is not None
            return study(self.referee, batch)
        return self.learn(batch)

    def label(self, batch: Batch) -> Tensor | None:
        return batch["y"] if self.classes else None

    def compared(self, batch: Batch) -> Batch:
        """Rows of real images and of those drawn beside them."""
        x, row = batch["x"], batch["row"]
        some = (row < ROWS).nonzero()[:, 0]
        images = torch.full_like(x, nan)
        if len(some):
            y = self.label(batch)
            images[some] = self.drawn(row[some], None if y is None else y[some]).to(x.dtype)
        return side_by_side(self.referee, batch, images) | {"there": row < ROWS}

    def score(self, rows: Batch) -> dict[str, float]:
        some = {name: column[rows["there"]] for name, column in rows.items()}
        if some["drawn"].isfinite().all():
            return super().score(rows) | verdict(some, conditional=bool(self.classes))
        names = verdict(some | {"drawn": some["real"]}, conditional=bool(self.classes))
        return super().score(rows) | dict.fromkeys(names, nan)  # of images that are no numbers there is none to tell
