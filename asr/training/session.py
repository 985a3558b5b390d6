"""A training's session: the signals that a process hears, and the run's folder with all that is written there."""

import contextlib
import json
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from asr.errors import UserError
from asr.files import append_text
from asr.logging import logger
from asr.training import memory
from asr.training.checkpoint import Checkpoints, Validated
from asr.training.distributed.group import Group
from asr.training.monitor import Monitor
from asr.training.settings import LoopSettings
from asr.training.signals import Signals, Stopped, Watch
from asr.training.totals import Requests

STATES = "checkpoints"  # folder of training states and validated weights, in a run's folder


@dataclass
class Progress:
    """How far a run has come.

    epoch      whole epochs; done: steps of the running one
    step       optimizer steps in all
    validated  the epoch that was validated last
    seconds    that it took, over all its sessions
    """

    epoch: int = 0
    done: int = 0
    step: int = 0
    validated: int = 0
    seconds: float = 0.0


class Session:
    """What one process has of a run from its start, or its continuation, to its end.

    out    the run's folder
    sums   names of the loss's sums; unit: of amounts of data
    group  the processes of the run, of which the first writes
    """

    def __init__(
        self, out: Path, sums: Sequence[str], unit: str, settings: LoopSettings, group: Group
    ):
        self.out, self.settings, self.group = out, settings, group
        self.signals, self.saved_at = Signals(), time.monotonic()
        self.monitor = Monitor(out, sums, unit, settings.log_every, speaks=group.leads)
        self.checkpoints = Checkpoints(out / STATES, settings.keep, self.monitor.log)
        self.validated = Validated(out / STATES, settings.average, settings.best_by == "accuracy")
        self.watch = Watch(self.signals, self.warn)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Within it, hear signals and watch the steps; at its end draw what hasn't been drawn.

        raises   UserError as within, or for memory that is out; it names the newest state
        """
        draw = True
        try:
            with memory.explain_oom(), self.signals, self.watch:
                yield
        except Stopped as stopped:
            draw = stopped.number == signal.SIGINT  # a person's; who sends SIGTERM may not wait
            raise
        except UserError as error:
            raise UserError(f"{error}; {self.kept()}") from None
        finally:
            self.monitor.close(draw)

    def requests(self, step: int) -> Requests:
        """What this process asks for in a step: what it has heard, and, if it leads, a state when one is due."""
        due = time.monotonic() - self.saved_at > 60 * self.settings.save_minutes
        due = due or self.settings.save_steps is not None and step % self.settings.save_steps == 0
        save, self.signals.save = bool(self.signals.save), 0
        end = self.signals.end
        return Requests(
            save or (due and self.group.leads), end == signal.SIGINT, end == signal.SIGTERM
        )

    def save(self, progress: Progress, state: dict) -> None:
        """Write a training state, if this process leads."""
        now = time.monotonic()
        progress.seconds += now - self.saved_at
        self.saved_at = now
        if self.group.leads:
            own = {"monitor": json.dumps(self.monitor.state), "validated": self.validated.state}
            self.checkpoints.save(state | own | {"progress": vars(progress).copy()})

    def load(self) -> dict | None:
        """Read the newest good state; None if there is none.

        raises   UserError if another process finds another one, as on machines that share no disk
        """
        state = self.checkpoints.load()
        found = state["progress"] if state else None
        if found != (firsts := self.group.share(lambda: found)):
            raise UserError(
                f"{self.out}: process {self.group.rank} finds {_describe(found)} there, the first {_describe(firsts)}; "
                "all machines need the same folder, on a shared disk"
            )
        return state

    def restore(self, state: dict) -> None:
        """Take up running metrics and validated weights as a state has them."""
        self.monitor.state = json.loads(state["monitor"])
        if "validated" in state:
            self.validated.state = state["validated"]
        else:  # of an earlier version, which kept the list in a file
            self.validated.adopt()

    def kept(self) -> str:
        """What a training that failed leaves."""
        newest = next(iter(self.checkpoints.paths()), None)
        return (
            f"the same command goes on from {newest}"
            if newest
            else "there is no training state yet"
        )

    def intact(self) -> tuple[list[int], list[int]]:
        """The best and the last validated epochs, of those whose weights are still what was written."""
        self.validated.drop_lost(self.monitor.log)
        if not self.validated.table:
            self.monitor.log(
                "no validated weights are left: those that training ended with are taken"
            )
        return self.validated.best, self.validated.last

    def warn(self, message: str) -> None:
        """Log what any process has to say, which need not lead."""
        who = f"process {self.group.rank} of {self.group.size}: " if self.group.size > 1 else ""
        logger.info(who + message)
        with contextlib.suppress(UserError):
            append_text(
                self.out / "train.log",
                f"{datetime.now().isoformat(' ', 'seconds')} {who}{message}\n",
            )


def _describe(progress: dict | None) -> str:
    return f"the state of step {progress['step']}" if progress else "no training state"
