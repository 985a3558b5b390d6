"""One HTML file that opens anywhere: no network, no other files but linked recordings.

The words in it are strangers'. Jinja2 escapes all that the template shows, the script puts texts on
the page as texts only, and the content security policy allows this page's own script and style, by
their hashes, and nothing else.
"""

import base64
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asr import __version__
from asr.data import manifest
from asr.data.manifest import Utterance, shown
from asr.errors import UserError
from asr.files import write_text
from asr.logging import logger
from asr.scoring.calibration import expected_calibration_error, reliability
from asr.scoring.page import evidence, sound
from asr.scoring.page.evidence import Exhibit
from asr.scoring.report import COUNTED, UNITS, Report, Score, score_texts
from asr.scoring.texts import has_transcripts, is_manifest, transcripts
from asr.text.normalize import convention
from asr.transcript import Transcript

EMBEDDED = 200  # utterances whose sound is within the page
LONGEST = 120.0  # seconds of such a sound: some 500 kB
MOST = 30  # rows of each table of frequent errors
SPEAKERS = 100
# how page.html begins
START = '<!doctype html>\n<html lang="en">\n<meta name="generator" content="asr-score '
SAME = 0  # in place of a hypothesis that equals its reference


@dataclass(frozen=True)
class Compared:
    """What was scored, as files: references, hypotheses, perhaps a second system's, and the convention of texts."""

    ref: str
    hyp: str
    against: str | None = None
    normalize: str | None = None

    @property
    def systems(self) -> list[str]:
        """Files of hypotheses, one per system."""
        return [self.hyp] + ([self.against] if self.against else [])


def write_page(path: str | os.PathLike, report: Report, files: Compared) -> None:
    """Show every error of a report in one HTML file; its sound is that of the manifest, if the references are one.

    raises   UserError if a file can't be read or written
    """
    recordings = {u.id: u for u in manifest.read(files.ref)} if is_manifest(files.ref) else {}
    known = [spoken(file) for file in files.systems]
    unit = next(iter(report.scores))
    rewrite: Callable[[str], str] = convention(files.normalize) if files.normalize else str
    found = evidence.exhibits(report.texts, unit, recordings, known, rewrite)
    worst = sorted(found, key=lambda each: (-each.errors, -each.errors / evidence.length(each)))
    order = {each.id: n for n, each in enumerate(found)}
    sounds = heard([each.recording for each in worst], os.path.dirname(os.path.abspath(path)))
    shows = [
        values(each, order[each.id], address) for each, address in zip(worst, sounds, strict=True)
    ]
    scores = [report.scores] + ([scores_of_second(report)] if files.against else [])
    write_text(path, render(report, files, unit, scores, found, shows))


