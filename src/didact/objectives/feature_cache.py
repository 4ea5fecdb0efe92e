"""Feature cache: a frozen network computes the same features of an image each time, so they are stored.

    f(x) = head(dropout(z)),   z = z(x) of layers that are not trained
"""

from hashlib import blake2b

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd

from didact.data.storage import free_memory
from didact.layers.drop_path import DropPath

_MEMORY_DIVISOR = 8  # the cache fills at most an eighth of the free memory


class FeatureCache:
    """Features z of images seen before, looked up by a hash of the pixels: of any split, never of an augmented image.

    Each image goes through the network alone, so that z does not depend on the other images of its batch: kernels for
    different batch sizes round differently, and a resumed run must find the same bits.
    """

    def __init__(self, network: nn.Module, head_modules: list[nn.Module], free_bytes: int):
        self.network, self.head_modules, self.free_bytes = network, head_modules, free_bytes
        self.features: dict[bytes, Tensor] = {}

    @classmethod
    @torch.no_grad()
    def build(cls, network: nn.Module, head: nn.Module, trainable: list[nn.Module], x: Tensor) -> "FeatureCache | None":
        """A cache in front of `head` and of a dropout right before it; None where anything else may change.

        `trainable` are the modules that are not frozen, `x` is an image (1, …) to check it with.
        """
        stochastic_modules = [
            m for m in trainable if isinstance(m, _NormBase) or (isinstance(m, _DropoutNd | DropPath) and m.p > 0)
        ]
        training_modes = {m: m.training for m in network.modules()}
        network.eval()
        y, z = _forward_with_input_of(network, head, x)
        # A layer that acts randomly or normalizes by the batch must not be cached: it is allowed only if its input is
        # already z, so that it runs again together with the head.
        features = [_forward_with_input_of(network, m, x)[1] for m in stochastic_modules]
        for m, mode in training_modes.items():
            m.training = mode
        if z is None or len(stochastic_modules) > 1 or not all(u is not None and torch.equal(u, z) for u in features):
            return None
        recomputed = head(z)    # must be all that follows z: a network may flatten or add something afterwards
        if recomputed.shape != y.shape or not torch.allclose(recomputed, y, atol=1e-5):
            return None
        return cls(network, [*stochastic_modules, head], free_memory() // _MEMORY_DIVISOR)

    def __call__(self, x: Tensor) -> Tensor:
        return self.apply_head(torch.cat([self.get_features(image) for image in x.split(1)]))

    def apply_head(self, z: Tensor) -> Tensor:
        """The trainable layers, applied to the frozen layers' features."""
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
        mode, last.training = last.training, False      # no random numbers are drawn while features are computed
        z = _forward_with_input_of(self.network, last, x)[1]
        last.training = mode
        assert z is not None
        return z


def _forward_with_input_of(network: nn.Module, layer: nn.Module, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """f(x), and the input that `layer` received; None if it was not called."""
    layer_inputs: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda module, inputs: layer_inputs.append(inputs[0].clone()))
    try:
        return network(x), layer_inputs[-1] if layer_inputs else None
    finally:
        hook.remove()
