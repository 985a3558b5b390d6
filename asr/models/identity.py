"""What of an experiment's settings identifies its model: all but where it is written and how it is computed."""

import hashlib
import json
from typing import Any

# settings that change how a run is computed, not what comes out
_OF_TRAINING = (
    "device processes shard activation_checkpointing compile keep save_minutes save_steps log_every"
)
NOT_IN_STAMP = [
    ("data", "workers"),
    ("data", "tokens"),
    *(("training", key) for key in _OF_TRAINING.split()),
]


def digest(tree: dict) -> str:
    """SHA-256 of an experiment's plain tree; order, comments and layout of its file don't matter, nor NOT_IN_STAMP and
    `out`, which a continued run may change.
    """
    facts = {
        section: {key: value for key, value in part.items() if (section, key) not in NOT_IN_STAMP}
        if isinstance(part, dict)
        else part
        for section, part in tree.items()
        if section != "out"
    }
    return hashlib.sha256(json.dumps(_canonical(facts)).encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """The same for mappings of the same content, whatever their order."""
    if isinstance(value, dict):
        return {"mapping": sorted([repr(key), _canonical(below)] for key, below in value.items())}
    return [_canonical(below) for below in value] if isinstance(value, list) else value
