"""A network of the NumPy engine in the one training loop: its gradients are from `didact.scratch`.

The parameters are torch tensors that share their memory with the engine's arrays, so both see an optimizer's step.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from didact import metrics, scratch
from didact.analysis.layer_hooks import LayerEntry, OutputCallback
from didact.data.core import Batch
from didact.objectives.base import Objective
from didact.scratch.losses import cross_entropy


class _ExternalGradient(torch.autograd.Function):
    """Hands gradients computed elsewhere to torch: forward returns the loss, backward the gradients times dL."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: tuple[Tensor, ...], *parameters: Tensor) -> Tensor:
        ctx.graph_gradients = gradients
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, dloss: Tensor) -> Any:
        return None, None, *(g * dloss for g in ctx.graph_gradients)


class NumpyEngineObjective(Objective):
    """min of the mean cross-entropy of a scratch network: classes (B, K), or next tokens (B, T, K)."""

    monitor, mode, capturable, devices = "accuracy", "max", False, ("cpu",)  # NumPy computes on no other device

    def __init__(self, network: Any, *, make_twin: Callable[[], nn.Module], num_classes: int):
        super().__init__()
        self.engine, self.num_classes = network, num_classes   # not an nn.Module: torch sees its parameters below
        self.make_twin = make_twin                             # makes the same network in PyTorch, to compare with
        self.parameter_names = [name for name, _ in network.named_parameters()]
        for name, p in network.named_parameters():
            _register_dotted_parameter(self, name, nn.Parameter(torch.from_numpy(p.data)))

    def layer_entries(self) -> dict[str, LayerEntry]:
        """The engine's own layers; torch has their parameters under the same names."""
        torch_parameters, entries = dict(self.named_parameters()), {}
        for name, module in self.engine.named_modules():
            parameters = [
                torch_parameters[path]
                for key in module.own_tensors()
                if (path := f"{name}.{key}".lstrip(".")) in torch_parameters
            ]
            if parameters or sum(1 for _ in module.modules()) == 1:
                entries[name] = LayerEntry(type(module).__name__, parameters)
        return entries

    def record_outputs(self, callback: OutputCallback) -> AbstractContextManager[None]:
        names = {id(module): name for name, module in self.engine.named_modules()}
        return scratch.module.listen_to_calls(lambda module, output: callback(names[id(module)], output))

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        self.engine.train()
        engine_parameters = [p for _, p in self.engine.named_parameters()]
        loss = self.engine_loss(self.engine(self.to_engine_input(batch)), batch)
        gradients = scratch.grad(loss, engine_parameters)
        torch_gradients = tuple(torch.from_numpy(np.ascontiguousarray(g.data)) for g in gradients)
        parameters = dict(self.named_parameters())
        torch_loss = _ExternalGradient.apply(
            torch.tensor(loss.item()), torch_gradients, *[parameters[n] for n in self.parameter_names]
        )  # type: ignore[no-untyped-call]
        return {"loss": torch_loss}

    def evaluate_batch(self, batch: Batch) -> Batch:
        self.engine.eval()
        with scratch.no_grad():
            logits = torch.from_numpy(self.engine(self.to_engine_input(batch)).data)
        nll = nn.functional.cross_entropy(
            logits.reshape(-1, self.num_classes), batch["y"].reshape(-1), reduction="none"
        ).view(batch["y"].shape)
        if nll.ndim == 1:
            return {"loss": nll, "output": logits, "y": batch["y"]}
        return {"loss": nll.mean(1), "correct": (logits.argmax(-1) == batch["y"]).float().mean(1)}

    def compute_metrics(self, outputs: Batch) -> dict[str, float]:
        scores = super().compute_metrics(outputs)
        if "correct" in outputs:
            return scores | {
                "accuracy": float(outputs["correct"].mean()),
                "perplexity": float(outputs["loss"].mean().exp()),
            }
        return scores | {"accuracy": float(metrics.accuracy(outputs["output"], outputs["y"]))}

    def to_engine_input(self, batch: Batch) -> Any:
        x = batch["x"].numpy()
        return scratch.tensor(x) if batch["x"].is_floating_point() else x

    def engine_loss(self, logits: scratch.Tensor, batch: Batch) -> scratch.Tensor:
        """The mean of −log softmax(z)_y over examples and positions."""
        return cross_entropy(logits.reshape(-1, self.num_classes), batch["y"].numpy().reshape(-1))


class NumpyEngineClassifier(NumpyEngineObjective):
    """A classifier of the NumPy engine."""

    def classify(self, batch: Batch) -> Tensor:
        self.engine.eval()
        with scratch.no_grad():
            return torch.from_numpy(self.engine(self.to_engine_input(batch)).data).softmax(-1)


def _register_dotted_parameter(root: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Register a parameter under a dotted name, in nested empty modules, so that state dicts read as PyTorch's do."""
    *path, leaf_name = name.split(".")
    for module_name in path:
        if module_name not in dict(root.named_children()):
            root.add_module(module_name, nn.Module())
        root = root.get_submodule(module_name)
    root.register_parameter(leaf_name, parameter)
