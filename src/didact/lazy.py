"""Exports of a package that are imported when they are first used, so that importing the package is cheap."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def make_lazy_getattr(package: str, module_of_name: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package (PEP 562): `module_of_name` says in which of its modules a name is."""

    def getattr_lazily(name: str) -> Any:
        if name not in module_of_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of_name[name]}"), name)

    return getattr_lazily
