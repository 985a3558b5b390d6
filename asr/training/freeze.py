"""Freeze parts of a model: parameters whose names match patterns are not trained."""

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from asr.errors import UserError


def freeze(model: nn.Module, patterns: Sequence[str]) -> None:
    """Take the gradient from the parameters that match; dropout within frozen layers goes on.

    patterns  of names as in the model's state, as `model.encoder.layers.[0-3].*`; `*` stands for dots too. Statistics
              have no gradient anyway, and may be matched
    raises    UserError if a pattern matches nothing, with the nearest names; or if nothing is left to train
    """
    names = list(model.state_dict())
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(f"freeze: {pattern!r} matches no parameter{_nearest(pattern, names)}")
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserError(f"freeze: {', '.join(patterns)} leaves no parameter to train; take a pattern out")


def _nearest(pattern: str, names: Sequence[str]) -> str:
    """Offer names and whole modules that look like a pattern."""
    modules = {name[: end + 1] + "*" for name in names for end, letter in enumerate(name) if letter == "."}
    near = difflib.get_close_matches(pattern, sorted(modules | set(names)), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, near))}?" if near else f"; names are as {names[-1]!r}"
