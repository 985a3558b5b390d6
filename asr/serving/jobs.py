"""What an engine has to do: a client's recording, its parts, and those that are searched together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from asr.errors import UserError
from asr.transcript import Segment, Transcript
from asr.transcription.encoding import encode
from asr.transcription.long import Joint, Pieces, sure_of
from asr.transcription.options import SearchOptions
from asr.transcription.pipeline import transcripts
from asr.transcription.recordings import Recording
from asr.transcription.searcher import Running, Searcher


@dataclass(eq=False)
class JobPart:
    """A recording, or a piece of one."""

    job: Job
    recording: Recording
    waveform: Future[np.ndarray | UserError]

    @property
    def seconds(self) -> float:
        return self.recording.duration


class Job:
    """A recording of a client, and what is known of it so far."""

    def __init__(self, client: Hashable, recording: Recording, options: SearchOptions):
        self.client, self.recording, self.options = client, recording, options
        self.future: Future[Transcript] = Future()
        self.progress: Callable[[list[Segment]], None] | None = None
        self.temporary: Path | None = None
        self.waveform: np.ndarray | None = None
        self.pieces: Pieces | None = None
        self.unread = deque[Recording]()
        self.ahead = deque[JobPart]()
        self.results = dict[Recording, Transcript]()
        self._joint, self._joined, self._shown = Joint(sure_of(options.mode)), 0, 0
        self._lock, self._settled = threading.Lock(), False

    def settle(self, result: Transcript | Exception) -> None:
        """Give the future its result or its exception, unless it is done or was canceled."""
        with self._lock:
            settled, self._settled = self._settled, True
        if settled or not self.future.set_running_or_notify_cancel():
            return
        self.clean()  # before anybody learns that it is done
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)

    def clean(self) -> None:
        """Remove the file that was made of samples."""
        if self.temporary:
            self.temporary.unlink(missing_ok=True)

    def is_ready(self) -> bool:
        """Whether its next part has been read."""
        return bool(self.ahead) and self.ahead[0].waveform.done()

    def add(self, recording: Recording, result: Transcript) -> Transcript | None:
        """Take the result of a part; return that of the whole once all are there."""
        self.results[recording] = result
        if not self.pieces:
            return result
        if self.progress:
            self._show(self.progress)
        if len(self.results) < len(self.pieces.parts):
            return None
        whole = self.pieces.result(self.results)
        assert isinstance(whole, Transcript)
        return whole

    def _show(self, progress: Callable[[list[Segment]], None]) -> None:
        """Tell the segments that don't change any more, in order."""
        assert self.pieces
        pieces, parts, joint = self.pieces.pieces, self.pieces.parts, self._joint
        while self._joined < len(parts) and parts[self._joined] in self.results:
            joint.add(pieces[self._joined], self.results[parts[self._joined]])
            self._joined += 1
        left = pieces[self._joined :]
        settled = len(joint.segments) - bool(joint.segments and left and left[0].overlap)
        if new := [s for s in joint.segments[self._shown : settled] if s.text]:
            progress(new)
        self._shown = max(self._shown, settled)


class RunningBatch:
    """Utterances that are searched with the same options."""

    def __init__(self, searcher: Searcher):
        self.searcher = searcher
        self.running = Running[JobPart](searcher, prompt=True)
        self.encoded = dict[JobPart, tuple[torch.Tensor, torch.Tensor]]()  # H (T', D), X (T, F)
        self.steps = 0  # since parts last entered

    @property
    def seconds(self) -> float:
        return sum(part.seconds for part in self.encoded)

    def add(self, parts: Sequence[JobPart]) -> None:
        """Encode some, and let them enter the search."""
        self.steps = 0
        searcher, waveforms = self.searcher, [part.waveform.result() for part in parts]
        waves = [wave for wave in waveforms if isinstance(wave, np.ndarray)]
        self.encoded |= dict.fromkeys(parts, (torch.empty(0), torch.empty(0)))
        encoded = encode(searcher.recognizer, waves, searcher.precision, searcher.chunk)
        self.encoded |= zip(parts, encoded.rows(), strict=True)
        self.running.add(parts, encoded.H, encoded.H_lens)

    def step(self) -> list[tuple[JobPart, Transcript]]:
        """Search on by one label; return the transcripts of those that are done."""
        self.steps += 1
        if not (found := self.running.step()):
            return []
        rows = [self.encoded[part] for part, _ in found]
        timed = rows if self.searcher.recognizer.has_times else None
        nbests = [(part.recording, nbest) for part, nbest in found]
        made = [transcript for _, transcript in transcripts(self.searcher, nbests, timed)]
        for part, _ in found:
            del self.encoded[part]
        return [(part, result) for (part, _), result in zip(found, made, strict=True)]

    def drop(self, job: Job) -> None:
        """Leave the parts of a job."""
        if unwanted := {part for part in self.encoded if part.job is job}:
            self.running.drop(unwanted)
            self.encoded = {p: rows for p, rows in self.encoded.items() if p not in unwanted}
