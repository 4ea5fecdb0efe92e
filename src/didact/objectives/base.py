"""The objective: the contract between what is learned and the one training loop that learns it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from didact.analysis.layer_hooks import LayerEntry, OutputCallback, collect_layer_entries, hook_outputs
from didact.data.core import Batch


@dataclass(frozen=True)
class Player:
    """One part of a training: parameters (or optimizer groups of them) that minimize a loss of their own.

    In each round a player takes `steps_per_round` steps, each on a fresh batch; players with fewer steps use the first
    batches. Most objectives have one player; a GAN has two.
    """

    name: str = "model"
    parameters: list[Any] = field(default_factory=list)
    steps_per_round: int = 1
    # False where the loss contains a gradient: torch.compile's output can be differentiated only once
    compilable: bool = True


class Objective(nn.Module):
    """Owns the networks and defines what is minimized; holds no optimizer and knows no dataset."""

    monitor: str = "loss"                                # the validation metric that chooses the best weights
    mode: Literal["min", "max"] = "min"
    devices: tuple[str, ...] = ("cpu", "cuda", "mps")    # where it can be trained
    capturable: bool = True                              # False where `loss` needs the host: no CUDA graph can hold it
    weighs_examples: bool = False                        # `loss` counts each example by the column "weight"
    gallery_size: int = 64                               # test examples that its gallery is made from

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        """The mean training loss of a batch under "loss", and its named parts."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Tensor:
        """The training loss alone, so that an objective can be called like any module."""
        return self.loss(batch)["loss"]

    def after_step(self, player: str = "model") -> None:
        """Called once after each optimizer step of a player, however many micro-batches the step had."""

    def evaluate_batch(self, batch: Batch) -> Batch:
        """Per-example outputs from which a split's metrics are computed; small enough to keep for a whole split."""
        raise NotImplementedError

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        """The metrics of a split from the outputs of all its batches."""
        return {"loss": float(outputs["loss"].mean())}

    def report_examples(self, batch: Batch) -> Batch:
        """What the report shows of a few examples next to their inputs: by name, one row per example."""
        return {}

    def gallery(self, batch: Batch) -> dict[str, Tensor]:
        """Images of what was learned, from a few test examples: by name, grids (rows, columns, C, H, W) in [0, 1].

        Word vectors give "neighbors" instead: words and those nearest to them, ids and cosines, (P, 1 + n, 2).
        """
        return {}

    def layer_entries(self) -> dict[str, LayerEntry]:
        """The rows of the layer table, by module name; parameters are torch's, whatever computes with them."""
        return collect_layer_entries(self)

    def record_outputs(self, callback: OutputCallback) -> AbstractContextManager[None]:
        """Inside, each layer that runs calls back with its name and its output."""
        return hook_outputs(self, callback)

    def players(self) -> tuple[Player, ...]:
        """One player with all trainable parameters, unless the objective is a game."""
        return (Player(parameters=[p for p in self.parameters() if p.requires_grad]),)
