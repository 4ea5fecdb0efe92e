"""What the model said of the test examples, read from the run's rows alone: no network is needed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from didact.data.centring import full
from didact.report.markup import number


@dataclass(frozen=True)
class Answers:
    """Of N test examples: the truth, and either probabilities (N, K) or a mean (N,) with perhaps its deviation."""

    task: str
    y: Tensor
    loss: Tensor
    labels: tuple[str, ...] = ()
    probabilities: Tensor | None = None
    mean: Tensor | None = None
    std: Tensor | None = None
    shift: float = 0.0      # was subtracted from y, and is lacking in mean

    def told(self, row: int) -> tuple[str, str, bool | None]:
        """The truth and the answer in words, and whether they agree where that is a question."""
        if self.mean is not None:
            spread = f" ± {number(float(self.std[row]), 3)}" if self.std is not None else ""
            y, mean = (float(v[row]) + self.shift for v in (self.y, self.mean))
            true, said = (full(v, self.shift) if self.shift else number(v) for v in (y, mean))
            return true, said + spread, None
        assert self.probabilities is not None
        p = self.probabilities[row]
        if self.task == "multilabel":
            own, chosen = ([self.labels[k] for k in there.nonzero()[:, 0]] for there in (self.y[row] > 0.5, p > 0.5))
            return ", ".join(own) or "none", ", ".join(chosen) or "none", own == chosen
        k = int(p.argmax())
        return self.labels[int(self.y[row])], f"{self.labels[k]} ({100 * float(p[k]):.1f} %)", k == int(self.y[row])


def answers(facts: Mapping[str, Any], rows: Mapping[str, Tensor]) -> Answers | None:
    """Logits become probabilities, standardised outputs the targets' own units; None for rows of another kind."""
    data = facts["data"]
    if not {"y", "output", "loss"} <= rows.keys() or rows["output"].ndim != 2:
        return None
    out, labels = rows["output"].double(), tuple(data.get("labels", ()))
    common = {"task": data["task"], "y": rows["y"], "loss": rows["loss"], "labels": labels}
    if data["task"] == "regression" and rows["y"].ndim == 1:
        location, scale = data.get("target_mean", 0.0), data.get("target_std", 1.0)
        # the same bounds as the likelihood's own
        std = scale * (0.5 * out[:, 1].clamp(-14, 14)).exp() if out.shape[1] == 2 else None
        return Answers(**common, mean=location + scale * out[:, 0], std=std, shift=data.get("target_shift", 0.0))
    if data["task"] == "binary" and out.shape[1] == 1:
        return Answers(**common, probabilities=torch.cat([-out, out], dim=1).sigmoid())
    if data["task"] in ("binary", "multiclass") and out.shape[1] == len(labels):
        return Answers(**common, probabilities=out.softmax(dim=1))
    if data["task"] == "multilabel" and out.shape[1] == len(labels):
        return Answers(**common, probabilities=out.sigmoid())
    return None
