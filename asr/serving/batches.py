"""Recordings in the search: parts enter in turn while there is room, and go on together by one label."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

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
# steps between entries into a search that is going on: several recordings at once are encoded and merged faster
BETWEEN = 4
# pieces of long recordings leave a part of the room to short ones, and beside them take every eighth step
LONG_SHARE = 0.75
LONG_EVERY = 8


class Batches:
    """Recordings that wait or are searched; one thread uses it.

    A batch holds utterances with the same options. Pieces of long recordings have batches of their own,
    so that short recordings needn't take all their steps with them.

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
        self._groups = dict[tuple[SearchOptions, bool], RunningBatch]()  # by options, and is_long
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
        room = self._most - sum(group.seconds for group in self._groups.values())
        full = room < self._most
        entering = dict[tuple[SearchOptions, bool], list[JobPart]]()
        taken = 0.0
        while job := self._queue.next(lambda job: self._may_enter(job, entering)):
            part = job.ahead[0]
            if (full or taken) and part.seconds > min(room, self._entering) - taken:
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
            entering.setdefault(job.kind, []).append(part)
        for kind, parts in entering.items():
            group = self._groups.get(kind) or RunningBatch(self._searchers.find(kind[0]))
            self._groups[kind] = group
            self._guarded(group, lambda: group.add(parts), parts)  # noqa: B023 - called at once
        return bool(entering)

    def _may_enter(
        self, job: Job, entering: Mapping[tuple[SearchOptions, bool], Sequence[JobPart]]
    ) -> bool:
        """Whether a job's next part is ready, and its batch takes new ones."""
        group = self._groups.get(job.kind)
        if not job.is_ready() or (group and group.encoded and group.steps < BETWEEN):
            return False
        if not job.is_long:
            return True
        batches = *entering.items(), *((kind, x.encoded) for kind, x in self._groups.items())
        seconds = sum(p.seconds for (_, is_long), parts in batches if is_long for p in parts)
        return not seconds or seconds + job.ahead[0].seconds <= LONG_SHARE * self._most

    def step(self) -> bool:
        """Go on by one label in each batch; in those of long recordings now and then while there are others."""
        self._turn += 1
        self._groups = {kind: group for kind, group in self._groups.items() if group.encoded}
        only_long = all(is_long for _, is_long in self._groups)
        for (_, is_long), group in list(self._groups.items()):
            if is_long and not only_long and self._turn % LONG_EVERY:
                continue
            size, began = len(group.running), time.perf_counter()
            self._guarded(group, lambda: self._take(group.step()), ())  # noqa: B023
            self._stepped(size, time.perf_counter() - began)
        return bool(self._groups)

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
