"""Recordings to files of texts, written when all is done; a journal keeps what is finished."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from asr import __version__
from asr import failures as failure_lists
from asr.errors import UserError, shorten
from asr.failures import Failure
from asr.files import replacing
from asr.journal import Journal, beside
from asr.logging import logger, printable, progress_bar
from asr.memory import is_oom, limited
from asr.model_files import BOUNDARIES, CALIBRATION, CONFIG, FAR, SOURCE, WEIGHTS
from asr.options import paths
from asr.stamp import Stamp, fingerprint
from asr.text.tokenizer import paths_of
from asr.transcription.options import SearchOptions, effective
from asr.transcription.recordings import Recording, in_order

if TYPE_CHECKING:
    from asr.confidence import Calibration
    from asr.transcription.processes import Workers

REPORT_SECONDS = 60.0
FAILED = ".failed.tsv"  # the list of failures is named as the output with this at its end


@dataclass(frozen=True)
class Decoding:
    """How to decode.

    model          folder
    batch_seconds  of padded audio in a batch; None: as the device likes it
    precision      "fp32" or "bf16"
    device         "auto", "cpu" or "cuda"
    times          give words their times
    """

    model: str
    options: SearchOptions
    batch_seconds: float | None = None
    precision: str = "fp32"
    device: str = "auto"
    times: bool = False

    def settings(self) -> dict[str, Any]:
        """Return the settings that change the texts."""
        settings = asdict(self.options) | {"precision": self.precision, "times": self.times}
        unset = {
            "times": False,
            "chunk": None,
            "vad": "energy",
            "length_norm": 0.0,
        }  # they came later: other work has the same mark
        return {k: v for k, v in settings.items() if k not in unset or v != unset[k]}

    def files(self) -> list[str]:
        """List the files that the texts depend on, beside the recordings."""
        given = [self.model, *paths(self.options).values()]
        folders = [path for path in given if not os.path.isfile(path)]
        in_folders = [
            file
            for folder in folders
            for file in (*_settings_and_weights(folder), *paths_of(folder))
        ]
        return in_folders + [path for path in given if os.path.isfile(path)]

    def work(self) -> dict[str, Any]:
        """Identify what makes the results, for a journal."""
        contents = {str(path): fingerprint(Path(path)) for path in self.files()}
        return self.settings() | {"version": __version__, "files": contents}

    def check_files(self) -> None:
        """See that the model and the files of options are there, before anything heavy is imported.

        raises   UserError that names the first that isn't
        """
        for option, path in paths(self.options).items():
            if not os.path.exists(path):
                raise UserError(f"{path}: no such file or folder", argument=option)
        if not os.path.isdir(self.model):
            raise UserError(f"{self.model}: no such model folder; asr-train makes one")
        if self.options.vad == "silero":
            from asr.transcription import silero

            silero.check()


def _settings_and_weights(folder: str) -> list[str]:
    given, learned = (
        [os.path.join(folder, name) for name in names]
        for names in ((CONFIG, WEIGHTS), (CALIBRATION, BOUNDARIES))
    )
    source = os.path.join(folder, SOURCE)
    given += paths_of(source) if os.path.isdir(source) else []
    return given + [path for path in learned if os.path.exists(path)]


@dataclass(frozen=True)
class Output:
    """A file to write: a line for each result."""

    path: str
    line: Callable[[dict], str]
    stamp: Stamp


@dataclass(frozen=True)
class Decoded:
    """What was decoded.

    count         recordings in all
    failures      those that could not be transcribed
    audio         seconds of the others
    seconds       that they took, over all sessions
    device        what computed in this session: "cpu" or "cuda"; None if all was done before
    """

    count: int
    failures: list[Failure]
    audio: float
    seconds: float
    device: str | None


class ModelLoader:
    """Load the model when called, and warn of what may spoil the search. To be used within `with`.

    hardware, device   what computes, and its type, once the model is loaded

    On a CPU, taking more memory than is free becomes an error, until the end of `with`; `processes`
    that load it together share that.
    """

    def __init__(self, decoding: Decoding, recordings: Sequence[Recording], processes: int = 1):
        self.decoding, self.recordings, self.processes = decoding, recordings, processes
        self.hardware: str | None = None
        self.device: str | None = None
        self._limits = ExitStack()

    def __enter__(self) -> ModelLoader:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._limits.close()
        if isinstance(error, RuntimeError | MemoryError) and is_oom(error):
            what = "cut long recordings at pauses, or lower `batch_seconds` or `beam`"
            raise UserError(f"out of memory; {what}") from None

    def __call__(self, calibrated: bool = True) -> Any:
        """Return the recognizer; unless `calibrated`, with raw confidences."""
        from asr.device import choose, hardware, keep_memory, remember_few_shapes
        from asr.models.recognizer import load

        try:
            device, which = choose(self.decoding.device)
        except ValueError as error:
            raise UserError(str(error)) from None
        keep_memory()
        remember_few_shapes()
        if device.type == "cpu":
            self._limits.enter_context(limited(self.processes))
        recognizer = load(self.decoding.model, device, calibrated)
        self.hardware, self.device = hardware(device), device.type
        logger.info(which)
        if recognizer.has_times:
            log_long(self.recordings, recognizer.longest)
        elif self.decoding.times:
            logger.warning("words have no times: CTC was not trained (model.ctc_weight is 0)")
        warn_untrained(recognizer.model.ctc_weight, self.decoding.options)
        warn_calibrated_otherwise(recognizer.calibration, self.decoding.options)
        return recognizer


def log_long(recordings: Sequence[Recording], heard: float) -> None:
    """Name the recordings that are cut, since they are much longer than `heard` seconds, see `Recognizer.longest`."""
    long = [recording.id for recording in recordings if recording.duration > FAR * heard]
    if long:
        most = max(recording.duration for recording in recordings)
        logger.info(
            f"{len(long)} recordings of up to {most:.0f} s are cut at pauses, since the model was trained for "
            f"{heard:.1f} s at most ({shorten(long)})"
        )


def warn_untrained(ctc_weight: float, options: SearchOptions) -> None:
    """Warn if the search uses an untrained part of the model; ctc_weight: of the training."""
    fixed = {"attention": 0.0, "attention-greedy": 0.0}
    fixed |= dict.fromkeys(("ctc", "ctc-beam", "ctc-greedy"), 1.0)
    weight = fixed.get(options.mode, options.ctc_weight)
    if ctc_weight == 1 and weight < 1:
        logger.warning(
            "the attention decoder was not trained (model.ctc_weight is 1); use mode ctc"
        )
    if ctc_weight == 0 and (weight > 0 or options.mode == "rescoring"):
        logger.warning("CTC was not trained (model.ctc_weight is 0); use mode attention")


def warn_calibrated_otherwise(
    calibration: Calibration | None, options: SearchOptions, warn: Callable = logger.warning
) -> None:
    """Warn if confidences were calibrated, but for another search."""
    fitted, now = calibration.search if calibration else {}, effective(options)
    if calibration and fitted != now:
        other = [name for name in fitted | now if fitted.get(name) != now.get(name)]
        given = shorten(f"{name} {fitted.get(name)}" for name in other)
        warn(f"confidences were calibrated for another search ({given}); calibrate for this one")


def warn_failures(failures: Sequence[Failure], count: int) -> None:
    """Name the recordings that failed; a single one is named by the error at the end."""
    for failure in failures if count > 1 else ():
        logger.warning(
            f"{failure.id}: {failure.reason}"
            if failure.id not in failure.reason
            else failure.reason
        )


def decode(
    decoding: Decoding,
    recordings: Sequence[Recording],
    failures: Sequence[Failure],
    outputs: Sequence[Output],
    show: Callable[[dict], None],
    workers: Workers | None = None,
    part: bool = False,
) -> Decoded:
    """Transcribe what an earlier session hasn't, write the outputs, and list the failures beside the first one.

    failures  recordings that can't be read
    outputs   are stamped if nothing failed
    show      called with each result, in order, as soon as all before it are done
    workers   processes that search; None: this one does
    part      whether this is a part of other work, whose outputs are written even if they are empty
    """
    path, work = (beside(outputs[0].path), decoding.work()) if outputs else (None, {})
    count, loader = len(recordings) + len(failures), ModelLoader(decoding, recordings)
    with Journal(path, work) as journal:
        if len(journal):
            logger.info(f"going on: {len(journal)} recordings are finished")
        total = round(sum(recording.duration for recording in recordings))
        with loader, progress_bar(total=total, unit="s", desc="audio") as bar:
            found = _search(
                loader,
                recordings,
                journal,
                show,
                lambda seconds: bar.update(round(seconds, 1)),
                workers,
            )
        warn_failures(found, len(recordings))
        failed = {failure.id for failure in found}
        done = [recording for recording in recordings if recording.id not in failed]
        failures = [*failures, *found]
        audio, seconds = journal.seconds(recording.key for recording in recordings)
        made = _facts(audio, seconds, loader.hardware)
        if outputs:
            _write_all(outputs, journal, done, failures, made, part)
        if not failures:
            journal.remove()
    return Decoded(count, failures, audio, seconds, loader.device)


def _facts(audio: float, seconds: float, hardware: str | None) -> dict[str, Any]:
    """What a stamp tells of how the outputs were made: seconds of audio, and of the search."""
    facts: dict[str, Any] = {"audio_seconds": round(audio, 2), "wall_seconds": round(seconds, 2)}
    facts["rtf"] = round(seconds / max(audio, 1e-9), 4)
    return facts | ({"hardware": hardware} if hardware else {})


def _write_all(
    outputs: Sequence[Output],
    journal: Journal,
    done: Sequence[Recording],
    failures: Sequence[Failure],
    made: dict[str, Any],
    part: bool,
) -> None:
    """Write the outputs unless nothing could be done, and list the failures; stamp what is whole."""
    written = outputs if done or part else ()
    write(written, lambda: (journal.get(r.key) for r in done), {} if failures else made)
    failure_lists.write(Path(f"{outputs[0].path}{FAILED}"), failures)
    for output in written if failures else ():
        output.stamp.begin(failed=len(failures))


def _search(
    loader: ModelLoader,
    recordings: Sequence[Recording],
    journal: Journal,
    show: Callable[[dict], None],
    progress: Callable[[float], None],
    workers: Workers | None,
) -> list[Failure]:
    """Transcribe what the journal lacks, and add it there; return the failures."""
    keys = {recording: recording.key for recording in recordings}
    todo = [recording for recording in recordings if keys[recording] not in journal]
    pieces = []
    if workers:  # a piece that isn't finished is searched as if nothing of it were
        divided = workers.pieces(recordings, loader.decoding.batch_seconds)
        pieces = [piece for piece in divided if any(keys[r] not in journal for r in piece)]
        todo = [recording for piece in pieces for recording in piece]
    again = set(todo)
    finished = [(recording, None) for recording in recordings if recording not in again]
    fresh: Iterator[tuple[Recording, Failure | None]] = iter(())
    if todo:
        some = _of_workers(loader, pieces, workers) if workers else _own(loader, todo)
        fresh = _reported(_kept(some, journal, keys), todo)
    failures = []
    for recording, failure in in_order(recordings, _counted(chain(finished, fresh), progress)):
        if failure is not None:
            failures.append(failure)
        else:
            show(journal.get(keys[recording]))
            journal.forget(keys[recording])
    return failures


Results = Iterator[tuple[Recording, dict | Failure, float]]  # and the seconds that it took


def _own(loader: ModelLoader, todo: Sequence[Recording]) -> Results:
    """Search in this process."""
    recognizer, decoding = loader(), loader.decoding  # imports PyTorch
    from asr.transcription.pipeline import finished

    before = time.perf_counter()
    for recording, result in finished(
        recognizer,
        todo,
        decoding.options,
        decoding.batch_seconds,
        decoding.precision,
        times=decoding.times,
    ):
        seconds = time.perf_counter() - before
        yield recording, result if isinstance(result, Failure) else result.as_json(), seconds
        del result  # of an hour it takes megabytes, which the next search can use
        before = time.perf_counter()


def _of_workers(
    loader: ModelLoader, pieces: Sequence[Sequence[Recording]], workers: Workers
) -> Results:
    """Have other processes search."""
    from asr.transcription.processes import finished

    before = time.perf_counter()
    for piece, results in finished(loader, pieces, workers):
        seconds = (time.perf_counter() - before) / len(piece)
        for recording, result in zip(piece, results, strict=True):
            yield recording, result, seconds
        before = time.perf_counter()


def _kept(
    results: Results, journal: Journal, keys: dict[Recording, str]
) -> Iterator[tuple[Recording, Failure | None]]:
    """Keep each result in the journal."""
    for recording, result, seconds in results:
        if isinstance(result, Failure):
            yield recording, result
        else:
            journal.add(keys[recording], result, recording.duration, seconds)
            del result
            yield recording, None


def _reported(
    results: Iterator[tuple[Recording, Failure | None]], todo: Sequence[Recording]
) -> Iterator[tuple[Recording, Failure | None]]:
    """Log now and then how far it is, where no bar shows it."""
    begun = last = time.monotonic()
    total, audio = sum(recording.duration for recording in todo), 0.0
    for count, (recording, failure) in enumerate(results, 1):
        yield recording, failure
        audio, now = audio + recording.duration, time.monotonic()
        if now - last >= REPORT_SECONDS and not sys.stderr.isatty():
            left, last = (now - begun) * max(0.0, total - audio) / max(audio, 1e-9), now
            logger.info(
                f"{count:,} of {len(todo):,} recordings, {audio / 3600:.1f} of {total / 3600:.1f} h of audio; "
                f"about {left / 60:.0f} min left"
            )


def _counted(
    results: Iterator[tuple[Recording, Failure | None]], progress: Callable[[float], None]
) -> Iterator[tuple[Recording, Failure | None]]:
    for recording, failure in results:
        progress(recording.duration)
        yield recording, failure


def write(
    outputs: Sequence[Output], results: Callable[[], Iterable[dict]], made: dict[str, Any]
) -> None:
    """Write all results to each output, a line each; stamp them with `made`, unless that is empty."""
    for output in outputs:
        output.stamp.begin()
    for output in outputs:
        with replacing(output.path) as temporary, open(temporary, "w", encoding="utf-8") as file:
            file.writelines(output.line(result) + "\n" for result in results())
    for output in outputs if made else ():
        output.stamp.write(**made)


def text_line(result: dict) -> str:
    """Write a result as `id<TAB>text`, one line whatever its tokens are."""
    text = result["text"]
    return f"{result['id']}\t{text if text.isprintable() else ' '.join(printable(text).split())}"


def json_line(result: dict) -> str:
    """Write a result as one line of JSON."""
    return json.dumps(result, ensure_ascii=False)
