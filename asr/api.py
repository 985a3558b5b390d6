"""What `import asr` offers: load a model, transcribe recordings and streams, align and translate texts, train."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
import torch

from asr import device as devices
from asr.audio.containers import decoding
from asr.data.texts import Text
from asr.errors import UserError
from asr.hub import find_model
from asr.logging import warn_once
from asr.models import recognizer as recognizers
from asr.models import translator as translators
from asr.models.lm import LanguageModel
from asr.models.recognizer import Recognizer
from asr.models.translator import Translator
from asr.transcript import Transcript
from asr.transcription import alignment, pipeline, windows
from asr.transcription.decoding import warn_calibrated_otherwise
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import NOT_FOR_TRANSLATORS, SearchOptions, translator_mode
from asr.transcription.recordings import Recording, find, one_recording
from asr.transcription.streams import Stream, Streams
from asr.translation import translate as translation

Path = str | os.PathLike[str]
M = TypeVar("M", bound=torch.nn.Module)


def load(path: Path, device: str | torch.device = "auto") -> Recognizer:
    """Load a trained model folder.

    path     the folder, or `owner/name` of a published one on the Hugging Face Hub, perhaps with
             `@revision`; loading never runs code from it
    device   "auto" takes a GPU that works, else the CPU; or a device of PyTorch's
    raises   UserError if a file is missing or damaged, or the folder holds a language model
    """
    if device == "auto":
        device, _ = devices.choose()
    return recognizers.load(find_model(path), device)


def transcribe(
    recognizer: Recognizer | Path,
    audio: Path | np.ndarray | torch.Tensor,
    sample_rate: int | None = None,
    **options: Any,
) -> Transcript:
    """Transcribe one recording.

    recognizer   or its model folder, which each call reads anew
    audio        a sound file, which ffmpeg may have to decode, or its samples (samples,) as numbers
                 from -1 to 1
    sample_rate  Hz, of samples; the model's unless given
    options      fields of `asr.SearchOptions`, such as mode="ctc-greedy" or beam=20
    raises       UserError if the recording can't be read, or is too short for one frame
    """
    recognizer = _read(recognizer)
    how = _search(recognizer, options)
    if isinstance(audio, str | os.PathLike):
        with decoding():
            found = [one_recording(audio, "use asr.transcribe_all")]
            (transcript,) = pipeline.transcribe(recognizer, found, how, times=True)
        return transcript
    waveform = pipeline.waveform_of(audio, sample_rate, recognizer)
    return pipeline.transcribe_waveform(recognizer, waveform, how)


def transcribe_all(
    recognizer: Recognizer | Path,
    paths: Path | Iterable[Path],
    batch_seconds: float | None = None,
    **options: Any,
) -> Iterator[Transcript]:
    """Transcribe sound files, or all those below a folder, in batches of similar length.

    recognizer     or its model folder
    paths          a file, a folder, or several
    batch_seconds  of padded audio; changes the speed, never the texts. None: 120 on a CPU, 2,000 on
                   a GPU
    options        fields of `asr.SearchOptions`
    returns        transcripts in the order given, each as soon as all before it are done
    raises         UserError at the first recording that can't be read; all are looked at before the
                   first transcript
    """
    recognizer = _read(recognizer)
    paths = [paths] if isinstance(paths, str | os.PathLike) else paths
    how = _search(recognizer, options)
    return _transcribed(recognizer, [os.fspath(path) for path in paths], how, batch_seconds)


def _transcribed(
    recognizer: Recognizer, paths: list[str], options: SearchOptions, batch_seconds: float | None
) -> Iterator[Transcript]:
    with decoding():
        yield from pipeline.transcribe(recognizer, find(paths), options, batch_seconds, times=True)


def stream(
    recognizer: Recognizer | Path, position: float = 0.0, number: int = 0, **options: Any
) -> Stream:
    """Begin a stream of samples, whose words come out while they are spoken.

    recognizer  or its model folder
    position    seconds from the beginning, where another stream was final: this one goes on from there
    number      of the first segment: one more than that of the other's last `asr.Final`
    options     fields of `asr.SearchOptions`, such as chunk=0.32, and of `asr.EndpointOptions`
    returns     its `push` takes samples and returns events: `asr.Partial` and `asr.Final`
    raises      UserError if the model can't read streams, or position or number is below 0
    """
    recognizer = _read(recognizer)
    names = {field.name for field in dataclasses.fields(EndpointOptions)}
    endpoints = EndpointOptions(**{name: options.pop(name) for name in names & options.keys()})
    return Streams(recognizer, _search(recognizer, options), endpoints).open(position, number)


def align(
    recognizer: Recognizer | Path,
    audio: Path | np.ndarray | torch.Tensor,
    text: str | Iterable[str],
    sample_rate: int | None = None,
    normalize: str | None = None,
) -> Transcript:
    """Give the lines and words of a known text their times in a recording of any length.

    recognizer   or its model folder
    audio        a sound file, which is read block by block, or samples (samples,)
    text         lines, each of which becomes a segment; blank ones are ignored. It may lack some of
                 what is spoken, and have what isn't
    sample_rate  Hz, of samples; the model's unless given
    normalize    "plain" or "english": a convention by which the model spells; unless given, what
                 fits its tokens best. The transcript has the words as they were written
    returns      a line that isn't heard has confidence 0 and no words, a word that isn't heard
                 within a line confidence 0 and no length
    raises       UserError if the model's CTC wasn't trained, the recording can't be read, or the
                 text has no word that the model can spell
    """
    recognizer = _read(recognizer)
    given = text.splitlines() if isinstance(text, str) else text
    lines = [(f"line {n}", line) for n, line in enumerate(given, 1) if line.strip()]
    with decoding():
        if isinstance(audio, str | os.PathLike):
            recording = one_recording(audio, "give its parts one by one")
            read = windows.reader(recording, recognizer.sample_rate)
        else:
            waveform = pipeline.waveform_of(audio, sample_rate, recognizer)
            recording = Recording("", "", 0.0, len(waveform) / recognizer.sample_rate)
            read = windows.reader_of(waveform)
        return alignment.align(recognizer, read, recording, lines, normalize)


def translate(
    translator: Translator | Path, lines: Iterable[str], **options: Any
) -> Iterator[Transcript]:
    """Translate lines of text.

    translator   or its model folder
    options      fields of `asr.SearchOptions` that need no CTC, such as beam=5 or length_norm=1.0
    returns      a transcript of each line, in order, named `line N`; an empty one stays empty
    raises       UserError if a line is too long, or the mode needs CTC
    """
    if isinstance(lines, str):
        raise UserError("got one text, expected a list of lines", argument="lines")
    if foreign := sorted(NOT_FOR_TRANSLATORS & options.keys()):
        raise UserError("is for recognizers, not for a translator; leave it out", foreign[0])
    how = SearchOptions(**options)
    how = dataclasses.replace(how, mode=translator_mode(how.mode))
    translator = _model(translator, Translator, _load_translator)
    texts = (Text(f"line {n}", n, line) for n, line in enumerate(lines, 1))
    return translation.translate(translator, texts, how)


def train(config: Path, *overrides: str) -> Recognizer | LanguageModel | Translator:
    """Train a model as a YAML file describes it, or continue a training that was stopped.

    overrides  settings to change, such as "training.epochs=3"
    returns    the model of the folder `out`; a training that is finished isn't run again
    raises     UserError for a mistake in the settings or the data, before training begins
    """
    from asr import config as configs
    from asr.tasks import Experiment
    from asr.training import identity, run

    overrides = identity.located(os.fspath(config), overrides)
    stamp = identity.stamp_of(os.fspath(config), overrides)
    identity.check_files(os.fspath(config), overrides)
    experiment = configs.load(Experiment, os.fspath(config), overrides)
    return (
        experiment.Model.load(experiment.out)
        if stamp.is_current()
        else run.train(experiment, stamp)
    )


def _read(recognizer: Recognizer | Path) -> Recognizer:
    """Return a recognizer, which may be given as its model folder."""
    return _model(recognizer, Recognizer, load)


def _model(given: torch.nn.Module | Path, kind: type[M], load: Callable[[Path], M]) -> M:
    """Return a model, which may be given as its folder.

    raises   UserError if it is of another kind
    """
    if not isinstance(given, torch.nn.Module):
        return load(given)
    if not isinstance(given, kind):
        raise UserError(f"got a {type(given).__name__}, expected a {kind.__name__}")
    return given


def _load_translator(path: Path) -> Translator:
    return translators.load(find_model(path), devices.choose()[0])


def _search(recognizer: Recognizer, options: dict[str, Any]) -> SearchOptions:
    """Return how to search; a warning, once, if confidences were calibrated for another search."""
    if options.get("lm"):
        options = options | {"lm": str(find_model(options["lm"]))}
    search = SearchOptions(**options)
    warn_calibrated_otherwise(recognizer.calibration, search, warn_once)
    return search
