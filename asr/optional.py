"""Libraries that only some work needs, imported where it is done."""

import importlib
from types import ModuleType

from asr.errors import UserError


def torchaudio(module: str = "torchaudio") -> ModuleType:
    """Import torchaudio or a module of it.

    raises   UserError, one sentence that names the fix, where it is absent or doesn't fit the installed torch
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

        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"torchaudio can't be imported beside {installed('torch')} ({installed('torchaudio')}: {reason}); "
            f"pip install 'torch>=2.11,<2.15' 'torchaudio>=2.11,<2.12', both from the same index"
        ) from None
