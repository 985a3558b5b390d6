"""Prove that imports point down, and three habits of the code that a reader relies on. Found in the source by `ast`.

The layers are those of docs/architecture.md, highest first; a module imports its own layer and those below. Its map of
the folders is compared with what is on disk. The checkers are shown to refuse planted faults.
"""

import ast
import re
from collections import Counter

import pytest
from checkouts import ROOT
from small import rows

PACKAGE = ROOT / "asr"
ROOMS = """
cli api
tasks serving
preflight
training transcription translation scoring info hub
data models search download
features nn text
seeding device ops
config confidence yaml_tree audio failures files formats imports journal memory model_files options outputs parts \
stamp subtitles transcript provenance logging errors asr
"""  # asr: its version
LEVEL = {room: n for n, line in enumerate(ROOMS.strip().splitlines()) for room in line.split()}
# rooms of one layer, or above, that know nothing of each other; info so without PyTorch
STRANGERS = """
search: data features models nn text
data: models nn search
models: data search
nn: data features text
text: features nn
download: data features models nn search text
training: scoring transcription
scoring: features models nn training transcription
transcription: scoring training translation
translation: scoring training
info: features models nn scoring search training transcription
serving: data nn scoring search tasks training
"""
APART = {room: others.split() for room, others in re.findall("(.+): (.+)", STRANGERS)}
SOURCES = {
    ".".join(["asr", *path.relative_to(PACKAGE).with_suffix("").parts]): ast.parse(path.read_text())
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imports(tree):
    """Dotted names that the source imports, at the top and within functions, but for annotations alone."""
    if isinstance(tree, ast.If) and ast.unparse(tree.test) == "TYPE_CHECKING":
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    elif isinstance(tree, ast.ImportFrom):
        assert not tree.level, "a relative import"
        yield from (f"{tree.module}.{alias.name}" for alias in tree.names)
    for child in ast.iter_child_nodes(tree):
        yield from imports(child)


def room(name):
    """The folder or module right below asr."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LEVEL else "asr"


def faults(module, tree):
    """What a module imports and mustn't."""
    own = room(module)
    for name in imports(tree):
        if name.split(".")[0] == "asr":
            other = room(name)
            if LEVEL[other] < LEVEL[own]:
                yield f"{module} imports {name}, which is above it"
            if other in APART.get(own, ()):
                yield f"{module} imports {name}: {own} is to know nothing of {other}"


def mapped(page):
    """The paths that the map of docs/architecture.md names: folders end in a slash."""
    parents, paths = [], set()
    for indent, name in re.findall("(?m)^( +)(\\S+)", re.split("```(?:\nasr/\n)?", page)[1]):
        parents[len(indent) // 2 - 1 :] = [name]
        paths.add("".join(parents))
    return paths


def test_the_map_of_the_documentation_and_the_layers_are_what_is_on_disk():
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    folders = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.rglob("*/__init__.py")}
    there = (folders | {path.name for path in PACKAGE.glob("*.py")}) - {"./", "__init__.py"}
    assert mapped(page[page.index("```\nasr/\n") :]) == there
    assert {re.split("[/.]", name)[0] for name in there} == set(LEVEL) - {"asr"}
    assert len(LEVEL) == len(ROOMS.split())
    planted = "```\nasr/\n  a/   one\n    b/ two\n  c.py three\nconf/  x\n```"
    assert mapped(planted) == {"a/", "a/b/", "c.py"}


def test_imports_point_down():
    found = [fault for module, tree in SOURCES.items() for fault in faults(module, tree)]
    assert not found, "\n".join(found)


REFUSED = """
asr.nn.attention | from asr.models.loss import Loss | above it
asr.nn.attention | import asr.cli.train | above it
asr.nn.attention | def f(): from asr import tasks | above it
asr.files | if True: from asr.text import bpe | above it
asr.search.beam | from asr.models.hybrid import Hybrid | search is to know nothing of models
asr.search.beam | from asr.nn.decoder import TransformerDecoder | search is to know nothing of nn
asr.data.dataset | from asr.nn.attention import attend | data is to know nothing of nn
asr.models.hybrid | from asr.data.batches import Batch | models is to know nothing of data
asr.models.hybrid | from asr.training import loop | above it
asr.config | from asr.features import fbank | above it
asr.data.dataset | from asr.seeding import uniforms; from asr.audio import load; import torch | no
asr.cli.train | from asr import config, tasks; from asr import __version__ | no
asr.training.trainer | from asr.models.recognizer import Recognizer; from asr.data import batches | no
"""


@pytest.mark.parametrize("module, source, fault", rows(REFUSED))
def test_the_checker_refuses(module, source, fault):
    found = [*faults(module, ast.parse(source))]
    assert len(found) == (fault != "no") and all(fault in line for line in found)


def top_level_torchaudio(tree):
    """Imports of torchaudio outside of functions."""
    if isinstance(tree, ast.Import | ast.ImportFrom):
        yield from (name for name in imports(tree) if name.split(".")[0] == "torchaudio")
    elif not isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef):
        for node in ast.iter_child_nodes(tree):
            yield from top_level_torchaudio(node)


