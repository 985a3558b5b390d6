"""Keep retired names, retired phrases and British spellings out of the code and its texts (CONTRIBUTING.md, Words).

Names are those of functions, classes, arguments, attributes, variables and modules in asr/, found by `ast`. Phrases and
spellings are searched in all text that git tracks. Words that are good English by themselves are never refused alone.
What still stands is in ALLOWED and may only become fewer. The checkers are shown to refuse planted faults.
"""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from asr import __version__

ROOT = Path(__file__).parents[1]
SUFFIXES = {".py", ".md", ".sh", ".sbatch", ".yaml", ".toml", ".cff"}
LISTS = {"tests/test_words.py", "CONTRIBUTING.md"}  # of the retired words
GRAMMARS = {
    "recipes/mini/grammar.py",
    "recipes/aishell/mandarin.py",
}  # of corpora that don't change any more
EXEMPT = LISTS | GRAMMARS

RETIRED = {  # a name in asr/ → what to use
    "surety": "log_confidence",
    "lent": "partial_credit",
    "figures": "metrics",
    "pictures": "plots",
    "taking_part": "layerdrop_mask",
    "tell_long": "warn_long",
    "memory_told": "explain_oom",
    "is_out": "is_oom",
    "undisturbed": "signals_blocked",
    "wishes": "requests",
    "obey": "handle_requests",
    "rehearse": "warm_up_largest_batch",
    "insist": "retry",
    "obtain": "download",
    "news": "first_needed",
    "say": "logging",
    "said": "log, message",
    "told": "message, warned",
    "sitting": "session",
    "sittings": "sessions",
    "mend": "fix",
    "mended": "fixed",
    "foretell": "estimate",
    "TRAINERS": "TRAINING_SIGNALS",
    "IMMATERIAL": "NOT_IN_STAMP",
}

UNIT = (
    "recording|utterance|token|line|sentence|layer|frame|label|file|process|processor|core|GPU|"
    "corpus|split|epoch|step"
)
PHRASES = {  # a regular expression → what to write
    rf"\ba \w+ an? ({UNIT})\b(?! of)": "one … per …",
    r"\b(of|for|by|in|with|after|takes?) so many\b": "the number",
    r"\bas of [`A-Za-z]+\.(py|yaml|md)": "see …",
    r"\b(sittings?|foretells?|foretold|mend(ed|s|ing)?|surety)\b": "session, estimate, fix, log confidence",
    r"\b(is|are|was|were) told\b": "is reported, is logged",
    r"\b(goes|go|went) on where it was\b": "continues where it stopped",
}

ISE = (
    "recogni|optimi|normali|initiali|synthesi|regulari|tokeni|organi|seriali|summari|generali|penali|equali|capitali|"
    "minimi|maximi|utili|memori|randomi|quanti|paralleli|vectori|standardi|categori|prioriti|materiali|discreti|"
    "emphasi|reali|visuali|locali|finali|speciali|customi|authori|symboli|characteri"
)
BRITISH = [
    rf"(?:{ISE})s(?:e|ed|es|er|ers|ing|ation|ations|able)(?![a-z])",
    r"(?:misbehavi|behavi|col|fav|neighb|hon|lab|flav|hum)our",
    r"(?<![a-z])(?:kilo|centi|milli)?(?:centre|metre|theatre|fibre|litre)s?(?![a-z])",
    r"(?:licen|defen|offen|preten)ce",
    r"(?:label|model|travel|signal|channel|total|level)l(?:ed|ing|er)(?![a-z])",
    r"analys(?:e|ed|ing|er)(?![a-z])",
    r"catalogue|artefact|(?<![a-z])grey(?![a-z])|judgement|(?<![a-z])learnt|misspelt|(?<![a-z])spelt|whilst|amongst|skilful",
]
SPELLINGS = re.compile("|".join(BRITISH), re.IGNORECASE)
KEPT = re.compile(
    r"--normalise\b|Format not recognised"
)  # the option's old spelling, still accepted; libsndfile's words

ALLOWED: dict[str, int] = {
    "a line a recording": 1,
    "a request a line": 1,
    "a state a step": 1,
    "a table a split": 1,
    "after so many": 2,
    "are told": 2,
    "for so many": 1,
    "foretells": 1,
    "insist": 1,
    "is told": 4,
    "of so many": 6,
    "tokenise": 2,
    "told": 2,
    "was told": 1,
}  # what still stands in the repository, by word: lower it, never raise it


