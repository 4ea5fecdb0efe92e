"""The engine from its equations, in NumPy alone: tensors, their gradients, and four ways to a gradient.

    x = scratch.tensor([1.0, 2.0], requires_grad=True)
    (x ** 2).sum().backward()
    x.grad                                  # array([2., 4.])
"""

from didact.scratch.tensor import ScratchError, Tensor, is_recording, no_grad, once, record, tensor

__all__ = ["ScratchError", "Tensor", "is_recording", "no_grad", "once", "record", "tensor"]