def inversions(tree):
    """The inverted names, `~mask`."""
    for node in ast.walk(tree):
        if isinstance(getattr(node, "op", None), ast.Invert):
            yield ast.unparse(node)
        if getattr(node, "attr", None) in ("logical_not", "bitwise_not", "logical_not_"):
            yield ast.unparse(node)


STATEMENTS = "Import ImportFrom FunctionDef AsyncFunctionDef ClassDef Assign AnnAssign AugAssign"


def acts(tree):
    """Top-level statements that do more than define: calls, loops, prints."""
    for node in tree.body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        test = ast.unparse(node.test) if isinstance(node, ast.If) else ""
        guarded = test in ("__name__ == '__main__'", "TYPE_CHECKING")
        if type(node).__name__ not in STATEMENTS.split() and not text and not guarded:
            yield ast.unparse(node).splitlines()[0]


def prints(tree):
    """Calls of print."""
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [name for name in calls if name == "print"]


INVERTED = {
    "asr.nn.attention": {"~mask"},
    "asr.nn.encoders.families.parakeet": {
        "~key_mask(H_lens, H.size(1))",
        "~length_mask(lens, E.size(1))",
    },
    "asr.nn.encoders.families.w2v_bert": {"~padding"},
    "asr.nn.encoders.families.waveform": {"~length_mask(H_lens, H.size(1))"},
}
PRINT = {"asr.cli.command": {"print"}, "asr.logging": {"print"}}


@pytest.mark.parametrize(
    "checker, known, planted",
    [
        # what doesn't need it goes on working where it can't be imported
        (top_level_torchaudio, {}, "import torchaudio"),
        (top_level_torchaudio, {}, "from torchaudio.compliance import kaldi"),
        (top_level_torchaudio, {}, "try:\n import torchaudio as t\nfinally: 0"),
        (top_level_torchaudio, {}, "class A:\n    import torchaudio"),
        # True = masked out everywhere in nn; only PyTorch's kernel and transformers take the opposite
        (inversions, INVERTED, "keep = ~mask"),
        (inversions, INVERTED, "mask.logical_not()"),
        # the two sides of YAML learn one pattern of numbers
        (acts, {"asr.yaml_tree": {"for _side in (_Loader, _Dumper):"}}, "import a\na.seed(1)"),
        # `emit` reports a standard output that is full or closed; a bare print ends in a traceback there
        (prints, PRINT, "if x:\n    print(1)"),
    ],
)
def test_a_habit_is_kept_but_in_known_modules(checker, known, planted):
    found = {module: set(checker(tree)) for module, tree in SOURCES.items()}
    if checker is inversions:
        found = {module: names for module, names in found.items() if ".nn." in module}
    assert {module: names for module, names in found.items() if names} == known
    assert len([*checker(ast.parse(planted))]) == 1
    assert not [*checker(ast.parse("import torch\ndef f():\n    import torchaudio"))]


def test_public_classes_have_names_of_their_own():
    nodes = [node for tree in SOURCES.values() for node in tree.body]
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert [name for name, times in names.items() if times > 1 and name[0] != "_"] == []
