"""Checkpoints: the state after a whole round, written beside and renamed, and restored to the same bytes.

A checkpoint holds weights, optimizers, random generators, the loss scaler, the EMA and the sums that are not logged
yet. The best weights are written first, then the state that refers to them: killed in between, a resumed run writes
them again.
"""

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from didact.training.loop import Trainer


@dataclass
class TrainingState:
    """Where training stands. With weights, optimizers and generators it is all that a checkpoint holds."""

    step: int = 0
    best_score: float | None = None
    best_step: int = 0
    evaluations_without_improvement: int = 0
    seconds: float = 0.0
    warmup_seconds: float = 0.0     # of those, the first rounds of each process: compilation, autotuning, graph capture
    log_size: int = 0               # bytes of metrics.jsonl at the time of saving
    stop_reason: str = ""           # why training ended; empty while it runs
    fingerprint: dict[str, float] = field(default_factory=dict)
    validation: dict[str, float] = field(default_factory=dict)                # metrics of the best state
    early_stopping_reference: dict[str, float] = field(default_factory=dict)  # metrics to improve on by min_delta


def make_checkpoint(trainer: "Trainer", streams: list[Any]) -> dict[str, Any]:
    """Everything that decides how training goes on; `streams` are the random states of every process."""
    return {
        "state": asdict(trainer.state),
        "model": trainer.objective.state_dict(),
        "optimizers": {name: o.state_dict() for name, o in trainer.train_step.optimizers.items()},
        "streams": streams,
        "scaler": trainer.precision.scaler.state_dict(),
        "average": trainer.ema.state_dict() if trainer.ema is not None else None,
        "sums": trainer.train_step.loss_sums,
        "seen": trainer.train_step.examples_seen,
    }


def save_checkpoint(trainer: "Trainer", streams: list[Any]) -> None:
    """Into the run's folder, by the main process; into memory where there is no folder."""
    if trainer.run is None:
        trainer.in_memory_checkpoint = _clone_tree(make_checkpoint(trainer, streams))
    elif trainer.group.is_main:
        if trainer.best_weights:
            trainer.run.save("model", trainer.best_weights, step=str(trainer.state.best_step))
        trainer.run.sync_log()
        trainer.state.log_size = trainer.run.log_size
        trainer.run.save_state(make_checkpoint(trainer, streams))


def restore_checkpoint(trainer: "Trainer", checkpoint: dict[str, Any]) -> None:
    """Continue exactly where the checkpoint was taken."""
    trainer.state = TrainingState(**checkpoint["state"])
    trainer.objective.load_state_dict(checkpoint["model"])
    for name, optimizer in trainer.train_step.optimizers.items():
        optimizer.load_state_dict(checkpoint["optimizers"][name])
    trainer.streams.load_states(checkpoint["streams"], trainer.state.step)
    trainer.precision.scaler.load_state_dict(checkpoint["scaler"])
    if trainer.ema is not None:
        trainer.ema.load_state_dict(checkpoint["average"])
    device = trainer.precision.device
    trainer.train_step.loss_sums = {name: total.to(device) for name, total in checkpoint["sums"].items()}
    trainer.train_step.examples_seen = checkpoint["seen"]
    trainer.pending_logs, trainer.schedule_factors, trainer.best_weights = [], None, {}
    trainer.start_step, trainer.speed_reference = trainer.state.step, (trainer.state.step, trainer.state.seconds)


def load_last_checkpoint(trainer: "Trainer") -> dict[str, Any]:
    """The latest checkpoint, from the run's folder or from memory."""
    checkpoint = trainer.run.load_state() if trainer.run is not None else trainer.in_memory_checkpoint
    assert checkpoint is not None, "a checkpoint is written before the first step"
    return checkpoint


def _clone_tree(tree: Any) -> Any:
    """The same tree with tensors of its own."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {key: _clone_tree(value) for key, value in tree.items()}
    return [_clone_tree(value) for value in tree] if isinstance(tree, list) else tree
