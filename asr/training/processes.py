"""Several processes that train one model: each takes its share of a step's batches, the gradients are added.

On a CPU processes of one thread each do the work of a small model faster than the threads of one process, which
wait for each other at every operation; of GPUs each has a process. `run` starts them on one machine; `torchrun` starts
them on one or more, and `joined` takes their places from it.
"""

import contextlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from asr.data.encoding import cores
from asr.errors import UserError
from asr.files import write_text
from asr.say import say
from asr.training.device import choose, compute_exactly
from asr.training.settings import LoopSettings
from asr.training.signals import ENDING, SAVING, Stopped

PATIENCE = timedelta(days=7)  # of processes that wait while the first prepares the data, or the machine sleeps
GRACE = 10.0  # seconds that the others have to end by themselves when one has failed
FAULT, MISTAKE = "fault-", "mistake-"  # files in which a process says why it failed

T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """This process' place among those of the run: `rank` in 0 .. size - 1; `local` among those of its machine."""

    rank: int = 0
    size: int = 1
    local: int = 0

    @property
    def leads(self) -> bool:
        """True for the one process that saves and speaks."""
        return self.rank == 0

    def add(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over the processes."""
        if self.size > 1:
            dist.all_reduce(tensor)

    def share(self, make: Callable[[], T]) -> T:
        """Call `make` in the first process; all get what it returns.

        raises   UserError in the first process if `make` does; the others end, for it is told once
        """
        if self.size == 1:
            return make()
        made, mistake = None, None
        try:
            made = make() if self.leads else None
        except UserError as error:
            mistake = error
        shared = [(made, mistake is not None)]
        dist.broadcast_object_list(shared)
        made, failed = shared[0]
        if mistake:
            raise mistake
        return made if not failed else sys.exit(2)

    def device(self, device: torch.device) -> torch.device:
        """Choose this process' own of several GPUs, and compute there as the process that chose the device does.

        raises   UserError if there are fewer GPUs than processes on this machine
        """
        if device.type != "cuda":
            return device
        if self.local >= (there := torch.cuda.device_count()):
            raise UserError(f"{there} GPUs for {self.local + 1} processes or more on this machine; start one a GPU")
        torch.cuda.set_device(self.local)
        compute_exactly()
        return torch.device("cuda", self.local)


def count(wanted: int | None, batches: int, device: torch.device) -> int:
    """How many processes to start: on a CPU those wanted, else one a core; of GPUs those wanted, else one.

    batches  of an optimiser step: no more processes than these can work
    raises   UserError if there are fewer GPUs or batches than processes wanted on GPUs
    """
    if device.type == "cpu":
        return min(wanted or cores(), batches)
    wanted, there = wanted or 1, torch.cuda.device_count()
    if wanted > there:
        raise UserError(f"training.processes: got {wanted}, but there are {there} GPUs; ask for so many or fewer")
    check(wanted, batches)
    return wanted


def employable(settings: LoopSettings) -> int:
    """How many of this machine's GPUs can share an optimiser step; says so if there are more.

    returns  0 where no GPU works, and where the settings or torchrun say where to compute
    """
    if launched() or settings.device == "cpu" or settings.processes:
        return 0
    device, _ = choose()
    there, batches = torch.cuda.device_count() if device.type == "cuda" else 0, settings.accumulate
    if there > batches:
        say(
            f"{there} GPUs, of which {batches} train, one a batch of a step; training.accumulate={there} employs all "
            "(and, for steps as long as before, a smaller data.batch_seconds)"
        )
    return min(there, batches)


def check(size: int, batches: int) -> None:
    """Refuse more processes than there are batches in an optimiser step."""
    if size > batches:
        raise UserError(
            f"training.accumulate: got {batches} batches an optimiser step for {size} processes, which share them; "
            f"give training.accumulate={size} and, for steps as long as before, a smaller data.batch_seconds"
        )


def launched() -> bool:
    """Tell whether torchrun has started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ and "LOCAL_RANK" in os.environ


@contextlib.contextmanager
def joined(batches: int) -> Iterator[Group]:
    """Join the processes that torchrun has started, on one machine or several, for as long as it lasts."""
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    check(size, batches)
    dist.init_process_group(_backend(), timeout=PATIENCE)
    yield Group(rank, size, local)
    dist.barrier()
    dist.destroy_process_group()  # not after a failure: NCCL would wait here for the others, who wait for this one


def run(task: Callable[..., None], size: int, *arguments: object) -> None:
    """Call task(group, *arguments) in `size` processes, this one among them if it is the only one.

    raises   UserError, whichever process met it; Stopped if they were asked to end, and have
    """
    if size == 1:
        return task(Group(), *arguments)
    threads = max(1, torch.get_num_threads() // size)
    with tempfile.TemporaryDirectory() as folder:
        given = (size, threads, Path(folder), task, arguments)
        context = mp.start_processes(_member, given, nprocs=size, join=False, start_method="spawn")
        ending: list[int] = []
        try:
            with _passing_on(context.processes, ending):
                while not context.join(timeout=3600, grace_period=GRACE):
                    pass
        except (mp.ProcessExitedException, mp.ProcessRaisedException) as error:
            _explain(error, Path(folder), [process.exitcode for process in context.processes], ending)


def _member(rank: int, size: int, threads: int, folder: Path, task: Callable[..., None], arguments: tuple) -> None:
    status = 0
    try:
        torch.set_num_threads(threads)
        meeting = dist.FileStore(str(folder / "meeting"), size)
        dist.init_process_group(_backend(), store=meeting, rank=rank, world_size=size, timeout=PATIENCE)
        task(Group(rank, size, rank), *arguments)
        dist.barrier()
        dist.destroy_process_group()  # not after a failure: NCCL would wait here for the others, who wait for this one
    except KeyboardInterrupt as stopped:  # torch.multiprocessing takes it for success
        status = getattr(stopped, "status", 128 + signal.SIGINT)
    except UserError as error:
        write_text(folder / f"{MISTAKE}{rank}", str(error))
        status = 2
    except BaseException:  # noqa: BLE001 - told by the parent
        write_text(folder / f"{FAULT}{rank}", traceback.format_exc())
        status = 1
    if status:  # out here nothing holds the data workers any more, whose end the exit waits for
        sys.exit(status)


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"


@contextlib.contextmanager
def _passing_on(processes: Sequence, ending: list[int]) -> Iterator[None]:
    """Pass signals that ask to save or to end on to the processes; those to end are put on the list."""

    def pass_on(number: int, _frame: object) -> None:
        ending.extend({number} & set(ENDING))
        for process in processes:
            if process.is_alive():
                os.kill(process.pid, number)

    before = {number: signal.signal(number, pass_on) for number in (*SAVING, *ENDING)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _explain(error: mp.ProcessExitedException, folder: Path, statuses: list[int], ending: list[int]) -> None:
    """Say what made the run fail: a mistake, else what ended the first process; then the others fail or are killed."""
    mistakes, faults = (sorted(folder.glob(f"{kind}*"), key=_written) for kind in (MISTAKE, FAULT))
    first, of = error.error_index, len(statuses)
    if mistakes:
        raise UserError(mistakes[0].read_text(encoding="utf-8"))
    if statuses[first] - 128 in ENDING:
        raise Stopped(statuses[first] - 128)
    if statuses[first] == -9:  # SIGKILL, which Windows doesn't know
        sys.exit(f"training process {first} of {of} was killed; out of memory? The same command continues the run")
    if faults:
        rank = faults[0].name.removeprefix(FAULT)
        sys.exit(f"training process {rank} of {of} failed:\n{faults[0].read_text(encoding='utf-8')}")
    if ending:  # before the process had its handlers
        raise Stopped(ending[0])
    raise error


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns
