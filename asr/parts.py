"""Parts of a large work, each done by a command of its own, on any machine."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from asr.errors import UserError, shorten

T = TypeVar("T")
ARRAYS = {  # schedulers' variables: number of a task, the first, the last, the step
    "Slurm": (
        "SLURM_ARRAY_TASK_ID",
        "SLURM_ARRAY_TASK_MIN",
        "SLURM_ARRAY_TASK_MAX",
        "SLURM_ARRAY_TASK_STEP",
    ),
    "SGE": ("SGE_TASK_ID", "SGE_TASK_FIRST", "SGE_TASK_LAST", "SGE_TASK_STEPSIZE"),
    "PBS": ("PBS_ARRAY_INDEX",),
    "LSF": ("LSB_JOBINDEX", "", "LSB_JOBINDEX_END", "LSB_JOBINDEX_STEP"),
}
MOST = 1_000_000


@dataclass(frozen=True)
class Part:
    """Part number 1 to `count`."""

    number: int
    count: int

    @classmethod
    def all(cls, count: int) -> "list[Part]":
        """List the parts of a work, in order."""
        return [cls(number, count) for number in range(1, count + 1)]

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, items: list[T]) -> list[T]:
        """Take this part of a list; the parts joined in order are the list."""
        first, last = (n * len(items) // self.count for n in (self.number - 1, self.number))
        return items[first:last]

    def path(self, output: str) -> str:
        """Name this part of an output."""
        return f"{output}.part-{self.number}-of-{self.count}"


def parse(text: str, environment: Mapping[str, str]) -> Part:
    """Read `3/200`, `auto`, or `auto/200`, where a scheduler's array says the number and, for `auto`, the count.

    raises   UserError if it is none of these, or the array isn't 1, 2, ... to its end
    """
    match = re.fullmatch(r"(auto|\d{1,7})(?:/(\d{1,7}))?", text)
    if not match or (match[1] != "auto" and not match[2]):
        raise UserError(
            f"got {text!r}, expected I/N such as 3/200, auto, or auto/N", argument="part"
        )
    if match[1] == "auto":
        number, count = _of_array(environment, match[2])
    else:
        number, count = int(match[1]), int(match[2])
    if not 1 <= number <= count <= MOST:
        raise UserError(f"got {number}/{count}, expected 1/N to N/N", argument="part")
    return Part(number, count)


def _of_array(environment: Mapping[str, str], count: str | None) -> tuple[int, int]:
    for scheduler, names in ARRAYS.items():
        values = [int(v) if (v := environment.get(n, "")).isdecimal() else None for n in names]
        number, first, last, step = (*values, None, None, None)[:4]
        if number is None or number == 0 and scheduler == "LSF":  # 0: of a job that is no array
            continue
        if count:
            return number, int(count)
        if last is None or (first or 1) != 1 or (step or 1) != 1:
            raise UserError(
                f"auto: the array of {scheduler} isn't known to run from 1 to its end by 1 "
                "(some tasks again?); say the number of parts: auto/N",
                argument="part",
            )
        return number, last
    raise UserError(f"auto: this is no task of an array ({', '.join(ARRAYS)})", argument="part")


def check_complete(missing: Sequence[Part], count: int) -> None:
    """Refuse to join a work of `count` parts some of which are missing.

    raises   UserError that names them
    """
    if missing:
        raise UserError(
            f"{len(missing)} of {count} parts are missing, or made of other inputs or options "
            f"({shorten(map(str, missing))}); run the same command with `part`"
        )
