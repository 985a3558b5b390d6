"""The planned batches (asr/data/bucketing.py), read ahead by worker processes."""

import contextlib
import math
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from multiprocessing.util import Finalize

from torch.utils.data import DataLoader, Dataset

from asr.data.batches import Batch
from asr.data.dataset import SpeechDataset
from asr.errors import UserError

SHM, SHM_SHARE = "/dev/shm", 0.8  # where workers leave batches, and what they may take of it
# what a terminal, a scheduler or the system asks a training with
TRAINING_SIGNALS = {
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)
}


def read_ahead_limits(workers: int, size: float) -> tuple[int, int | None]:
    """How many workers can read, and batches that each reads ahead, in the shared memory that is free.

    A container has 64 MB unless told otherwise, and where it is full, the system kills a worker.

    size  bytes of a batch
    """
    if not workers:
        return 0, None
    free = shutil.disk_usage(SHM).free if os.path.isdir(SHM) else math.inf
    fit = SHM_SHARE * free / max(size, 1)
    return max(1, int(min(workers, fit))), 2 if 2 * workers <= fit else 1


def load(
    dataset: SpeechDataset,
    batches: Iterable[Sequence[int]],
    workers: int,
    pin: bool = False,
    size: float = 0.0,
) -> Iterator[Batch]:
    """Yield the planned batches, read ahead by worker processes; their number changes nothing but the speed.

    pin      in memory from which a GPU can fetch them by itself
    size     of the largest batch, bytes, about
    raises   UserError if a recording has become unreadable
    """
    workers, ahead = read_ahead_limits(workers, size)
    if workers:
        _end_with_the_trainer()
    with _signals_held():
        stream = iter(
            DataLoader(
                _Telling(dataset),
                batch_size=None,
                sampler=batches,
                num_workers=workers,
                pin_memory=pin,
                prefetch_factor=ahead,
                worker_init_fn=_obey_the_trainer,
            )
        )
    try:
        for batch in stream:
            if isinstance(batch, UserError):
                raise UserError(*batch.args)
            yield batch
    finally:
        del stream  # an error's traceback holds this frame, and would with it hold the workers


@lru_cache(maxsize=1)
def _end_with_the_trainer() -> None:
    """See to it that this process, when it ends, ends its workers: multiprocessing asks by SIGTERM, and waits."""

    def end() -> None:
        for child in filter(lambda child: child.daemon, multiprocessing.active_children()):
            child.kill()

    Finalize(None, end, exitpriority=0)


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let signals wait while workers start, who inherit that: there is no moment in which one could end them.

    A mask holds for its own thread only, and a signal that another thread takes runs the handler in
    the main one. A handler that raises there would leave the loader half made.
    """
    masks = hasattr(signal, "pthread_sigmask")  # not on Windows
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TRAINING_SIGNALS) if masks else set()
    held: list[int] = []
    handlers = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in TRAINING_SIGNALS:
                if signal.getsignal(number) is not None:  # else another language's, and lost
                    handlers[number] = signal.signal(number, lambda number, _: held.append(number))
        yield
    finally:
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in held:
            signal.raise_signal(number)


def _obey_the_trainer(_worker: int) -> None:
    """Leave a terminal's or a scheduler's signals to the process that trains: it ends its workers when it has saved."""
    for number in TRAINING_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class _Telling(Dataset):
    """Hands a UserError back as a value, for DataLoader would wrap it into its worker's traceback."""

    def __init__(self, dataset: SpeechDataset):
        self.dataset = dataset

    def __getitem__(self, indices: Sequence[int]) -> Batch | UserError:
        try:
            return self.dataset[indices]
        except UserError as error:
            return error
