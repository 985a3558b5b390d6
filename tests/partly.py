"""Parameters of which scripts/test.sh tries some, and scripts/test.sh --all every one."""

from collections.abc import Iterable

import pytest


def partly(values: Iterable, one_in: int) -> list:
    """Mark as slow all values but each `one_in`-th, from the first on; a tuple or list is several arguments."""
    return [value if n % one_in == 0 else _slow(value) for n, value in enumerate(values)]


def _slow(value):
    arguments = value if isinstance(value, tuple | list) else (value,)
    return pytest.param(*arguments, marks=pytest.mark.slow)
