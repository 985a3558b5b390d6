"""Launch the processes that train one model: each takes its share of a step's batches, the gradients are added.

On a CPU processes of one thread each do the work of a small model faster than the threads of one
process, which wait for each other at every operation; of GPUs each has a process. `spawn` starts
them on one machine; `torchrun` starts them on one or more, and `joined` takes their places from it.
"""

import atexit
import contextlib
import gc
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tqdm import tqdm

from asr.device import choose
from asr.errors import UserError
from asr.files import write_text
from asr.logging import logger, show, shown_level
from asr.provenance import cores
from asr.training.distributed.group import Group, RaisedElsewhere
from asr.training.settings import LoopSettings
from asr.training.signals import ENDING, SAVING, Stopped

PATIENCE = timedelta(
    days=7
)  # of processes that wait while the first prepares the data, or the machine sleeps
STEP_PATIENCE = timedelta(minutes=30)  # of GPUs, which meet in every step
FEW, PER_CORE = (
    64,
    4,
)  # processes that may be wanted on a CPU: this number, or this number for each core
GRACE = 10.0  # seconds that the others have to end by themselves when one has failed
FAULT, MISTAKE = "fault-", "mistake-"  # files in which a process says why it failed
TASK = "task"  # file of what the processes are to do, and with what


def count(wanted: int | None, batches: int, device: torch.device) -> int:
    """How many processes to start: on a CPU those wanted, else one a core; of GPUs those wanted, else one.

    batches  of an optimizer step: no more processes than these can work
    raises   UserError if there are fewer GPUs or batches than processes wanted on GPUs, or far
             fewer cores
    """
    if device.type == "cpu":
        if (wanted or 0) > (most := max(FEW, PER_CORE * cores())):
            raise UserError(
                f"training.processes: got {wanted}, expected at most {most} on {cores()} cores, for each holds a model"
            )
        return min(wanted or cores(), batches)
    wanted, there = wanted or 1, torch.cuda.device_count()
    if wanted > there:
        raise UserError(
            f"training.processes: got {wanted}, but there are {there} GPUs; ask for that number or fewer"
        )
    check(wanted, batches)
    return wanted


