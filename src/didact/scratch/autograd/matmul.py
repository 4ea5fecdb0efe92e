"""Matrix products and einsum, the same product with names for its axes.

    Y = A B:   dA = dY Bᵀ,  dB = Aᵀ dY

Groudiev 2.4.2: the Jacobian of x ↦ Wx is W. Lhotte 3.3.1: ∂J/∂W = (∂J/∂z) uᵀ.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from didact.scratch.autograd import ops, shape
from didact.scratch.autograd.tensor import Array, Grads, ScratchError, Tensor, factors_to_save, record_op


def matmul(a: Any, b: Any) -> Tensor:
    """y = a @ b over the last two axes, the others broadcast.

    A vector is a row on the left and a column on the right.
    """
    a, b = _operands(a, b)
    if (
        not a.ndim
        or not b.ndim
        or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]
        or not _broadcast(a.shape[:-2], b.shape[:-2])
    ):
        raise ScratchError(f"matmul: shapes {a.shape} and {b.shape} do not multiply")
    if a.ndim == 1:
        return shape.squeeze(matmul(a[None, :], b if b.ndim > 1 else b[:, None]), (-2,) if b.ndim > 1 else (-2, -1))
    if b.ndim == 1:
        return shape.squeeze(matmul(a, b[:, None]), -1)

    # one weight for a whole batch: fold the batch into the rows, and sum inside the product
    one_weight = b.ndim == 2 and a.ndim > 2
    vjp = ops.vjp_broadcast(a, b, lambda dy: dy @ b.mT, lambda dy: _rows(a).T @ _rows(dy) if one_weight else a.mT @ dy)
    return record_op("matmul", _product(a.data, b.data), (a, b), vjp, factors_to_save(a, b))


def _operands(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    a, b = ops.as_tensor(a), ops.as_tensor(b)
    common = np.result_type(a.dtype, b.dtype)
    return ops.cast(a, common), ops.cast(b, common)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or m == 1 or n == 1 for m, n in zip(a[::-1], b[::-1], strict=False))


def _rows(x: Tensor) -> Tensor:
    return shape.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _product(a: Array, b: Array) -> Array:
    if b.ndim == 2 and a.ndim > 2 and a.flags.c_contiguous:  # one large product is faster than many small ones
        folded: Array = np.matmul(a.reshape(math.prod(a.shape[:-1]), a.shape[-1]), b)
        return folded.reshape(*a.shape[:-1], b.shape[1])
    y: Array = np.matmul(a, b)
    return y


def einsum(subscripts: str, *operands: Any) -> Tensor:
    """einsum("bij,bjk->bik", a, b): multiply along equal letters, sum over those that the result lacks.

    The derivative for one operand is an einsum of dy with all the others, read out under that operand's letters.
    """
    xs = tuple(ops.as_tensor(x) for x in operands)
    common = np.result_type(*[x.dtype for x in xs])
    terms, out = _letters(subscripts, [x.ndim for x in xs])
    ready = []
    for term, x in zip(terms, xs, strict=True):
        x = ops.cast(x, common)
        ready.append(x if len(set(term)) == len(term) else _diagonal(x, term))
    return _einsum(subscripts, tuple("".join(dict.fromkeys(t)) for t in terms), out, tuple(ready))


def _einsum(text: str, terms: tuple[str, ...], out: str, xs: tuple[Tensor, ...]) -> Tensor:
    sizes: dict[str, int] = {}
    for term, x in zip(terms, xs, strict=True):
        for letter, n in zip(term, x.shape, strict=True):
            if sizes.setdefault(letter, n) not in (n, 1) and n != 1:
                shapes = " and ".join(str(x.shape) for x in xs)
                raise ScratchError(f"einsum: {letter!r} is both {sizes[letter]} and {n} in {text!r}, shapes {shapes}")
            sizes[letter] = n if sizes[letter] == 1 else sizes[letter]

    def vjp(dy: Tensor) -> Grads:
        grads: list[Tensor | None] = []
        for i, (term, x) in enumerate(zip(terms, xs, strict=True)):
            if not x.requires_grad:
                grads.append(None)
                continue
            others = tuple(t for j, t in enumerate(terms) if j != i), tuple(x for j, x in enumerate(xs) if j != i)
            known_letters = "".join(c for c in term if c in out or any(c in t for t in others[0]))
            g = _einsum(text, (out, *others[0]), known_letters, (dy, *others[1]))
            g = shape.reshape(
                g,
                tuple(
                    n if c in known_letters else 1 for c, n in zip(term, _sizes(term, known_letters, g), strict=True)
                ),
            )
            # a letter that only this operand has was summed: all its values get the same gradient
            full = tuple(sizes[c] for c in term)
            grads.append(ops.unbroadcast(shape.broadcast_to(g, full), x.shape))
        return tuple(grads)

    return record_op("einsum", _contract(terms, out, [x.data for x in xs]), xs, vjp, xs)


def _sizes(term: str, known: str, g: Tensor) -> list[int]:
    return [g.shape[known.index(c)] if c in known else 1 for c in term]


def _letters(text: str, ndims: list[int]) -> tuple[list[str], str]:
    """The letters of every operand and of the result, "..." spelled out with unused letters."""
    left, arrow, out = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ndims):
        raise ScratchError(f"einsum: {text!r} names {len(terms)} operands, got {len(ndims)}")
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in text]
    widest = 0
    for i, (term, ndim) in enumerate(zip(terms, ndims, strict=True)):
        hidden = ndim - len(term.replace("...", ""))
        if hidden < 0 or (hidden and "..." not in term):
            raise ScratchError(f"einsum: {term!r} in {text!r} does not name the {ndim} axes of operand {i + 1}")
        terms[i] = term.replace("...", "".join(free[:hidden][::-1]))
        widest = max(widest, hidden)
    dots = "".join(free[:widest][::-1])
    letters = "".join(terms)
    if not arrow:  # the implicit result: first "...", then the letters that occur once, in alphabetical order
        out = dots + "".join(sorted(c for c in set(letters) - set(dots) if letters.count(c) == 1))
    out = out.replace("...", dots)
    if len(set(out)) != len(out) or not set(out) <= set(letters):
        raise ScratchError(f"einsum: the result of {text!r} must name letters of its operands, each once")
    return terms, out


def _diagonal(x: Tensor, term: str) -> Tensor:
    """Of "iij", the values with equal indices under "ij": a view, whose derivative writes the diagonal of zeros."""
    once = "".join(dict.fromkeys(term))
    try:
        value = np.einsum(f"{term}->{once}", x.data)
    except ValueError:
        raise ScratchError(f"einsum: {term!r} repeats a letter over axes of different size, shape {x.shape}") from None
    source = x.shape
    return record_op("diagonal", value, (x,), lambda dy: (_undiagonal(dy, term, source),), view_of=x)


def _undiagonal(dy: Tensor, term: str, target: tuple[int, ...]) -> Tensor:
    value = np.zeros(target, dy.dtype)
    np.einsum(f"{term}->{''.join(dict.fromkeys(term))}", value)[...] = dy.data
    return record_op("undiagonal", value, (dy,), lambda dx: (_diagonal(dx, term),))


def _contract(terms: tuple[str, ...], out: str, arrays: list[Array]) -> Array:
    """Two at a time, from the left: each step keeps the letters that a later operand or the result still needs."""
    term, y = terms[0], arrays[0]
    for i in range(1, len(terms)):
        needed = set(out).union(*terms[i + 1 :])
        target = "".join(c for c in dict.fromkeys(term + terms[i]) if c in needed)
        term, y = target, _contract_pair(term, y, terms[i], arrays[i], target)
    value: Array = np.einsum(f"{term}->{out}", y)
    return value if len(terms) > 1 else value.copy()


def _contract_pair(s: str, a: Array, t: str, b: Array, out: str) -> Array:
    """One matrix product: (batch, rows, summed) @ (batch, summed, columns), letters sorted into these four kinds."""
    a, s = _sum_unshared(a, s, t + out)
    b, t = _sum_unshared(b, t, s + out)
    batch = [c for c in s if c in t and c in out]
    summed = [c for c in s if c in t and c not in out]
    rows, columns = [c for c in s if c not in t], [c for c in t if c not in s]
    size: dict[str, int] = {}
    for c, n in zip(s + t, a.shape + b.shape, strict=True):
        size[c] = max(n, size.get(c, n)) if 0 not in (n, size.get(c, n)) else 0
    a = np.broadcast_to(a, tuple(size[c] if c in summed else n for c, n in zip(s, a.shape, strict=True)))
    b = np.broadcast_to(b, tuple(size[c] if c in summed else n for c, n in zip(t, b.shape, strict=True)))
    groups = [(batch, rows, summed), (batch, summed, columns)]
    left, right = (
        x.transpose([term.index(c) for g in group for c in g]).reshape(
            *[x.shape[term.index(c)] for c in batch], *[math.prod(size[c] for c in g) for g in group[1:]]
        )
        for x, term, group in ((a, s, groups[0]), (b, t, groups[1]))
    )
    y: Array = np.matmul(left, right)
    y = y.reshape([*y.shape[: len(batch)], *[size[c] for c in rows + columns]])
    return y.transpose([(batch + rows + columns).index(c) for c in out])


def _sum_unshared(x: Array, term: str, elsewhere: str) -> tuple[Array, str]:
    """Sum over the letters that no other operand and not the result has."""
    lonely = tuple(i for i, c in enumerate(term) if c not in elsewhere)
    return (np.add.reduce(x, lonely), "".join(c for c in term if c in elsewhere)) if lonely else (x, term)
