"""Recordings on their way to the search: a few threads read them ahead, one cuts long ones into pieces.

Cutting takes turns after each block: a recording of hours holds up no shorter one, of the same client or of
another.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import soundfile

from asr.serving.fairness import FairThreads
from asr.serving.jobs import Job, JobPart
from asr.serving.searchers import Searchers
from asr.transcription.long import Cutting, cut_up
from asr.transcription.pipeline import load_waveform
from asr.transcription.recordings import Recording

READERS = {"cpu": 2, "cuda": 8}  # threads
AHEAD = 2  # pieces of a recording that are read before they are searched


class Readers:
    """Threads that read and cut recordings.

    prepared   is called with a job whose recording is cut, in one of the threads
    wake       is called whenever something has been read
    """

    def __init__(
        self, searchers: Searchers, prepared: Callable[[Job], None], wake: Callable[[], None]
    ):
        self._searchers, self._prepared, self._wake = searchers, prepared, wake
        self._recognizer = searchers.recognizer
        self._pool = ThreadPoolExecutor(READERS[searchers.device.type], "asr-reader")
        self._cutter = FairThreads(1, "asr-cutter")
        self._folder = tempfile.TemporaryDirectory(prefix="asr-engine-")

    def prepare(self, job: Job) -> None:
        """Cut a recording, if it is long, and make its searcher.

        raises   RuntimeError if they were closed
        """
        if self._cutting(job).is_long(job.recording):
            self._cutter.begin(job.client, self._preparing(job))
        else:
            self._pool.submit(list, self._preparing(job))

    def read_ahead(self, job: Job) -> None:
        """Begin to read the next pieces of a job."""
        while job.unread and len(job.ahead) < AHEAD:
            recording = job.unread.popleft()
            if job.waveform is None:
                waveform = self._pool.submit(load_waveform, recording, self._recognizer)
            else:
                waveform = Future()
                waveform.set_result(job.waveform)
            job.ahead.append(JobPart(job, recording, waveform))
            waveform.add_done_callback(lambda _: self._wake())

    def close(self) -> None:
        """Leave what isn't done, and remove the files that were made of samples."""
        self._cutter.close()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._folder.cleanup()

    def _preparing(self, job: Job) -> Iterator[float]:
        """Prepare a job; yield the seconds of each block that is read."""
        try:
            for seconds in self._steps(job):
                yield seconds
                if job.future.done():  # canceled
                    break
        except Exception as error:
            job.settle(error)
        finally:
            if job.future.done():
                job.clean()

    def _steps(self, job: Job) -> Iterator[float]:
        if job.future.done():  # canceled
            return
        self._searchers.find(job.options)
        recording = job.recording
        cutting = self._cutting(job)
        if cutting.is_long(recording):
            if job.waveform is not None:
                recording = self._as_file(job)
            job.pieces = yield from cut_up(recording, cutting)
        job.unread.extend(job.pieces.parts if job.pieces else [recording])
        self._prepared(job)

    def _cutting(self, job: Job) -> Cutting:
        return Cutting.suited_to(self._recognizer, job.options)

    def _as_file(self, job: Job) -> Recording:
        """Write long samples to a file, which is read piece by piece."""
        with tempfile.NamedTemporaryFile(dir=self._folder.name, suffix=".wav", delete=False) as out:
            soundfile.write(out, job.waveform, self._recognizer.sample_rate, "FLOAT", format="WAV")
        job.temporary, job.waveform = Path(out.name), None
        job.recording = Recording("", out.name, 0.0, job.recording.duration)
        return job.recording
