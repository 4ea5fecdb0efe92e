"""A network of the NumPy engine in the one loop: its gradients are scratch's, everything around them is didact's.

The parameters are torch tensors that share their memory with the engine's arrays, so an optimizer's step is seen by both.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from didact import metrics, scratch
from didact.data.core import Batch
from didact.objectives.core import Objective
from didact.objectives.parts import Heard, Part
from didact.scratch.losses import cross_entropy


class Handed(torch.autograd.Function):
    """Hands gradients that were computed elsewhere to torch: forward returns the loss, backward the gradients times dL."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: tuple[Tensor, ...], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, dloss: Tensor) -> Any:
        return None, None, *(g * dloss for g in ctx.gradients)


class FromScratch(Objective):
    """min of mean cross-entropy of a scratch network: classes (B, K), or the next symbol at every position (B, T, K)."""

    watch, better, capturable, devices = "accuracy", "higher", False, ("cpu",)  # NumPy knows no other

    def __init__(self, network: Any, *, twin: Callable[[], nn.Module], classes: int):
        super().__init__()
        self.engine, self.classes = network, classes   # not an nn.Module: torch sees its parameters below
        self.twin = twin                               # makes the same network in PyTorch, to compare with
        self.names = [name for name, _ in network.named_parameters()]
        for name, p in network.named_parameters():
            adopt(self, name, nn.Parameter(torch.from_numpy(p.data)))

    def layer_parts(self) -> dict[str, Part]:
        """The engine's own layers, whose numbers torch knows by the same names."""
        shared, found = dict(self.named_parameters()), {}
        for name, module in self.engine.named_modules():
            own = [shared[path] for key in module.direct() if (path := f"{name}.{key}".lstrip(".")) in shared]
            if own or sum(1 for _ in module.modules()) == 1:
                found[name] = Part(type(module).__name__, own)
        return found

    def overheard(self, heard: Heard) -> AbstractContextManager[None]:
        names = {id(module): name for name, module in self.engine.named_modules()}
        return scratch.module.listening(lambda module, output: heard(names[id(module)], output))

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        self.engine.train()
        tensors = [p for _, p in self.engine.named_parameters()]
        loss = self.surprise(self.engine(self.input(batch)), batch)
        gradients = scratch.grad(loss, tensors)
        handed = tuple(torch.from_numpy(np.ascontiguousarray(g.data)) for g in gradients)
        own = dict(self.named_parameters())
        handed_on = Handed.apply(torch.tensor(loss.item()), handed, *[own[n] for n in self.names])  # type: ignore[no-untyped-call]
        return {"loss": handed_on}

    def judge(self, batch: Batch) -> Batch:
        self.engine.eval()
        with scratch.no_grad():
            logits = torch.from_numpy(self.engine(self.input(batch)).data)
        nll = nn.functional.cross_entropy(logits.reshape(-1, self.classes), batch["y"].reshape(-1), reduction="none").view(batch["y"].shape)
        if nll.ndim == 1:
            return {"loss": nll, "output": logits, "y": batch["y"]}
        return {"loss": nll.mean(1), "right": (logits.argmax(-1) == batch["y"]).float().mean(1)}

    def score(self, rows: Batch) -> dict[str, float]:
        found = super().score(rows)
        if "right" in rows:
            return found | {"accuracy": float(rows["right"].mean()), "perplexity": float(rows["loss"].mean().exp())}
        return found | {"accuracy": float(metrics.accuracy(rows["output"], rows["y"]))}

    def input(self, batch: Batch) -> Any:
        x = batch["x"].numpy()
        return scratch.tensor(x) if batch["x"].is_floating_point() else x

    def surprise(self, logits: scratch.Tensor, batch: Batch) -> scratch.Tensor:
        """The mean of -log softmax(z)_y over examples and positions."""
        return cross_entropy(logits.reshape(-1, self.classes), batch["y"].numpy().reshape(-1))


class ScratchClassify(FromScratch):
    """A classifier of the NumPy engine."""

    def classify(self, batch: Batch) -> Tensor:
        self.engine.eval()
        with scratch.no_grad():
            return torch.from_numpy(self.engine(self.input(batch)).data).softmax(-1)


def adopt(root: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Give `root` a parameter under a dotted name, with empty modules on the way: state dicts then read as PyTorch's do."""
    *path, last = name.split(".")
    for step in path:
        if step not in dict(root.named_children()):
            root.add_module(step, nn.Module())
        root = root.get_submodule(step)
    root.register_parameter(last, parameter)
