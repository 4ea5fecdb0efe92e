"""What a frozen network makes of an image is the same each time: it is kept, and the head alone runs again.

    f(x) = head(dropout(z)),   z = z(x) of layers that do not learn
"""

from hashlib import blake2b

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from didact.data.storage import free_memory
from didact.layers.drop_path import DropPath

MEMORY_DIVISOR = 8  # of the free memory, one part in so many is filled


class FeatureCache:
    """z of images seen before, found again by their pixels: whatever split they come from, and never one that was
    changed.

    Each image goes through the network by itself, so that z does not depend on its neighbours: a resumed run finds
    the same bits.
    """

    def __init__(self, network: nn.Module, head_modules: list[nn.Module], free_bytes: int):
        self.network, self.head_modules, self.free_bytes = network, head_modules, free_bytes
        self.features: dict[bytes, Tensor] = {}

    @classmethod
    @torch.no_grad()
    def build(cls, network: nn.Module, head: nn.Module, trainable: list[nn.Module], x: Tensor) -> "FeatureCache | None":
        """With the head, and the dropout right before it, as what runs again; None where that is not all that may
        change.

        `live` are the modules that are not frozen, `x` is an image (1, …) to try it on.
        """
        stochastic_modules = [
            m for m in trainable if isinstance(m, _NormBase) or (isinstance(m, _DropoutNd | DropPath) and m.p > 0)
        ]
        training_modes = {m: m.training for m in network.modules()}
        network.eval()
        y, z = _forward_with_input_of(network, head, x)
        features = [_forward_with_input_of(network, m, x)[1] for m in stochastic_modules]
        for m, mode in training_modes.items():
            m.training = mode
        if z is None or len(stochastic_modules) > 1 or not all(u is not None and torch.equal(u, z) for u in features):
            return None
        recomputed = head(z)
        if recomputed.shape != y.shape or not torch.allclose(recomputed, y, atol=1e-5):
            return None
        return cls(network, [*stochastic_modules, head], free_memory() // MEMORY_DIVISOR)

    def __call__(self, x: Tensor) -> Tensor:
        return self.apply_head(torch.cat([self.get_features(image) for image in x.split(1)]))

    def apply_head(self, z: Tensor) -> Tensor:
        """What learns, on what does not."""
        for module in self.head_modules:
            z = module(z)
        return z

    def get_features(self, image: Tensor) -> Tensor:
        key = blake2b(image.contiguous().numpy().tobytes(), digest_size=16).digest()
        if key in self.features:
            return self.features[key]
        z = self.compute_features(image)
        if z.nbytes <= self.free_bytes:
            self.free_bytes -= z.nbytes
            self.features[key] = z
        return z

    @torch.no_grad()
    def compute_features(self, x: Tensor) -> Tensor:
        last = self.head_modules[0]
        mode, last.training = last.training, False      # a dropout draws nothing for an image that is only looked at
        z = _forward_with_input_of(self.network, last, x)[1]
        last.training = mode
        assert z is not None
        return z


def _forward_with_input_of(network: nn.Module, layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """f(x), and what reached a layer on the way; None where it was not passed."""
    layer_inputs: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda module, inputs: layer_inputs.append(inputs[0].clone()))
    try:
        return network(x), layer_inputs[-1] if layer_inputs else None
    finally:
        hook.remove()
