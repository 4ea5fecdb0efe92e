"""The one loop, and what surrounds it. Called, the room is its own verb: `didact.train(recipe, **arguments)`."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from didact.run import Run


class _Room(ModuleType):
    """Python binds `didact.train` to this package as soon as anything in it is imported; so the package answers the call."""

    def __call__(self, *recipe: Any, **arguments: Any) -> Run:
        from didact.train.session import train

        import_module("didact.recipes")  # a recipe may be given by its name
        return train(*recipe, **arguments)


sys.modules[__name__].__class__ = _Room
