"""Several processes that transcribe one list: workers take pieces of it, and this process collects their results.

The pieces depend on the list and the length of a batch alone. So whatever the number of processes,
and whichever of them die, each piece is searched in the same batches, and its results are the same.
This process imports no PyTorch.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from asr.audio import containers
from asr.errors import UserError, shorten
from asr.failures import Failure
from asr.logging import logger, show, shown_level
from asr.transcription.options import BATCH_SECONDS, WINDOW_SECONDS
from asr.transcription.recordings import Recording, cut

if TYPE_CHECKING:
    from asr.transcription.decoding import Decoding, ModelLoader

BATCHES = 3  # of a piece: with fewer, the search's last steps have few utterances
TRIES = 3  # processes that may die at a piece, or while they begin
GRACE = 5.0  # seconds that a process has to end


@dataclass(frozen=True)
class Workers:
    """Processes on one machine: on the CPU, whose threads they divide, or each on a GPU of its own."""

    count: int
    gpus: bool = False

    def pieces(
        self, recordings: Sequence[Recording], batch_seconds: float | None
    ) -> list[list[Recording]]:
        """Divide a list into pieces of a few batches, whose recordings are similar in length."""
        most = BATCHES * (batch_seconds or BATCH_SECONDS["cuda" if self.gpus else "cpu"])
        windows = cut(recordings, max(WINDOW_SECONDS, most))
        return [
            piece for one in windows for piece in cut(sorted(one, key=lambda r: -r.duration), most)
        ]


@dataclass
class _Member:
    """A process that works; piece: what it was given, by number."""

    number: int
    process: Any
    link: Connection
    ready: bool = False
    piece: int | None = None


def finished(
    loader: ModelLoader, pieces: Sequence[Sequence[Recording]], workers: Workers
) -> Iterator[tuple[Sequence[Recording], list[dict | Failure]]]:
    """Yield each piece with the results of its recordings, as soon as it is finished.

    loader   says how to decode; learns what computes
    raises   UserError that a process met, or if three died at the same piece; RuntimeError with the
             traceback of a process that failed
    """
    crew = _Crew(loader, pieces, workers)
    try:
        yield from crew.work()
    finally:
        crew.end()


class _Crew:
    def __init__(
        self, loader: ModelLoader, pieces: Sequence[Sequence[Recording]], workers: Workers
    ):
        self.loader, self.pieces, self.workers = loader, pieces, workers
        self.waiting = deque(range(len(pieces)))
        self.deaths: Counter[int | None] = Counter()  # by piece; None: before the first one
        self.members: list[_Member] = []

    def work(self) -> Iterator[tuple[Sequence[Recording], list[dict | Failure]]]:
        for number in range(min(self.workers.count, len(self.pieces))):
            self.start(number)
        left = len(self.pieces)
        while left:
            links = wait([member.link for member in self.members])
            for member in [member for member in self.members if member.link in links]:
                try:
                    kind, message = member.link.recv()
                except (EOFError, OSError):
                    self.bury(member)
                    continue
                if kind == "done" and member.piece is not None:
                    piece, member.piece, left = member.piece, None, left - 1
                    yield self.pieces[piece], message
                else:
                    self.note(member, kind, message)
            self.distribute()

    def start(self, number: int) -> None:
        """Start a process, which Ctrl-C doesn't reach: this one ends it."""
        ours, theirs = get_context("spawn").Pipe()
        recordings = [r for piece in self.pieces for r in piece] if number == 0 else []
        decoding = replace(self.loader.decoding, device="cuda" if self.workers.gpus else "cpu")
        given = (number, self.workers, decoding, recordings, containers.folder(), shown_level())
        process = get_context("spawn").Process(target=_work, args=(*given, theirs), daemon=True)
        resource_tracker.ensure_running()  # which process.start would do, and let SIGINT through
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self.members.append(_Member(number, process, ours))

    def note(self, member: _Member, kind: str, message: Any) -> None:
        if kind == "mistake":
            raise UserError(message)
        if kind == "fault":
            raise RuntimeError(f"process {member.number + 1} failed:\n{message}")
        member.ready = True
        self.loader.hardware, self.loader.device = message

    def distribute(self) -> None:
        """Give pieces to those that have none."""
        for member in self.members:
            if self.waiting and member.ready and member.piece is None:
                member.piece = self.waiting.popleft()
                with suppress(OSError):  # it has died, which its link tells next
                    member.link.send(self.pieces[member.piece])

    def bury(self, member: _Member) -> None:
        """Have the piece of a process that has died done by another."""
        self.members.remove(member)
        member.process.join()
        member.link.close()
        self.deaths[member.piece] += 1
        how, piece = _ending(member.process.exitcode), member.piece
        if self.deaths[piece] >= TRIES:
            names = "" if piece is None else shorten([r.id for r in self.pieces[piece]])
            when = f"while they transcribed the same recordings ({names})" if names else "early"
            raise UserError(
                f"{TRIES} processes died {when}, the last {how}; out of memory? Give fewer `processes`, "
                "or less `batch_seconds`; the same command continues what is finished"
            )
        if piece is not None:
            self.waiting.appendleft(piece)
        logger.warning(f"process {member.number + 1} died {how}; another takes over its work")
        self.distribute()
        if self.waiting:
            self.start(member.number)

    def end(self) -> None:
        for member in self.members:
            member.link.close()  # which ends one that waits
            if member.piece is not None or not member.ready:
                member.process.terminate()
        for member in self.members:
            member.process.join(GRACE)
            member.process.kill()
            member.process.join()