def is_page(path: str | os.PathLike) -> bool:
    """Whether a file is what asr-score --report writes."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(len(START)) == START
    except (OSError, ValueError):
        return False


def spoken(file: str) -> dict[str, Transcript]:
    """Read the transcripts of a file of hypotheses, by id; none if it has texts alone."""
    return {each.id: each for each in transcripts(file)} if has_transcripts(file) else {}


def scores_of_second(report: Report) -> dict[str, Score]:
    """Score the second system, which a Report has the difference to."""
    references, _, second = report.texts.values()
    return {unit: score_texts(references, second, unit) for unit in report.scores}


def heard(recordings: Sequence[Utterance | None], folder: str) -> list[str]:
    """Give the address of each utterance's sound: the first are embedded if they are short, others linked; or empty.

    Sound that can't be embedded is linked, and a warning says why.
    """
    addresses = [sound.linked(each, folder) if each else "" for each in recordings]
    faults = []
    for n, each in enumerate(recordings[:EMBEDDED]):
        if addresses[n] and each and each.duration > LONGEST:
            continue
        try:
            addresses[n] = sound.embedded(each) if each and each.path else ""
        except UserError as error:
            faults.append(str(error))
    if faults:
        logger.warning(f"without the sound of {len(faults)} of the utterances; first: {faults[0]}")
    return addresses


def values(each: Exhibit, order: int, address: str) -> dict[str, Any]:
    """Make the plain values of an utterance that the script reads.

    order     place in the references
    address   of its sound
    """
    within = address.startswith("data:")
    return {
        "id": each.id,
        "order": order,
        "speaker": (each.recording and each.recording.speaker) or "",
        "seconds": round(each.duration, 2),
        "sound": address,
        "begin": 0 if within else each.start,  # of the utterance within the sound
        "readings": [
            {
                "errors": reading.rate.errors,
                "length": reading.rate.reference,
                "confidence": reading.confidence,
                "pairs": [list(row(reading, n, each.start)) for n in range(len(reading.pairs))],
            }
            for reading in each.readings
        ],
    }


def row(reading: evidence.Reading, n: int, start: float) -> Sequence[Any]:
    """Make the plain values of one pair: reference, hypothesis, and if known its second and confidence."""
    reference, hypothesis = reading.pairs[n]
    texts = (reference, SAME if hypothesis == reference else hypothesis)
    place = reading.places[n]
    if place is None:
        return texts
    word = reading.words[place]
    second = round(max(0.0, word.start - start), 2)
    return *texts, second, None if word.confidence != word.confidence else round(word.confidence, 3)


def render(
    report: Report,
    files: Compared,
    unit: str,
    scores: Sequence[Mapping[str, Score]],
    found: Sequence[Exhibit],
    shows: list[dict],
) -> str:
    """Fill the template page.html."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    environment.filters["percent"] = lambda rate: f"{100 * rate:.2f}"
    own = {name: (folder / f"page.{name}").read_text("utf-8") for name in ("css", "js")}
    return environment.get_template("page.html").render(
        version=__version__,
        files=files,
        names=[shown(name) for name in files.systems],
        reference=shown(files.ref),
        units=UNITS,
        unit=unit,
        counted=COUNTED[unit],
        scores=scores,
        report=report,
        frequent=evidence.frequent(found, MOST),
        charts=charts(found, COUNTED[unit]),
        calibrations=calibrations(found, len(scores)),
        data={"utterances": shows},
        audible=any(show["sound"] for show in shows)
        and any(each.readings[0].words for each in found),
        embedded=sum(show["sound"].startswith("data:") for show in shows),
        hashes={name: digest(text) for name, text in own.items()},
        **{name: Markup(text) for name, text in own.items()},
    )


def digest(text: str) -> str:
    """Hash a script or a style as content security policies name it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def charts(found: Sequence[Exhibit], counted: str) -> list[dict[str, Any]]:
    """Group utterances in each way that is known, and find the scale of the bars."""
    speakers = evidence.by_speaker(found)
    few = len(speakers) <= SPEAKERS
    groups = {
        "speaker" if few else f"speaker (the worst {SPEAKERS})": speakers[:SPEAKERS],
        f"length ({counted})": evidence.by_value(found, evidence.length, "d"),
        f"speed ({counted} per second)": evidence.by_value(found, evidence.speed, ".1f"),
        "confidence (mean of the words)": evidence.by_value(found, evidence.confidence, ".2f"),
    }
    return [
        {"title": title, "groups": each, "scale": scale(each)}
        for title, each in groups.items()
        if each
    ]


def scale(groups: Sequence[evidence.Slice]) -> float:
    """Return the largest rate, or upper bound, of groups: where the bars end."""
    tops = [max(rate, bounds[1] if bounds else 0) for g in groups for rate, bounds in g.rates]
    return max(tops) or 1.0


def calibrations(found: Sequence[Exhibit], systems: int) -> list[dict[str, Any] | None]:
    """Draw up each system's calibration; None where no word has a confidence."""
    made: list[dict[str, Any] | None] = []
    for n in range(systems):
        words = [outcome for each in found for outcome in each.readings[n].outcomes()]
        if not words:
            made.append(None)
            continue
        each, right = zip(*words, strict=True)
        error = expected_calibration_error(each, right)
        made.append({"words": len(words), "bins": reliability(each, right), "error": error})
    return made
