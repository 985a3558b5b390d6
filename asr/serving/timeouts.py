"""Waiting for some seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

Result = TypeVar("Result")


async def within(work: Awaitable[Result], seconds: float) -> Result:
    """Await something for some seconds; canceling this cancels that.

    `asyncio.wait_for` does the same but for a fault before Python 3.12: where the result comes at the
    moment of a cancellation, it returns the result, and the task that was canceled goes on.
    raises   asyncio.TimeoutError
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        is_late = task.cancel()
    if is_late:
        raise asyncio.TimeoutError
    return task.result()
