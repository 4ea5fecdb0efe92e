"""TensorBoard events beside metrics.jsonl, where a writer is installed."""

import importlib.util
from pathlib import Path
from typing import Any

from didact.run import Run


def write_events(run: Run) -> Path | None:
    """All logged lines as scalars under the run's folder; None where tensorboardX is not installed."""
    if importlib.util.find_spec("tensorboardX") is None:
        return None
    from tensorboardX import SummaryWriter

    folder = run.folder / "tensorboard"
    for old in folder.glob("events.*"):
        old.unlink()
    with SummaryWriter(str(folder)) as writer:
        for line in run.metrics:
            for name, value in scalars(line).items():
                writer.add_scalar(name, value, line["step"])
    return folder


def scalars(line: dict[str, Any]) -> dict[str, float]:
    """A line's numbers as TensorBoard names them: group/name."""
    groups = {f"{group}/{name}": value for group in ("train", "validation", "gradients") for name, value in line.get(group, {}).items()}
    return groups | ({"lr": line["lr"]} if "lr" in line else {})
