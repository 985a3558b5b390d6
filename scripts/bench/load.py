"""How busy others keep the machine's cores while something is timed, from Linux's /proc."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS_HZ = os.sysconf("SC_CLK_TCK")  # /proc counts time in these


@dataclass(frozen=True)
class Load:
    """Cores used by other processes, and cores that the host took away (steal), on average over a time."""

    foreign: float
    steal: float

    @property
    def total(self) -> float:
        """Cores that were not there for what was timed."""
        return self.foreign + self.steal


@dataclass(frozen=True)
class Mark:
    """Seconds until a moment: of the clock, of all cores' work, of steal, and of the work of own processes."""

    clock: float
    busy: float
    steal: float
    own: float

    @classmethod
    def now(cls, pids: Iterable[int]) -> "Mark":
        """Read the counters; pids are the processes that are no foreign load."""
        user, nice, system, _, _, irq, softirq, steal, *_ = _fields(Path("/proc/stat"), 1)
        own = sum(sum(_fields(Path(f"/proc/{pid}/stat"), 13)[:2]) for pid in pids)
        busy = user + nice + system + irq + softirq
        return cls(time.perf_counter(), busy / TICKS_HZ, steal / TICKS_HZ, own / TICKS_HZ)

    def until(self, later: "Mark") -> Load:
        """The load between two moments."""
        wall = max(later.clock - self.clock, 1e-3)
        foreign = (later.busy - self.busy) - (later.own - self.own)
        return Load(max(0.0, foreign / wall), (later.steal - self.steal) / wall)


def _fields(path: Path, first: int) -> list[int]:
    """Read the numbers of a file's first line from a field on; the process's name, field 1, may contain spaces."""
    line = path.read_text().split("\n", 1)[0]
    start, _, rest = line.rpartition(") ")
    fields = [start, "", *rest.split()] if start else line.split()
    return [int(field) for field in fields[first:]]