def texts() -> Iterator[tuple[str, str]]:
    """Every text that git tracks, with its path; all files of these kinds in a copy without git."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.splitlines() or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
    for name in names:
        path = ROOT / name
        if (
            path.suffix in SUFFIXES
            and path.is_file()
            and name not in EXEMPT
            and not name.startswith((".venv", ".bench"))
        ):
            yield name, path.read_text(encoding="utf-8", errors="replace")


def names(source: str) -> Iterator[str]:
    """The names that a source defines: functions, classes, arguments, attributes, variables."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def retired_names(path: str, source: str) -> Iterator[str]:
    """Retired names that a file of asr/ defines, or has as its own."""
    for name in (*names(source), Path(path).stem):
        if (bare := name.strip("_")) in RETIRED:
            yield bare


def retired_phrases(text: str) -> Iterator[str]:
    """Retired phrases of a text."""
    for pattern in PHRASES:
        for found in re.finditer(pattern, text):
            yield " ".join(found[0].split())


def british(text: str) -> Iterator[str]:
    """British spellings of a text."""
    for word in re.findall("[A-Za-z]+", KEPT.sub("", text)):
        yield from british_of_a_word(word)


@cache
def british_of_a_word(word: str) -> list[str]:
    """British spellings within a word, which may be of several (CamelCase)."""
    return [found[0].lower() for found in SPELLINGS.finditer(word)]


def standing() -> dict[str, Counter]:
    """What stands in the repository: path → its faults."""
    found = {}
    for path, text in texts():
        faults = Counter([*british(text), *retired_phrases(text)])
        if path.startswith("asr/"):
            faults.update(retired_names(path, text) if path.endswith(".py") else ())
        if faults:
            found[path] = faults
    return found


def test_nothing_retired_comes_back():
    found = standing()
    total = sum(found.values(), Counter())
    more = {
        word: [path for path in found if word in found[path]]
        for word in total
        if total[word] > ALLOWED.get(word, 0)
    }
    assert not more, f"retired (CONTRIBUTING.md, Words): {more}"


@pytest.mark.parametrize(
    "source, expected",
    [
        ("def obey(x): ...", ["obey"]),
        ("class A:\n    def _rehearse(self): ...", ["rehearse"]),
        ("def f(*, wishes=0): ...", ["wishes"]),
        ("self.figures = 1", ["figures"]),
        ("for said, x in y: ...", ["said"]),
        ("with open(x) as news: ...", ["news"]),
        ("metrics = f(figures.total)", []),  # somebody else's name
        ("'figures'", []),
    ],
)
def test_retired_names_are_found(source, expected):
    assert list(retired_names("asr/a.py", source)) == expected


def test_names_of_modules_are_found():
    assert list(retired_names("asr/training/pictures.py", "")) == ["pictures"]


@pytest.mark.parametrize(
    "text",
    [
        "A line a recording",
        "writes a process a core",
        "takes so many epochs",
        "the settings as of conf.yaml",
        "the seconds of all sittings",
        "It foretells the time.",
        "the reason is told",
        "It goes on where it was stopped.",
    ],
)
def test_retired_phrases_are_found(text):
    assert len(list(retired_phrases(text.replace("A line", "a line")))) == 1


@pytest.mark.parametrize(
    "text", ["one line per recording", "so many that nobody counts", "recommends amending", "told"]
)
def test_good_english_is_left_alone(text):
    assert not list(retired_phrases(text))


@pytest.mark.parametrize(
    "word",
    [
        "recogniser",
        "Optimisers",
        "normalised",
        "tokenise",
        "synthesises",
        "initialisation",
        "colour",
        "neighbours",
        "behaviour",
        "centre",
        "licence",
        "labelled",
        "modelling",
        "analysed",
        "learnt",
        "misspelt",
        "grey",
        "unrecognised",
        "test_a_recogniser",
        "COLOURS",
        "FAVOURITE",
    ],
)
def test_british_spellings_are_found(word):
    assert len(list(british(f"the {word} of"))) == 1


@pytest.mark.parametrize(
    "word",
    [
        "recognizer",
        "optimize",
        "analyses",
        "synthesis",
        "labels",
        "modeled",
        "four",
        "hour",
        "parameter",
        "center",
        "license",
        "emphasis",
        "promise",
        "precise",
        "--normalise",
        "concise",
        "organism",
        "spelling",
        "analysis",
        "greyhound",
    ],
)
def test_american_spellings_are_left_alone(word):
    assert not list(british(f"the {word} of"))


def test_the_citation_and_the_changelog_know_the_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {__version__} (" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


if __name__ == "__main__":  # what stands, by file and in all
    for path, faults in standing().items():
        print(path, dict(faults))
    print(dict(sorted(sum(standing().values(), Counter()).items())))
