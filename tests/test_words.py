"""Keep retired names, retired phrases and British spellings out of the code and its texts (CONTRIBUTING.md, Words).

Names are those of functions, classes, arguments, attributes, variables and modules in asr/, found by `ast`. Phrases and
spellings are searched in all text that git tracks. Words that are good English by themselves are never refused alone.
What still stands is in ALLOWED and may only become fewer. The checkers are shown to refuse planted faults.
"""

import ast
import re
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import yaml
from checkouts import ROOT
from small import rows

from asr import __version__

SUFFIXES = {".py", ".md", ".sh", ".sbatch", ".yaml", ".toml", ".cff"}
LISTS = {"tests/test_words.py", "CONTRIBUTING.md"}  # of the retired words
# grammars of corpora that don't change any more
EXEMPT = LISTS | {"recipes/mini/grammar.py", "recipes/aishell/mandarin.py"}

# what isn't to be a name in asr/; CONTRIBUTING.md says what to use
RETIRED = """surety lent figures pictures taking_part tell_long memory_told is_out undisturbed wishes obey rehearse
insist obtain news say said told sitting sittings mend mended foretell TRAINERS IMMATERIAL"""
# one … per …; the number; see …; session, estimate, fix, log confidence; is reported; continues where it stopped
PHRASES = re.compile(
    r"""\ba\ \w+\ an?\ (recording|utterance|token|line|sentence|layer|frame|label|file|process|processor|core|GPU|
        corpus|split|epoch|step)\b(?!\ of)
    |\b(of|for|by|in|with|after|takes?)\ so\ many\b
    |\bas\ of\ [`A-Za-z]+\.(py|yaml|md)
    |\b(sittings?|foretells?|foretold|mend(ed|s|ing)?|surety)\b
    |\b(is|are|was|were)\ told\b
    |\b(goes|go|went)\ on\ where\ it\ was\b""",
    re.VERBOSE,
)
BRITISH = re.compile(
    r"""(recogni|optimi|normali|initiali|synthesi|regulari|tokeni|organi|seriali|summari|generali|penali|equali|capitali|
        minimi|maximi|utili|memori|randomi|quanti|paralleli|vectori|standardi|categori|prioriti|materiali|discreti|
        emphasi|reali|visuali|locali|finali|speciali|customi|authori|symboli|characteri)
        s(e|ed|es|er|ers|ing|ation|ations|able)(?![a-z])
    |(misbehavi|behavi|col|fav|neighb|hon|lab|flav|hum)our
    |(?<![a-z])(kilo|centi|milli)?(centre|metre|theatre|fibre|litre)s?(?![a-z])
    |(licen|defen|offen|preten)ce
    |(label|model|travel|signal|channel|total|level)l(ed|ing|er)(?![a-z])
    |analys(e|ed|ing|er)(?![a-z])
    |catalogue|artefact|(?<![a-z])grey(?![a-z])|judgement|(?<![a-z])learnt|misspelt|(?<![a-z])spelt|whilst|amongst|skilful
    """,
    re.IGNORECASE | re.VERBOSE,
)
# the option's old spelling, still accepted; libsndfile's words
KEPT = re.compile(r"--normalise\b|Format not recognised")

# what still stands in the repository, by word: lower it, never raise it
ALLOWED = yaml.safe_load(
    """
    a line a recording: 1
    a request a line: 1
    a state a step: 1
    a table a split: 1
    after so many: 2
    are told: 2
    for so many: 1
    foretells: 1
    insist: 1
    is told: 4
    of so many: 6
    tokenise: 2
    told: 2
    was told: 1
    """
)


def texts():
    """Every text that git tracks, with its path; all files of these kinds in a copy without git."""
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    names = done.stdout.splitlines() or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
    for name in names:
        path, known = ROOT / name, name in EXEMPT or name.startswith((".venv", ".bench"))
        if path.suffix in SUFFIXES and path.is_file() and not known:
            yield name, path.read_text(encoding="utf-8", errors="replace")


def retired_names(path, source):
    """Retired names that a file of asr/ defines (functions, classes, arguments, variables, attributes), or has."""
    found = [Path(path).stem]
    for node in ast.walk(ast.parse(source)):
        names = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.arg
        if isinstance(node, names) or isinstance(getattr(node, "ctx", None), ast.Store):
            found += [getattr(node, field, "") for field in ("name", "arg", "id", "attr")]
    return [bare for name in found if (bare := name.strip("_")) in RETIRED.split()]


def retired_phrases(text):
    return [" ".join(found[0].split()) for found in PHRASES.finditer(text)]


def british(text):
    """British spellings of a text."""
    words = re.findall("[A-Za-z]+", KEPT.sub("", text))
    return [spelling for word in words for spelling in british_of_a_word(word)]


@cache
def british_of_a_word(word):
    """British spellings within a word, which may be of several (CamelCase)."""
    return [found[0].lower() for found in BRITISH.finditer(word)]


def test_nothing_retired_comes_back():
    found = {}
    for path, text in texts():
        found[path] = Counter(british(text) + retired_phrases(text))
        if path.startswith("asr/") and path.endswith(".py"):
            found[path].update(retired_names(path, text))
    more = sum(found.values(), Counter()) - Counter(ALLOWED)
    where = {word: [path for path in found if word in found[path]] for word in more}
    assert not more, f"retired (CONTRIBUTING.md, Words): {where}"


NAMES = """
asr/a.py                 | def obey(x): ...                         | obey
asr/a.py                 | class A: async def _rehearse(self): ...  | rehearse
asr/a.py                 | def f(*, wishes=0): ...                  | wishes
asr/a.py                 | self.figures = 1                         | figures
asr/a.py                 | for said, x in y: ...                    | said
asr/a.py                 | with open(x) as news: ...                | news
asr/training/pictures.py | x = 1                                    | pictures
asr/a.py                 | metrics = f(figures.total)  # another's  | -
asr/a.py                 | 'figures'                                | -
"""


@pytest.mark.parametrize("path, source, expected", rows(NAMES))
def test_retired_names_are_found(path, source, expected):
    source = source.replace(": async", ":\n async")
    assert retired_names(path, source) == ([] if expected == "-" else [expected])


PLANTED = """a line a recording
writes a process a core
takes so many epochs
the settings as of conf.yaml
the seconds of all sittings
It foretells the time.
the reason is told
It goes on where it was stopped."""
GOOD = "one line per recording, so many that nobody counts, recommends amending, told"


def test_retired_phrases_are_found_and_good_english_is_left_alone():
    assert all(len(retired_phrases(line)) == 1 for line in PLANTED.splitlines())
    assert not retired_phrases(GOOD)


FOUND = """recogniser Optimisers normalised tokenise synthesises initialisation colour neighbours behaviour centre
licence labelled modelling analysed learnt misspelt grey unrecognised test_a_recogniser COLOURS FAVOURITE"""
AMERICAN = """recognizer optimize analyses synthesis labels modeled four hour parameter center license emphasis promise
precise --normalise concise organism spelling analysis greyhound"""


def test_british_spellings_are_found_and_american_ones_left_alone():
    assert all(len(british(f"the {word} of")) == 1 for word in FOUND.split())
    assert not british(AMERICAN)


def test_the_citation_and_the_changelog_know_the_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## {__version__} (" in (ROOT / "CHANGELOG.md").read_text("utf-8")
