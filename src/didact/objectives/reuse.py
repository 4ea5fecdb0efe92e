"""Transfer learning: a network that has learned something else starts from there. How much of it still learns is the question.

    layers 1 … L, from the pixels to the classes;   η_l = η ρ^(1 - l / L)
"""

from collections.abc import Iterable

from torch import Tensor, nn
from torch.compiler import is_compiling

from didact.data.core import Batch
from didact.objectives.core import Player
from didact.objectives.distribution import Likelihood
from didact.objectives.kept import Kept
from didact.objectives.supervised import Classify


class Reuse(Classify):
    """Only the last `learning` layers learn; rates fall geometrically from η at the last to about ρ η at the first.  Gaba 4.5.

    Layers that do not learn stay as they are in every respect: their batch norms keep the statistics they came with. Where the last
    one learns alone, `keep` remembers what the others make of each image while it is trained: for images that are not augmented.
    """

    def __init__(self, network: nn.Module, likelihood: Likelihood, *, learning: int, lr: float, ratio: float, keep: bool = False):
        super().__init__(network, likelihood)
        self.lr, self.ratio = lr, ratio
        self.keep = keep and learning == 1
        self.kept: Kept | None = None
        depths = layers(network)
        self.frozen, self.live = depths[: len(depths) - learning], depths[len(depths) - learning :]
        for p in parameters(m for depth in self.frozen for m in depth):
            p.requires_grad_(False)

    def loss(self, batch: Batch, player: str = "model") -> dict[str, Tensor]:
        x = batch["x"]
        if self.keep and x.device.type == "cpu" and not is_compiling():  # an accelerator computes it before the host has looked it up
            self.keep, self.kept = False, Kept.of(self.network, self.live[-1][-1], self.moving, x[:1])
        return {"loss": self.likelihood.mean_loss(self.answer(x), batch["y"])}

    def forward(self, batch: Batch) -> Tensor:
        """Through all layers: whoever calls it like a module looks at them."""
        return super().loss(batch)["loss"]

    def judge(self, batch: Batch) -> Batch:
        out = self.answer(batch["x"])
        return {"loss": self.likelihood.judge(out, batch["y"]), "output": out, "y": batch["y"]}

    def answer(self, x: Tensor) -> Tensor:
        """f(x), of what is kept where that is possible."""
        out: Tensor = self.network(x) if self.kept is None or x.requires_grad or is_compiling() else self.kept(x)
        return out

    @property
    def moving(self) -> list[nn.Module]:
        """The modules behind the last frozen one."""
        modules = list(self.network.modules())
        return modules[modules.index(self.frozen[-1][-1]) + 1 :] if self.frozen else modules

    def train(self, mode: bool = True) -> "Reuse":
        """What is frozen behaves as when it is used: no dropout, no new statistics."""
        super().train(mode)
        moving = set(self.moving)
        for module in self.network.modules():
            module.training = mode and module in moving
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
