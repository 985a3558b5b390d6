"""Model folders on the Hugging Face Hub: take them from there, and publish them with a model card."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asr.imports import lazily

if TYPE_CHECKING:
    from asr.hub.pull import find_model
    from asr.hub.push import push

HOMES: Mapping[str, str] = {"find_model": "pull", "push": "push"}
__all__ = ["find_model", "push"]


def __getattr__(name: str) -> Any:
    return lazily(__name__, name, HOMES)
