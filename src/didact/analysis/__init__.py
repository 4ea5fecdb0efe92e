"""What can be learned about a network by looking at it, without training.

    receptive_field       output sizes and receptive fields of every layer; the effective receptive field
    signal_propagation    mean and variance of activations and gradients, layer by layer
    sharpness             the largest eigenvalue of the Hessian
    layer_hooks           the layers that a layer table lists, and hooks on their outputs

Names are loaded when they are first used: layers import `analysis.receptive_field`, and `signal_propagation` layers.
"""

from typing import TYPE_CHECKING

from didact.lazy import make_lazy_getattr

if TYPE_CHECKING:
    from didact.analysis.receptive_field import SlidingWindow as SlidingWindow
    from didact.analysis.receptive_field import effective_receptive_field as effective_receptive_field
    from didact.analysis.receptive_field import output_size as output_size
    from didact.analysis.receptive_field import trace_receptive_fields as trace_receptive_fields
    from didact.analysis.sharpness import hessian_top_eigenvalue as hessian_top_eigenvalue
    from didact.analysis.signal_propagation import measure_signal_propagation as measure_signal_propagation

_MODULES = {
    "SlidingWindow": "receptive_field",
    "effective_receptive_field": "receptive_field",
    "hessian_top_eigenvalue": "sharpness",
    "measure_signal_propagation": "signal_propagation",
    "output_size": "receptive_field",
    "trace_receptive_fields": "receptive_field",
}

__all__ = [
    "SlidingWindow", "effective_receptive_field", "hessian_top_eigenvalue", "measure_signal_propagation",
    "output_size", "trace_receptive_fields",
]  # fmt: skip

__getattr__ = make_lazy_getattr(__name__, _MODULES)
