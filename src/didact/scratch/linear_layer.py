"""Linear (fully connected) layer: an affine map and its three gradients (Gaba 2.2.1, Lhotte 3.3.1)."""

from math import prod

from didact.scratch.autograd.tensor import ScratchError, Tensor, factors_to_save, record_op, vjp_each


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = x Wᵀ + b;  dx = dy W,  dW = dyᵀ x,  db = Σ dy.

    Rows are examples, so the course's δ hᵀ, summed over them, is dyᵀ x. All axes before the last are batch axes: one
    product does them together.
    """
    if not x.ndim or x.shape[-1] != weight.shape[1]:
        raise ScratchError(f"linear: an input of shape {x.shape} does not fit a weight of shape {weight.shape}")
    n, (out, width) = prod(x.shape[:-1]), weight.shape
    y = x.data.reshape(n, width) @ weight.data.T
    if bias is not None:
        y += bias.data
    shape, inputs = x.shape, (x, weight) if bias is None else (x, weight, bias)
    dx = (x, lambda dy: (dy.reshape(n, out) @ weight).reshape(shape))
    dw = (weight, lambda dy: dy.reshape(n, out).T @ x.reshape(n, width))
    vjp = vjp_each(dx, dw) if bias is None else vjp_each(dx, dw, (bias, lambda dy: dy.reshape(n, out).sum(0)))
    return record_op("linear", y.reshape(*shape[:-1], out), inputs, vjp, saved=factors_to_save(x, weight))