def threads_each(size: int, batches: int, device: torch.device) -> int:
    """How many threads each of `size` processes computes with.

    Sums depend on the number of threads in their last bits. So on a CPU it doesn't depend on that
    of the processes, but on the batches of an optimizer step: as many processes as can share it
    have all cores.
    """
    return max(1, torch.get_num_threads() // (batches if device.type == "cpu" else size))


@contextlib.contextmanager
def computing_with(threads: int) -> Iterator[None]:
    """Compute with this number of threads as long as it lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def employable(settings: LoopSettings) -> int:
    """How many of this machine's GPUs can share an optimizer step; says so if there are more.

    returns  0 where no GPU works, and where the settings or torchrun say where to compute
    """
    if launched() or settings.device == "cpu" or settings.processes:
        return 0
    device, _ = choose(apart=True)
    there, batches = torch.cuda.device_count() if device.type == "cuda" else 0, settings.accumulate
    if there > batches:
        logger.info(
            f"{there} GPUs, of which {batches} train, one a batch of a step; training.accumulate={there} employs all "
            "(and, for steps as long as before, a smaller data.batch_seconds)"
        )
    return min(there, batches)


def check(size: int, batches: int) -> None:
    """Refuse more processes than there are batches in an optimizer step."""
    if size > batches:
        raise UserError(
            f"training.accumulate: got {batches} batches an optimizer step for {size} processes, which share them; "
            f"give training.accumulate={size} and, for steps as long as before, a smaller data.batch_seconds"
        )


def launched() -> bool:
    """Tell whether torchrun has started this process."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ and "LOCAL_RANK" in os.environ


@contextlib.contextmanager
def joined(batches: int) -> Iterator[Group]:
    """Join the processes that torchrun has started, on one machine or several, for as long as it lasts.

    batches  of an optimizer step
    raises   UserError in the first process if there are more processes than batches
    """
    rank, size, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    dist.init_process_group(_backend(), timeout=PATIENCE)
    limit_steps()
    group = Group(rank, size, local)
    group.share(lambda: check(size, batches))
    yield group
    dist.barrier()
    dist.destroy_process_group()  # not after a failure: NCCL would wait here for the others, who wait for this one


class ProcessFailed(RuntimeError):
    """A process of the training was killed, or met an error that is no user's mistake; the text tells which."""


def spawn(task: Callable[..., None], size: int, *arguments: object, threads: int = 1) -> None:
    """Call task(group, *arguments) in `size` new processes of `threads` each.

    The arguments may be large, such as the table of a corpus, and go through a file. Through the
    pipe that `multiprocessing` fills while a process starts, they would have this process wait
    forever for one that was killed before it had read them.

    raises   UserError, whichever process met it; Stopped if they were asked to end, and have;
             ProcessFailed
    """
    with tempfile.TemporaryDirectory() as folder:
        with open(Path(folder) / TASK, "wb") as file:
            pickle.dump((task, arguments), file)
        given = (size, threads, shown_level(), Path(folder))
        context = mp.start_processes(_member, given, nprocs=size, join=False, start_method="spawn")
        ending: list[int] = []
        try:
            with _passing_on(context.processes, ending):
                while not context.join(timeout=3600, grace_period=GRACE):
                    pass
        except (mp.ProcessExitedException, mp.ProcessRaisedException) as error:
            _explain(
                error, Path(folder), [process.exitcode for process in context.processes], ending
            )


def _member(rank: int, size: int, threads: int, level: int | None, folder: Path) -> None:
    status = 0
    show(level)
    atexit.register(gc.freeze)  # see asr/cli/train.py
    try:
        with open(folder / TASK, "rb") as file:
            task, arguments = pickle.load(file)
        torch.set_num_threads(threads)
        tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a sudden end leaves behind
        meeting = dist.FileStore(str(folder / "meeting"), size)
        dist.init_process_group(
            _backend(), store=meeting, rank=rank, world_size=size, timeout=PATIENCE
        )
        limit_steps()
        task(Group(rank, size, rank), *arguments)
        dist.barrier()
        dist.destroy_process_group()  # not after a failure: NCCL would wait here for the others, who wait for this one
    except KeyboardInterrupt as stopped:  # torch.multiprocessing takes it for success
        status = getattr(stopped, "status", 128 + signal.SIGINT)
    except RaisedElsewhere:
        status = 2
    except UserError as error:
        write_text(folder / f"{MISTAKE}{rank}", str(error))
        status = 2
    except BaseException:  # noqa: BLE001 - told by the parent
        write_text(folder / f"{FAULT}{rank}", traceback.format_exc())
        status = 1
    if status:  # out here nothing holds the data workers any more, whose end the exit waits for
        sys.exit(status)


def limit_steps() -> None:
    """Have processes wait for each other no longer than STEP_PATIENCE where they meet on GPUs.

    What one prepares for all goes by way of the CPU, where they are patient.
    """
    if "nccl" in _backend():
        world: Any = dist.group.WORLD
        world._get_backend(torch.device("cuda"))._set_default_timeout(STEP_PATIENCE)


def _backend() -> str:
    return (
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
    )


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


def _explain(
    error: mp.ProcessExitedException | mp.ProcessRaisedException,
    folder: Path,
    statuses: list[int],
    ending: list[int],
) -> None:
    """Say what made the run fail: a mistake, else what ended the first process; then the others fail or are killed."""
    mistakes, faults = (sorted(folder.glob(f"{kind}*"), key=_written) for kind in (MISTAKE, FAULT))
    first, of = error.error_index, len(statuses)
    if mistakes:
        raise UserError(mistakes[0].read_text(encoding="utf-8"))
    stops = [status - 128 for status in statuses if status is not None and status - 128 in ENDING]
    if stops and (ending or statuses[first] - 128 in stops):
        raise Stopped(stops[0])
    if statuses[first] == -9:  # SIGKILL, which Windows doesn't know
        raise ProcessFailed(
            f"training process {first} of {of} was killed; out of memory? The same command continues the run"
        )
    if faults:
        rank = faults[0].name.removeprefix(FAULT)
        raise ProcessFailed(
            f"training process {rank} of {of} failed:\n{faults[0].read_text(encoding='utf-8')}"
        )
    if ending:  # before the process had its handlers
        raise Stopped(ending[0])
    raise error


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns
