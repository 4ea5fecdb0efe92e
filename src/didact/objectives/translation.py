"""Sequence to sequence: the next token of the target, given the source and what is written so far."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn.functional import pad

from didact.data.core import Batch
from didact.data.tokens import UNKNOWN
from didact.metrics.text import bleu
from didact.objectives.core import Objective
from didact.objectives.language import IGNORED, next_token, perplexity


class Translate(Objective):
    """min of −mean_t log p(y_t | y_<t, x), teacher forced.  Gaba 6.1, Fleuret 5.3.

    The network is called with (x, y) and gives logits; `write(x, length=…)` gives its own tokens. Sums over a row are divided by one
    `length`, the mean of the training targets, so that the gradient of a batch is that of its parts, however they are padded.
    Where `spell` makes text of tokens, a split is judged by BLEU too.
    """

    watch, better = "exact", "higher"

    def __init__(self, network: nn.Module, *, length: float, longest: int, spell: Callable[[Sequence[int]], str] | None = None):
        super().__init__()
        self.network, self.length, self.longest, self.spell = network, length, longest, spell

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        nll, _ = self.surprise(batch)
        return {"loss": nll.sum(1).mean() / self.length}

    def surprise(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """−log p of each target token, 0 at padding, and where it is none: both (B, T − 1)."""
        y = batch["y"]
        asked = y[:, 1:] != 0
        return next_token(self.network(batch["x"], y[:, :-1]), y[:, 1:].masked_fill(~asked, IGNORED)), asked

    def judge(self, batch: Batch) -> Batch:
        nll, asked = self.surprise(batch)
        n = asked.sum(1)
        y = batch["y"][:, 1:]
        own = pad(self.translate(batch), (0, max(0, y.shape[1] - self.longest)))[:, : y.shape[1]]
        rows = {"loss": nll.sum(1) / n.clamp(min=1), "tokens": n, "right": ((own == y) & asked).sum(1), "exact": (own == y).all(1).float()}
        return rows if self.spell is None else {**rows, "written": own.int(), "reference": y.int()}

    def score(self, rows: Batch) -> dict[str, float]:
        """`exact`: sentences written without a mistake, on the decoder's own; `accuracy`: tokens at their right place; `bleu` of texts."""
        n = rows["tokens"].double()
        nll = float((rows["loss"].double() * n).sum() / n.sum())
        right = float(rows["right"].sum() / n.sum())
        found = {"loss": nll, "perplexity": perplexity(nll), "accuracy": right, "exact": float(rows["exact"].mean())}
        return found if self.spell is None else {**found, "bleu": self.bleu(rows["written"].tolist(), rows["reference"].tolist())}

    def bleu(self, written: list[list[int]], reference: list[list[int]]) -> float:
        """Of texts, not of tokens. An unknown word is never right: it is left out of the translation, a strange sign in the reference."""
        assert self.spell is not None
        ours = [self.spell([token for token in row if token != UNKNOWN]) for row in written]
        return bleu(ours, [self.spell(row).replace("<unk>", "\ufffd") for row in reference])

    def translate(self, batch: Batch) -> Tensor:
        """What it writes, (B, longest): tokens up to <eos>, 0 behind."""
        written: Tensor = self.network.write(batch["x"], length=self.longest)  # type: ignore[operator]
        return written
