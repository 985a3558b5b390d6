"""The parts of a decoding's outputs, joined."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asr import failures as failure_lists
from asr.failures import Failure
from asr.files import replacing
from asr.parts import Part, check_complete
from asr.stamp import Stamp, read
from asr.transcription.decoding import FAILED, Output


def join(outputs: Sequence[Output], count: int) -> list[Failure]:
    """Join the parts of each output, in order, and list the failures of all beside the first one.

    returns   the failures
    raises    UserError that names the parts that are missing, or were made of something else
    """
    parts = Part.all(count)
    finished = [all(stamp_of(out, part).is_finished() for out in outputs) for part in parts]
    check_complete([part for part, done in zip(parts, finished, strict=True) if not done], count)
    for output in outputs:
        output.stamp.begin()
    for output in outputs:
        with replacing(output.path) as temporary, open(temporary, "wb") as file:
            for part in parts:
                file.write(Path(part.path(output.path)).read_bytes())
    lists = [Path(f"{part.path(outputs[0].path)}{FAILED}") for part in parts]
    failures = [failure for path in lists if path.exists() for failure in failure_lists.read(path)]
    failure_lists.write(Path(f"{outputs[0].path}{FAILED}"), failures)
    if not failures:
        made = [read(part.path(outputs[0].path))["made"] for part in parts]
        for output in outputs:
            output.stamp.write(**summed(made))
    return failures


def stamp_of(output: Output, part: Part) -> Stamp:
    """Return the stamp of a part of an output."""
    return output.stamp.of(part.path(output.path), part=str(part))


def summed(made: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add the seconds of the parts' making."""
    audio, wall = (sum(m.get(n, 0.0) for m in made) for n in ("audio_seconds", "wall_seconds"))
    kinds = sorted({m["hardware"] for m in made if m.get("audio_seconds")})
    facts = {"audio_seconds": round(audio, 2), "wall_seconds": round(wall, 2)}
    return facts | {"rtf": round(wall / max(audio, 1e-9), 4), "hardware": ", ".join(kinds)}
