"""The contract between what is learned and the one loop that learns it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from didact.analysis.layer_hooks import LayerEntry, OutputCallback, collect_layer_entries, hook_outputs
from didact.data.core import Batch


@dataclass(frozen=True)
class Player:
    """Who is trained: parameters (or optimizer groups of them) that minimise a loss of their own.

    In each round a player takes `turns` steps, each on a fresh batch; players with fewer turns use the first of them.
    """

    name: str = "model"
    parameters: list[Any] = field(default_factory=list)
    steps_per_round: int = 1
    # False where the loss holds a gradient: what torch.compile makes can be differentiated once only
    compilable: bool = True


class Objective(nn.Module):
    """Owns the networks and says what is minimised; holds no optimizer and never looks at a data set."""

    monitor: str = "loss"                          # the validation metric that chooses the model
    mode: Literal["min", "max"] = "min"
    devices: tuple[str, ...] = ("cpu", "cuda", "mps")  # where it can be trained
    capturable: bool = True                      # False where `loss` needs the host, so that no CUDA graph can hold it
    gallery_size: int = 64                           # examples that its gallery is made of

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        """The mean loss of a batch under "loss", with its named parts beside it."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Tensor:
        """The training loss alone, so that an objective can be called like any module."""
        return self.loss(batch)["loss"]

    def after_step(self, player: str = "model") -> None:
        """Once after each optimizer step of a player, in however many parts its loss was asked for. Most have
        nothing to do then."""

    def evaluate_batch(self, batch: Batch) -> Batch:
        """Rows to score a whole split by, one for each example: small enough to keep for all of them."""
        raise NotImplementedError

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """The metrics of a whole split from its rows."""
        return {"loss": float(outputs["loss"].mean())}

    def report_examples(self, batch: Batch) -> Batch:
        """What the report shows of a few examples beside their input: a row for each, by name. Most show nothing
        more."""
        return {}

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """Pictures of what was learned, from a few test examples: by name, grids (rows, columns, C, H, W) in [0,
        1]. Most have none.

        Word vectors show `neighbours`: words and those nearest to them, numbers and cosines, (P, 1 + n, 2).
        """
        return {}

    def layer_entries(self) -> dict[str, LayerEntry]:
        """What the layer table lists; parameters are torch's, whatever computes with them."""
        return collect_layer_entries(self)

    def record_outputs(self, callback: OutputCallback) -> AbstractContextManager[None]:
        """Inside, each part that runs tells its name and what it gave."""
        return hook_outputs(self, callback)

    def players(self) -> tuple[Player, ...]:
        """One player with all parameters, unless the objective is a game."""
        return (Player(parameters=[p for p in self.parameters() if p.requires_grad]),)
