"""Reverse-mode automatic differentiation: a tensor that records, and the engine that walks back.

`tensor` and `engine` are the two halves; `ops` (elementwise), `shape`, `reduce` and `matmul` hold the operations with
their derivatives, `special` the error function, `gradcheck` the comparison with finite differences, `graph` and
`layout` draw a graph. `didact.scratch` exports what users need; nothing is exported here, because `matmul` is a module
and a function.
"""
