"""Architectures: one file a family. Importing this package fills the registry."""

from didact.models.mlp import MLP
from didact.models.wide_deep import WideDeep

__all__ = ["MLP", "WideDeep"]
