"""Names that a package offers and imports when they are first used, so that importing the package stays light."""

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def lazily(package: str, name: str, homes: Mapping[str, str]) -> Any:
    """Find a name of a package, for its `__getattr__`; homes: name → module within the package that defines it."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(import_module(f"{package}.{homes[name]}"), name)
    setattr(sys.modules[package], name, value)
    return value
