"""Imports that wait until they are needed: libraries of some work alone, and what packages offer."""

import importlib
import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

from asr.errors import UserError, reason


def torchaudio(module: str = "torchaudio") -> ModuleType:
    """Import torchaudio or a module of it.

    raises   UserError, one sentence that names the fix, where it is absent or doesn't fit the
             installed torch
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        from importlib.metadata import PackageNotFoundError, version

        def installed(name: str) -> str:
            try:
                return f"{name} {version(name)}"
            except PackageNotFoundError:
                return f"no {name}"

        raise UserError(
            f"torchaudio can't be imported beside {installed('torch')} ({installed('torchaudio')}: {reason(error)}); "
            f"pip install 'torch>=2.11,<2.15' 'torchaudio>=2.11,<2.12', both from the same index"
        ) from None


def matplotlib(module: str) -> ModuleType:
    """Import a module of matplotlib; see `_extra`."""
    return _extra(module, "matplotlib", "matplotlib>=3.8")


def sacrebleu(module: str) -> ModuleType:
    """Import a module of sacrebleu; see `_extra`."""
    return _extra(module, "sacrebleu", "asr-toolkit[translate]")


def huggingface_hub(module: str) -> ModuleType:
    """Import a module of huggingface_hub; see `_extra`."""
    return _extra(module, "huggingface_hub", "asr-toolkit[hub]")


def transformers(module: str) -> ModuleType:
    """Import a module of transformers, or of what comes with it; see `_extra`."""
    if sys.version_info < (3, 11):  # for which pip passes over the extra
        ours = ".".join(map(str, sys.version_info[:2]))
        raise UserError(
            f"pretrained encoders need transformers 5, which needs Python 3.11 or later; this is Python {ours}: "
            "install the toolkit into an environment of a newer one"
        )
    return _extra(module, "transformers", "asr-toolkit[pretrained]")


def _extra(module: str, library: str, package: str) -> ModuleType:
    """Import a module of a library that only some work needs.

    package  what pip installs
    raises   UserError, one sentence that names the fix
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError, AttributeError) as error:
        raise UserError(
            f"{library} can't be imported ({reason(error)}); pip install '{package}'"
        ) from None


def lazily(package: str, name: str, homes: Mapping[str, str]) -> Any:
    """Find a name of a package, for its `__getattr__`; homes: name → module within the package that defines it."""
    if name not in homes:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value = getattr(import_module(f"{package}.{homes[name]}"), name)
    setattr(sys.modules[package], name, value)
    return value