def _ending(status: int) -> str:
    with suppress(ValueError):
        return f"by {signal.Signals(-status).name}"
    return f"with status {status}"


def _work(
    number: int,
    workers: Workers,
    decoding: Decoding,
    recordings: Sequence[Recording],
    folder: str | None,
    level: int | None,
    link: Connection,
) -> None:
    """Transcribe pieces until the link is closed; only the first process reports how it goes."""
    from tqdm import tqdm

    if workers.gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = _own_gpu(number)
    tqdm.set_lock(threading.RLock())  # its own is a semaphore, which a sudden end leaves behind
    show(level if number == 0 or level is None else max(level, logging.ERROR))
    try:
        with containers.decoding(folder) if folder else nullcontext():
            _serve(workers, decoding, recordings, link)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # the collecting process has ended
    except UserError as error:
        link.send(("mistake", error.as_option()))
    except Exception:  # noqa: BLE001 - told by the collecting process
        link.send(("fault", traceback.format_exc()))


def _serve(
    workers: Workers, decoding: Decoding, recordings: Sequence[Recording], link: Connection
) -> None:
    import torch

    from asr.device import hardware
    from asr.transcription.decoding import ModelLoader
    from asr.transcription.pipeline import finished as transcribed
    from asr.transcription.searcher import Searcher

    torch.set_num_threads(max(1, torch.get_num_threads() // workers.count))
    with ModelLoader(decoding, recordings, workers.count) as loader:
        recognizer = loader()
        searcher = Searcher(recognizer, decoding.options, decoding.precision)
        device = next(recognizer.parameters()).device
        if logger.level == logging.ERROR:
            show(logging.WARNING)  # what concerns a recording
        link.send(("ready", (hardware(device, workers.count), device.type)))
        while True:
            piece = link.recv()
            how = decoding.options, decoding.batch_seconds, decoding.precision
            found = dict(
                transcribed(recognizer, piece, *how, times=decoding.times, searcher=searcher)
            )
            results = [found[recording] for recording in piece]
            link.send(("done", [r if isinstance(r, Failure) else r.as_json() for r in results]))


def _own_gpu(number: int) -> str:
    """Name one of the GPUs that this machine shows."""
    shown = os.environ.get("CUDA_VISIBLE_DEVICES")
    return shown.split(",")[number].strip() if shown else str(number)


def count_gpus(wanted: str) -> int:
    """Check a number of GPUs; "all" counts them.

    raises   UserError if there are fewer, or none
    """
    import torch

    there = torch.cuda.device_count()
    number = there if wanted == "all" else int(wanted)
    if not there or number > there:
        raise UserError(
            f"got {wanted}, but there are {there} GPUs that can be used", argument="gpus"
        )
    return number
