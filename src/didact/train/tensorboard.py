"""TensorBoard events beside metrics.jsonl, where a writer is installed."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from didact.run import Run


def write_events(run: Run) -> Path | None:
    """All logged lines as scalars under the run's folder; None where neither tensorboard nor tensorboardX is installed."""
    make = writer()
    if make is None:
        return None
    folder = run.folder / "tensorboard"
    for old in folder.glob("events.*"):
        old.unlink()
    with make(str(folder)) as events:
        for line in run.metrics:
            for name, value in scalars(line).items():
                if value is not None:
                    events.add_scalar(name, value, line["step"])
    return folder


def writer() -> Any:
    """tensorboardX, which is light, or else PyTorch's own, which wants tensorboard."""
    if importlib.util.find_spec("tensorboardX") is not None:
        return importlib.import_module("tensorboardX").SummaryWriter
    if importlib.util.find_spec("tensorboard") is not None:
        return importlib.import_module("torch.utils.tensorboard").SummaryWriter
    return None


def scalars(line: dict[str, Any]) -> dict[str, float]:
    """A line's numbers as TensorBoard names them: group/name."""
    groups = {f"{group}/{name}": value for group in ("train", "validation", "gradients") for name, value in line.get(group, {}).items()}
    return groups | ({"lr": line["lr"]} if "lr" in line else {})
