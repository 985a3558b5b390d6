"""Recordings in the search: parts enter in turn while there is room, and each batch goes on by one label."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from asr.errors import UserError
from asr.logging import logger
from asr.memory import is_oom
from asr.serving.fairness import FairQueue
from asr.serving.jobs import Job, JobPart, RunningBatch
from asr.serving.readers import Readers
from asr.serving.searchers import Searchers
from asr.transcript import Transcript
from asr.transcription.options import SearchOptions
from asr.transcription.pipeline import TOO_LONG
from asr.transcription.searcher import Running, Searcher

# seconds that are encoded at once, so that others aren't kept waiting
ENTERING = {"cpu": 24.0, "cuda": 500.0}
# steps of a batch between entries into it: several recordings at once are encoded and merged faster
BETWEEN = 4
# of the room, what long recordings have at most; short ones have the rest for themselves
LONG_SHARE = 0.75
# while short recordings are searched, long ones go on at one step of so many
LONG_EVERY = 8

Kind = tuple[SearchOptions, bool]  # of a batch: its options, and whether its recordings are long


@dataclass
class _Room:
    """Seconds of audio that may be searched together, and those that are.

    Long recordings have their share at most. While one of them waits for room, short ones enter only in
    theirs, so neither keeps the other waiting for long.

    is_awaited   whether a long one waits
    """

    most: float
    short: float
    long: float
    is_awaited: bool = False

    def take(self, seconds: float, is_long: bool) -> bool:
        """Take room for a part, if there is any; a part that is too long for it may be alone."""
        searched = self.short + self.long
        fits = not searched or searched + seconds <= self.most
        if is_long and self.long:
            fits &= self.long + seconds <= LONG_SHARE * self.most
        if not is_long and self.is_awaited:
            fits &= self.short + seconds <= (1 - LONG_SHARE) * self.most
        if fits:
            self.short, self.long = (
                self.short + seconds * (not is_long),
                self.long + seconds * is_long,
            )
        elif is_long:
            # the share of short ones would never leave enough for a longer part
            self.is_awaited = seconds <= LONG_SHARE * self.most
        return fits


class Batches:
    """Recordings that wait or are searched; one thread uses it.

    A batch holds utterances with the same options. Long recordings, which could fill the search alone,
    have batches of their own, so that short ones needn't take all their steps with them.

    most      seconds that are searched together
    stepped   is called after each step of the search, with the number of utterances that it had and
              the seconds that it took
    """

    def __init__(
        self,
        searchers: Searchers,
        readers: Readers,
        most: float,
        stepped: Callable[[int, float], None],
    ):
        self._searchers, self._readers, self._most = searchers, readers, most
        self._entering, self._stepped = ENTERING[searchers.device.type], stepped
        self._queue = FairQueue[Job]()
        self._groups = dict[Kind, RunningBatch]()
        self._turn = 0

    def __len__(self) -> int:
        """Count the utterances in the search; any thread may."""
        return sum(len(group.running) for group in list(self._groups.values()))

    @property
    def is_searching(self) -> bool:
        """Whether anything is in the search."""
        return bool(self._groups)

    def begin(self, job: Job) -> None:
        """Let a recording that is cut wait for its turn."""
        if job.future.done():
            return
        if job.pieces and not job.pieces.parts:  # nothing is said in it
            job.settle(job.pieces.joined([]))
            return
        self._queue.add(job.client, job)
        self._readers.read_ahead(job)

    def drop(self, job: Job) -> None:
        """Forget a job that is done, failed or canceled."""
        self._queue.remove(job.client, job)
        for part in job.ahead:
            part.waveform.cancel()
        job.ahead.clear()
        job.unread.clear()
        for group in self._groups.values():
            group.drop(job)

    def clear(self) -> None:
        """Leave what is in the search."""
        self._groups.clear()

    def admit(self) -> bool:
        """Let parts enter the search, in their turn, while there is room."""
        room, taken = self._room(), 0.0
        entering = dict[Kind, list[JobPart]]()
        while job := self._queue.next(lambda job: self._may_enter(job, room)):
            part, is_long = job.ahead[0], self._is_long(job)
            if taken and taken + part.seconds > self._entering:
                break
            if not room.take(part.seconds, is_long):
                if is_long and room.is_awaited:
                    continue  # short ones may enter, in their share
                break
            self._queue.charge(job.client, job, part.seconds)
            job.ahead.popleft()
            self._readers.read_ahead(job)
            waveform = part.waveform.result()
            if isinstance(waveform, UserError):
                job.settle(waveform)
                self.drop(job)
                continue
            taken += part.seconds
            entering.setdefault((job.options, is_long), []).append(part)
        for kind, parts in entering.items():
            group = self._groups.get(kind) or RunningBatch(self._searchers.find(kind[0]))
            self._groups[kind] = group
            self._guarded(group, lambda: group.add(parts), parts)  # noqa: B023 - called at once
        return bool(entering)

    def step(self) -> bool:
        """Go on by one label in each batch; in those of long recordings every few steps while there are others."""
        self._turn += 1
        self._groups = {kind: group for kind, group in self._groups.items() if group.encoded}
        only_long = all(is_long for _, is_long in self._groups)
        for (_, is_long), group in list(self._groups.items()):
            if is_long and not only_long and group.running.by_label and self._turn % LONG_EVERY:
                continue
            size, began = len(group.running), time.perf_counter()
            self._guarded(group, lambda: self._take(group.step()), ())  # noqa: B023
            self._stepped(size, time.perf_counter() - began)
        return bool(self._groups)

    def _is_long(self, job: Job) -> bool:
        """Whether a recording could fill the search alone."""
        return job.recording.duration > self._most

    def _may_enter(self, job: Job, room: _Room) -> bool:
        """Whether a job's next part is ready, and may be added to its batch now."""
        is_long = self._is_long(job)
        group = self._groups.get((job.options, is_long))
        waits = (room.is_awaited and is_long) or (group and group.encoded and group.steps < BETWEEN)
        return job.is_ready() and not waits

    def _room(self) -> _Room:
        short, long = (
            sum(group.seconds for (_, is_long), group in self._groups.items() if is_long == which)
            for which in (False, True)
        )
        return _Room(self._most, short, long)

    def _guarded(
        self, group: RunningBatch, work: Callable[[], None], new: Sequence[JobPart]
    ) -> None:
        """Do something with a group; if it fails, search its parts one by one, so that one fault is one request's."""
        try:
            work()
        except Exception as error:
            parts = [*dict.fromkeys([*group.encoded, *new])]
            if not is_oom(error):
                logger.exception("a batch failed; its recordings are searched one by one")
            group.encoded, group.running = {}, Running(group.searcher, prompt=True)
            for part in parts:
                self._search_alone(part, group.searcher)

    def _search_alone(self, part: JobPart, searcher: Searcher) -> None:
        if part.job.future.done():
            return
        group = RunningBatch(searcher)
        try:
            group.add([part])
            while group.encoded:
                self._take(group.step())
        except Exception as error:
            if is_oom(error):
                error = UserError(TOO_LONG.format(part.seconds))
            part.job.settle(error)

    def _take(self, found: Sequence[tuple[JobPart, Transcript]]) -> None:
        """Give results to their jobs."""
        for part, result in found:
            job = part.job
            try:
                if not job.future.done() and (whole := job.add(part.recording, result)):
                    job.settle(whole)
            except Exception as error:  # of its `progress`, or of joining: the other results stay
                logger.exception("a result could not be handed over")
                job.settle(error)
