"""What all requests share: the engines by name, the limits, and who may ask."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from asr.errors import UserError
from asr.serving.engine import Engine
from asr.serving.options import ServingOptions


class Service:
    """The models that are served, and how.

    engines   by the name of their model
    """

    def __init__(self, engines: Mapping[str, Engine], options: ServingOptions):
        self.engines, self.options = dict(engines), options

    def engine(self, name: str | None) -> Engine:
        """Find the engine of a model; with one model, any name is its name.

        raises   UserError that lists the models, argument "model"
        """
        if len(self.engines) == 1:
            return next(iter(self.engines.values()))
        if name in self.engines:
            return self.engines[name]
        known = ", ".join(self.engines)
        raise UserError(f"got {name!r}, expected one of {known}", argument="model")

    def admits(self, authorization: str | None) -> bool:
        """Whether a header `Authorization: Bearer TOKEN` is right; compared in constant time."""
        if not self.options.token:
            return True
        kind, _, given = (authorization or "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), self.options.token.encode())
        return right and kind.lower() == "bearer"
