"""What is explained: a run's classifier as functions of decoded inputs, and the parts that an input has."""

from dataclasses import dataclass

import torch
from torch import Tensor

from didact.data.core import Batch, Data
from didact.data.tables.columns import NumericColumn
from didact.data.tables.table import TableEncoder
from didact.errors import UsageError
from didact.objectives.abilities import CanClassify
from didact.objectives.base import Objective
from didact.run import Run
from didact.training.device import resolve_device
from didact.training.restore import load_model

_EXPLAINABLE_KINDS = ("images", "table", "text")


@dataclass(frozen=True)
class ExplainedModel:
    """A trained classifier and its data."""

    objective: Objective
    data: Data
    device: torch.device

    @classmethod
    def from_run(cls, run: Run, device: str = "auto") -> "ExplainedModel":
        objective, data = load_model(run)
        if not isinstance(objective, CanClassify):
            raise UsageError(
                f"{run.folder} is no classifier, and explanations are of class scores; `didact list` shows which "
                "recipes classify"
            )
        # word ids have no gradient
        is_ordered = data.kind == "text" and len(data.feature_names) != data.num_features
        if data.kind not in _EXPLAINABLE_KINDS or len(data.shape) not in (1, 3) or is_ordered:
            inputs_text = "texts word by word" if is_ordered else data.kind
            raise UsageError(f"{run.folder} reads {inputs_text}; explanations are for images, tables and bags of words")
        torch_device = resolve_device(device, supported=objective.devices)
        return cls(objective.to(torch_device), data, torch_device)

    @property
    def is_image(self) -> bool:
        return len(self.data.shape) == 3

    def scores(self, x: Tensor) -> Tensor:
        """Logits (B, K): after a softmax or sigmoid gradients would vanish where the model is confident.

        They are the outputs of evaluation, which do not depend on the targets.
        """
        is_multilabel = self.data.task == "multilabel"
        y = (
            torch.zeros(len(x), self.data.num_classes, device=x.device)
            if is_multilabel
            else torch.zeros(len(x), dtype=torch.long, device=x.device)
        )
        out = self.objective.evaluate_batch({"x": x, "y": y}).get("output")
        if out is None or out.ndim != 2:
            return self.classify({"x": x}).clamp_min(1e-30).log()
        return torch.cat([-out, out], dim=1) if out.shape[1] == 1 else out

    def classify(self, batch: Batch) -> Tensor:
        assert isinstance(self.objective, CanClassify)
        return self.objective.classify(batch)

    def probabilities(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.classify({"x": x})

    def is_differentiable(self, x: Tensor) -> bool:
        """Whether gradients reach the input; the NumPy engine computes its own and hands out none."""
        try:
            with torch.enable_grad():
                return self.scores(x[:1].detach().requires_grad_()).requires_grad
        except RuntimeError:
            return False

    @property
    def baseline(self) -> Tensor:
        """The value of an absent part: the training mean (for images even gray), or 0 for a bag of words."""
        if self.data.kind == "text":
            return torch.zeros(1, device=self.device)
        return self.data.mean.float().to(self.device)

    def get_column_offsets(self, num_parts: int) -> list[float]:
        """The offset that was subtracted from each column of a table; 0 where the columns are not known."""
        encoder = self.data.encoder
        columns = encoder.columns if isinstance(encoder, TableEncoder) and len(encoder.columns) == num_parts else ()
        return [column.offset if isinstance(column, NumericColumn) else 0.0 for column in columns] or [0.0] * num_parts

    def get_parts(self, x: Tensor) -> tuple[list[str], Tensor]:
        """The names of an example's parts, and the part that each number belongs to.

        A table's column is one part, however many features encode it; the parts of a text are the words that occur (-1
        for the others).
        """
        n = x.numel()
        names = list(self.data.feature_names) or [f"x{k}" for k in range(n)]
        if self.data.kind == "text":
            present = x.nonzero()[:, 0]
            part_index = torch.full((n,), -1, device=x.device)
            part_index[present] = torch.arange(len(present), device=x.device)
            return [names[k] for k in present.tolist()], part_index
        encoder = self.data.encoder
        if isinstance(encoder, TableEncoder) and len(encoder.feature_names) == n:
            widths = torch.tensor([len(column.feature_names) for column in encoder.columns])
            return [column.name for column in encoder.columns], torch.arange(len(widths)).repeat_interleave(widths).to(
                x.device
            )
        return names, torch.arange(n, device=x.device)
