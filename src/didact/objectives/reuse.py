"""Transfer learning: a network that has learned something else starts from there. How much of it still learns is the question.

    layers 1 … L, from the pixels to the classes;   η_l = η ρ^(1 - l / L)
"""

from collections.abc import Iterable

from torch import nn

from didact.objectives.core import Player
from didact.objectives.distribution import Likelihood
from didact.objectives.supervised import Classify


class Reuse(Classify):
    """Only the last `learning` layers learn; rates fall geometrically from η at the last to about ρ η at the first.  Gaba 4.5.

    Layers that do not learn stay as they are in every respect: their batch norms keep the statistics they came with.
    """

    def __init__(self, network: nn.Module, likelihood: Likelihood, *, learning: int, lr: float, ratio: float):
        super().__init__(network, likelihood)
        self.lr, self.ratio = lr, ratio
        depths = layers(network)
        self.frozen, self.live = depths[: len(depths) - learning], depths[len(depths) - learning :]
        for p in parameters(m for depth in self.frozen for m in depth):
            p.requires_grad_(False)

    def train(self, mode: bool = True) -> "Reuse":
        """What is frozen behaves as when it is used: no dropout, no new statistics."""
        super().train(mode)
        if self.frozen:
            still = list(self.network.modules())
            for module in still[: still.index(self.frozen[-1][-1]) + 1]:
                module.training = False
        return self

    def players(self) -> tuple[Player, ...]:
        """One player; a group of parameters for each layer, the last first."""
        L = len(self.frozen) + len(self.live)
        groups = [
            {"params": parameters(depth), "lr": self.lr * self.ratio ** (1 - l / L)}
            for l, depth in enumerate(self.live, start=len(self.frozen) + 1)
        ]
        return (Player(parameters=groups[::-1]),)


def parameters(modules: Iterable[nn.Module]) -> list[nn.Parameter]:
    """Those that the modules hold themselves."""
    return [p for m in modules for p in m.parameters(recurse=False)]


def layers(network: nn.Module) -> list[list[nn.Module]]:
    """The modules of each depth, from input to output: one that holds a matrix or kernels, and what follows it up to the next.

    Parameters that stand by themselves, as the class token and positions of a transformer, belong to the depth that they come in.
    """
    depths: list[list[nn.Module]] = [[]]
    weighed = False
    for module in network.modules():
        own = list(module.parameters(recurse=False))
        heavy = isinstance(module, nn.Linear | nn.Conv2d) or any(p.ndim == 2 for p in own)
        if heavy and weighed:
            depths.append([])
        weighed = weighed or heavy
        if own:
            depths[-1].append(module)
    return depths
