"""The model card: what a model folder is, written from the run that made it.

The metadata at its head is what the Hugging Face Hub reads: license, languages, task and `model-index`.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from asr import imports, stamp
from asr.errors import UserError
from asr.hub.results import Result
from asr.info import folders
from asr.info.folders import Finding
from asr.info.look import look
from asr.model_files import CONFIG, FAR, KINDS, kind_of

CARD = "README.md"
MARK = "<!-- written by asr-push -->"
SEAL = "<!-- written by asr-push, SHA-256 {} -->"  # in its place: of the text with MARK
LIBRARY = "asr-toolkit"
TASKS = {
    "hybrid": "automatic-speech-recognition",
    "translator": "translation",
    "lm": "text-generation",
}
LICENSE, LANGUAGE = r"[a-z0-9][a-z0-9.-]{1,63}", r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*"
COLUMNS = [
    "set",
    "search",
    "score",
    "95 % interval",
    "utterances",
    "texts",
    "RTF",
    "hardware",
    "code",
]
INSTALL = """Install the toolkit as its README says. Then, in its folder and its environment{python}:

```sh
pip install -e ".[{extras}]"
```"""
USE = {
    "hybrid": """```sh
asr-decode --model {name} recording.wav
```

```python
import asr
print(asr.transcribe(asr.load("{name}"), "recording.wav").text)
```""",
    "translator": """```sh
asr-decode --model {name} sentences.txt
```""",
    "lm": """```sh
asr-decode --model RECOGNIZER --lm {name} --lm-weight 0.3 recording.wav
```""",
}


@dataclass(frozen=True)
class About:
    """What only its makers know of a model.

    name        on the hub, `owner/name`
    license     the hub's identifier, such as apache-2.0
    languages   ISO 639 codes, such as en
    notes       Markdown about limits, intended use or thanks; empty for none

    raises      UserError if a license or a language isn't written as the hub does
    """

    name: str
    license: str
    languages: Sequence[str] = ()
    notes: str = ""

    def __post_init__(self) -> None:
        for argument, words, pattern, example in (
            ("license", [self.license], LICENSE, "apache-2.0, cc-by-4.0 or other"),
            ("language", self.languages, LANGUAGE, "en, zh or zh-TW"),
        ):
            for word in words:
                if not re.fullmatch(pattern, word):
                    raise UserError(f"got {word!r}, expected such as {example}", argument=argument)


def write_card(folder: Path, about: About, results: Sequence[Result]) -> str:
    """Write the model card of a folder: metadata, then Markdown, with the digest that `is_unedited` reads.

    raises   UserError if it is no model folder
    """
    kind = kind_of(folder) or ""
    if kind not in KINDS:
        raise UserError(f"{folder}: is no model folder; asr-train makes one")
    found = look(str(folder))
    parts = [
        f"# {about.name.partition('/')[2]}",
        MARK,
        _summary(kind, found, about),
        f"## Use\n\n{_install(folder)}\n\n{USE[kind].format(name=about.name)}",
        f"## Results\n\n{_table(results)}",
        f"## Training\n\n{_training(folder, found)}",
        f"## Limits\n\n{_limits(kind, found, results, about.license)}",
        about.notes.strip(),
    ]
    text = "\n\n".join(filter(None, parts))
    return seal(f"---\n{_metadata(kind, about, results)}\n---\n\n{text}\n")


def seal(text: str) -> str:
    """Put the digest of a card in the place of its mark."""
    return text.replace(MARK, SEAL.format(hashlib.sha256(text.encode()).hexdigest()), 1)


def is_unedited(card: str) -> bool:
    """Tell whether a card is as asr-push has written it, so that another push may replace it."""
    plain = re.sub(SEAL.format("[0-9a-f]{64}"), MARK, card, count=1)
    return plain != card and seal(plain) == card


def _install(folder: Path) -> str:
    """Say how to install what the model needs."""
    model = folders.section(folders.read_small_tree(folder / CONFIG), "model")
    if folders.section(model, "encoder").get("kind") == "pretrained":
        return INSTALL.format(extras="hub,pretrained", python=" (Python 3.11 or later)")
    return INSTALL.format(extras="hub", python="")


def _metadata(kind: str, about: About, results: Iterable[Result]) -> str:
    cards = imports.huggingface_hub("huggingface_hub")
    return cards.ModelCardData(
        library_name=LIBRARY,
        license=about.license,
        language=list(about.languages) or None,
        pipeline_tag=TASKS[kind],
        model_name=about.name.partition("/")[2],
        eval_results=[
            cards.EvalResult(
                task_type=TASKS[kind],
                dataset_type=re.sub(r"[^\w.-]+", "-", result.dataset),
                dataset_name=result.dataset,
                metric_type=result.metric.lower(),
                metric_name=f"{result.metric}, {result.search}" if result.search else result.metric,
                metric_value=round(result.value, 2),
            )
            for result in results
        ]
        or None,
    ).to_yaml()


def _summary(kind: str, found: Finding, about: About) -> str:
    facts = found.facts
    spoken = f" for {', '.join(about.languages)}" * bool(about.languages)
    lines = [f"A {KINDS[kind]}{spoken}, {facts['parameters']:,} parameters."]
    for part in ("encoder", "decoder", "layers"):
        if isinstance(sizes := facts.get(part), dict):
            lines.append(f"- {part}: {folders.formatted(sizes)}")
    lines.append(f"- tokens: {facts['tokenizer']}")
    if facts.get("sample_rate_hz"):
        mels = f", {facts['mel_bins']} mel bins" if facts.get("mel_bins") else ""
        lines.append(f"- input: {facts['sample_rate_hz']} Hz{mels}; other rates are resampled")
    return "\n".join([lines[0], "", *lines[1:]])


def _table(results: Sequence[Result]) -> str:
    if not results:
        return "No test set was decoded before this model was published."
    rows = [COLUMNS, ["---"] * len(COLUMNS)]
    for r in results:
        sign = "" if r.metric in ("BLEU", "chrF") else " %"
        score, interval = f"{r.metric} {r.value:.2f}{sign}", f"{r.low:.2f} – {r.high:.2f}"
        rules = "as written" if r.normalization == "none" else r.normalization
        rtf = "" if r.rtf is None else f"{r.rtf:.3f}"
        cells = [
            r.dataset,
            r.search,
            score,
            interval,
            r.utterances,
            rules,
            rtf,
            r.hardware,
            r.commit,
        ]
        rows.append([_cell(str(cell)) for cell in cells])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _training(folder: Path, found: Finding) -> str:
    tree = folders.read_small_tree(folder / CONFIG)
    lines = [
        f"- {split}: {_amount(path)}"
        for split in ("train", "dev")
        for path in _paths(folders.section(tree, "data").get(split))
    ]
    if best := found.facts.get("dev"):
        lines.append(f"- on dev, while training: {folders.formatted(best)}")
    try:
        made = stamp.read(folder)["made"]
        lines.append(
            f"- {made['seconds'] / 3600:.2f} hours on {made['hardware']}, code {made['commit']}"
        )
    except (UserError, KeyError, TypeError):
        lines.append("- the training wasn't finished")
    versions = found.facts.get("made_by") or {}
    lines.append(f"- {folders.formatted(versions)}; all settings: config.yaml")
    return "\n".join(lines)


def _paths(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else [str(path) for path in value or []]


def _amount(path: str) -> str:
    """Say how much a data set holds, where it is still there."""
    try:
        facts = look(path).facts
    except UserError:
        return f"`{path}`"
    if "hours" not in facts:
        return f"`{path}`, {facts.get('lines', 'unknown')} lines"
    people = f" by {facts['speakers']} speakers" * (facts["speakers"] != "unknown")
    return f"`{path}`, {facts['hours']:.2f} hours, {facts['utterances']:,} utterances{people}"


def _limits(kind: str, found: Finding, results: Sequence[Result], given: str) -> str:
    lines = []
    if "nc" in given.split("-"):
        lines.append(f"- Its license ({given}) allows no commercial use.")
    if kind == "hybrid":
        heard = found.facts.get("longest_heard_s")
        cut = (
            f"; longer ones than {FAR * heard:.0f} s are cut at pauses"
            if isinstance(heard, float)
            else ""
        )
        lines.append(f"- It was trained on recordings like those named above{cut}.")
        lines.append(
            "- Speech of other kinds, rooms or accents may have far more errors; test it on yours."
        )
        lines.append("- It writes texts in the spelling of its training's texts.")
    lines.append(
        "- The figures above are of these sets alone."
        if results
        else "- Nothing is known here of how often it is wrong."
    )
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
