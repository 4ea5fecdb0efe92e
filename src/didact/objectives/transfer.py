"""Transfer learning: a pretrained network is trained on, as a whole or in its last layers.

    layers 1 … L, from the pixels to the classes;   η_l = η ρ^(1 - l / L)
"""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.compiler import is_compiling

from didact.data.core import Batch
from didact.objectives.base import Player
from didact.objectives.distributions.base import Likelihood
from didact.objectives.feature_cache import FeatureCache
from didact.objectives.supervised import Classify


class TransferClassifier(Classify):
    """Fine-tuning of the last layers; learning rates fall from η at the last to about ρ η at the first.  Gaba 4.5.

    Frozen layers do not change in any respect: their batch norms keep the statistics they came with. Where the last
    layer alone is trained, `cache_features` stores what the others compute of each training image, for images that are
    not augmented.
    """

    def __init__(
        self,
        network: nn.Module,
        likelihood: Likelihood,
        *,
        num_trainable_layers: int,
        lr: float,
        lr_ratio: float,
        cache_features: bool = False,
    ):
        super().__init__(network, likelihood)
        self.lr, self.lr_ratio = lr, lr_ratio
        self.cache_features = cache_features and num_trainable_layers == 1
        self.feature_cache: FeatureCache | None = None
        depths = group_layers(network)
        self.frozen_layers, self.trainable_layers = (
            depths[: len(depths) - num_trainable_layers],
            depths[len(depths) - num_trainable_layers :],
        )
        for p in _own_parameters(m for depth in self.frozen_layers for m in depth):
            p.requires_grad_(False)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x = batch["x"]
        # on an accelerator the features are computed faster than looked up
        if self.cache_features and x.device.type == "cpu" and not is_compiling():
            self.cache_features, self.feature_cache = (
                False,
                FeatureCache.build(self.network, self.trainable_layers[-1][-1], self.trainable_modules, x[:1]),
            )
        return {"loss": self.likelihood.mean_loss(self._compute_logits(x), batch["y"])}

    def forward(self, batch: Batch) -> Tensor:
        """The loss through all layers, without the cache: for callers that inspect the layers."""
        return super().loss(batch)["loss"]

    def evaluate_batch(self, batch: Batch) -> Batch:
        out = self._compute_logits(batch["x"])
        return {"loss": self.likelihood.eval_loss(out, batch["y"]), "output": out, "y": batch["y"]}

    def _compute_logits(self, x: Tensor) -> Tensor:
        """f(x), from cached features where that is possible."""
        out: Tensor = (
            self.network(x)
            if self.feature_cache is None or x.requires_grad or is_compiling()
            else self.feature_cache(x)
        )
        return out

    @property
    def trainable_modules(self) -> list[nn.Module]:
        """The modules after the last frozen one."""
        modules = list(self.network.modules())
        return modules[modules.index(self.frozen_layers[-1][-1]) + 1 :] if self.frozen_layers else modules

    def train(self, mode: bool = True) -> "TransferClassifier":
        """Frozen layers stay in evaluation mode: no dropout, no new statistics."""
        super().train(mode)
        trainable = set(self.trainable_modules)
        for module in self.network.modules():
            module.training = mode and module in trainable
        return self

    def players(self) -> tuple[Player, ...]:
        """One player; a group of parameters for each layer, the last first."""
        L = len(self.frozen_layers) + len(self.trainable_layers)
        groups = [
            {"params": _own_parameters(depth), "lr": self.lr * self.lr_ratio ** (1 - l / L)}
            for l, depth in enumerate(self.trainable_layers, start=len(self.frozen_layers) + 1)
        ]
        return (Player(parameters=groups[::-1]),)


def _own_parameters(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    """The parameters that the modules hold themselves."""
    return [p for m in modules for p in m.parameters(recurse=False)]


def group_layers(network: nn.Module) -> list[list[nn.Module]]:
    """The modules of each layer, from input to output: one that has a weight matrix or kernels, and what follows it.

    Parameters that belong to no such module, as the class token and position embeddings of a transformer, count to the
    layer in which they are registered.
    """
    depths: list[list[nn.Module]] = [[]]
    has_weights = False
    for module in network.modules():
        own_parameters = list(module.parameters(recurse=False))
        is_weight_layer = isinstance(module, nn.Linear | nn.Conv2d) or any(p.ndim == 2 for p in own_parameters)
        if is_weight_layer and has_weights:
            depths.append([])
        has_weights = has_weights or is_weight_layer
        if own_parameters:
            depths[-1].append(module)
    return depths
