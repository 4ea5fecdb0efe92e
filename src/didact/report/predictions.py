"""Predictions for the test examples, from the run's saved outputs: no network is needed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from didact.charts.html import format_number
from didact.data.tables.offsets import format_exact


@dataclass(frozen=True)
class Predictions:
    """Of N test examples: targets, and probabilities (N, K) or means (N,) with standard deviations where known."""

    task: str
    y: Tensor
    loss: Tensor
    class_names: tuple[str, ...] = ()
    probabilities: Tensor | None = None
    mean: Tensor | None = None
    std: Tensor | None = None
    target_offset: float = 0.0      # subtracted from y and mean

    def describe(self, row: int) -> tuple[str, str, bool | None]:
        """The true and the predicted value as text, and whether they agree, where that is a question."""
        if self.mean is not None:
            std_text = f" ± {format_number(float(self.std[row]), 3)}" if self.std is not None else ""
            y, mean = (float(v[row]) + self.target_offset for v in (self.y, self.mean))
            true, predicted = (
                format_exact(v, self.target_offset) if self.target_offset else format_number(v) for v in (y, mean)
            )
            return true, predicted + std_text, None
        assert self.probabilities is not None
        p = self.probabilities[row]
        if self.task == "multilabel":
            true_names, predicted_names = (
                [self.class_names[k] for k in is_positive.nonzero()[:, 0]]
                for is_positive in (self.y[row] > 0.5, p > 0.5)
            )
            return ", ".join(true_names) or "none", ", ".join(predicted_names) or "none", true_names == predicted_names
        k = int(p.argmax())
        return (
            self.class_names[int(self.y[row])],
            f"{self.class_names[k]} ({100 * float(p[k]):.1f} %)",
            k == int(self.y[row]),
        )


def read_predictions(metadata: Mapping[str, Any], outputs: Mapping[str, Tensor]) -> Predictions | None:
    """Logits become probabilities, standardized outputs the targets' own units; None for outputs of another kind."""
    data = metadata["data"]
    if not {"y", "output", "loss"} <= outputs.keys() or outputs["output"].ndim != 2:
        return None
    out, class_names = outputs["output"].double(), tuple(data.get("class_names", ()))
    common_fields = {"task": data["task"], "y": outputs["y"], "loss": outputs["loss"], "class_names": class_names}
    if data["task"] == "regression" and outputs["y"].ndim == 1:
        location, scale = data.get("target_mean", 0.0), data.get("target_std", 1.0)
        # the same bounds as the likelihood's
        std = scale * (0.5 * out[:, 1].clamp(-14, 14)).exp() if out.shape[1] == 2 else None
        return Predictions(
            **common_fields, mean=location + scale * out[:, 0], std=std, target_offset=data.get("target_offset", 0.0)
        )
    if data["task"] == "binary" and out.shape[1] == 1:
        return Predictions(**common_fields, probabilities=torch.cat([-out, out], dim=1).sigmoid())
    if data["task"] in ("binary", "multiclass") and out.shape[1] == len(class_names):
        return Predictions(**common_fields, probabilities=out.softmax(dim=1))
    if data["task"] == "multilabel" and out.shape[1] == len(class_names):
        return Predictions(**common_fields, probabilities=out.sigmoid())
    return None
