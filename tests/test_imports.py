"""Prove that imports point down, and three habits of the code that a reader relies on. Found in the source by `ast`.

The layers are those of docs/architecture.md, highest first; a module imports its own layer and those below. Its map of
the folders is compared with what is on disk. The checkers are shown to refuse planted faults.
"""

import ast
from pathlib import Path

import pytest
from small import rows

PACKAGE = Path(__file__).parents[1] / "asr"
ROOMS = """
cli api
tasks
preflight
training transcription scoring info
data models search download
features nn text
seeding device ops
config yaml_tree audio failures files imports journal memory model_files options outputs stamp \
transcript provenance logging errors asr
"""  # asr: its version
LAYERS = [set(line.split()) for line in ROOMS.strip().splitlines()]
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
transcription: scoring training
info: features models nn scoring search training transcription
"""
APART = {
    room: set(others.split())
    for room, others in (line.split(": ") for line in STRANGERS.strip().splitlines())
}
LEVEL = {room: n for n, rooms in enumerate(LAYERS) for room in rooms}


def sources():
    """Module name → its source."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {
        ".".join(["asr", *path.relative_to(PACKAGE).with_suffix("").parts]): path.read_text()
        for path in files
    }


def imports(tree):
    """Dotted names that the source imports, at the top and within functions, but for annotations alone."""
    for_annotations = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"
    ]
    left_out = {child for node in for_annotations for child in ast.walk(node)}
    for node in ast.walk(tree):
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room(name):
    """The folder or module right below asr."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in LEVEL else "asr"


def faults(module, source):
    """What a module imports and mustn't."""
    own = room(module)
    for name in imports(ast.parse(source)):
        if name.split(".")[0] != "asr":
            continue
        other = room(name)
        if LEVEL[other] < LEVEL[own]:
            yield f"{module} imports {name}, which is above it"
        if other in APART.get(own, ()):
            yield f"{module} imports {name}: {own} is to know nothing of {other}"


def top_level_torchaudio(source):
    """Whether importing the module imports torchaudio: an import outside of functions."""
    body = list(ast.parse(source).body)
    while body:
        node = body.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)) and any(
            n.split(".")[0] == "torchaudio" for n in imports(node)
        ):
            return True
        body += list(ast.iter_child_nodes(node))
    return False


def inversions(source):
    """The inverted names, `~mask`, of a source."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(getattr(node, "op", None), ast.Invert):
            yield ast.unparse(node)
        if getattr(node, "attr", None) in ("logical_not", "bitwise_not", "logical_not_"):
            yield ast.unparse(node)


def test_every_room_has_its_layer():
    rooms = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms - {"__init__"} == set(LEVEL) - {"asr"}
    assert len(LEVEL) == sum(map(len, LAYERS))


def mapped(page):
    """The paths that the map of docs/architecture.md names: folders end in a slash."""
    parents, paths = [], set()
    for line in page.partition("```\nasr/\n")[2].partition("```")[0].splitlines():
        name = line.split()[0]
        if not line.startswith(" "):
            break
        del parents[(len(line) - len(line.lstrip())) // 2 - 1 :]
        parents.append(name)
        paths.add("".join(parents))
    return paths


def test_the_map_of_the_documentation_is_what_is_on_disk():
    page = (PACKAGE.parent / "docs/architecture.md").read_text(encoding="utf-8")
    folders = {
        f"{path.parent.relative_to(PACKAGE).as_posix()}/" for path in PACKAGE.rglob("*/__init__.py")
    }
    assert mapped(page) == (folders | {path.name for path in PACKAGE.glob("*.py")}) - {
        "./",
        "__init__.py",
    }
    planted = "```\nasr/\n  a/   one\n    b/ two\n  c.py three\nconf/  x\n```"
    assert mapped(planted) == {"a/", "a/b/", "c.py"}


def test_imports_point_down():
    found = [fault for module, source in sources().items() for fault in faults(module, source)]
    assert not found, "\n".join(found)


REFUSED = """
asr.nn.attention | from asr.models.loss import Loss | above it
asr.nn.attention | import asr.cli.train | above it
asr.nn.attention | def f(): from asr import tasks | above it
asr.files | if True: from asr.text import bpe | above it
asr.search.beam | from asr.models.hybrid import Hybrid | search is to know nothing of models
asr.search.beam | from asr.nn.decoder import TransformerDecoder | search is to know nothing of nn
asr.data.dataset | from asr.nn.attention import attend | data is to know nothing of nn
asr.models.hybrid | from asr.data.dataset import Batch | models is to know nothing of data
asr.models.hybrid | from asr.training import loop | above it
asr.config | from asr.features import fbank | above it
asr.data.dataset | from asr.seeding import uniforms; from asr.audio import load; import torch | no
asr.cli.train | from asr import config, tasks; from asr import __version__ | no
asr.training.trainer | from asr.models.recognizer import Recognizer; from asr.data import batches | no
"""


@pytest.mark.parametrize("module, source, fault", rows(REFUSED))
def test_the_checker_refuses(module, source, fault):
    assert [fault in found for found in faults(module, source)] == [True] * (fault != "no")


def test_torchaudio_is_imported_nowhere_at_the_top():
    """What doesn't need it goes on working where it can't be imported."""
    assert [module for module, source in sources().items() if top_level_torchaudio(source)] == []
    for planted in (
        "import torchaudio",
        "from torchaudio.compliance import kaldi",
        "try:\n import torchaudio as t\nfinally: 0",
    ):
        assert top_level_torchaudio(planted)
    assert top_level_torchaudio("class A:\n    import torchaudio")
    assert not top_level_torchaudio("import torch\ndef f():\n    import torchaudio")


def test_masks_are_inverted_once():
    """True = masked out everywhere in nn; only PyTorch's kernel takes the opposite."""
    found = {module: [*inversions(source)] for module, source in sources().items()}
    inverted = {module: names for module, names in found.items() if names and ".nn." in module}
    assert inverted == {"asr.nn.attention": ["~mask"]}
    planted = "keep = ~mask, mask.logical_not()"
    assert [*inversions(planted)] == ["~mask", "mask.logical_not"]


def statements_that_act(source):
    """Top-level statements that do more than define: calls, loops, prints."""
    names = "Import ImportFrom FunctionDef ClassDef Assign AnnAssign AugAssign"
    allowed = tuple(getattr(ast, name) for name in names.split())
    for node in ast.parse(source).body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        main = isinstance(node, ast.If) and ast.unparse(node.test) in (
            "__name__ == '__main__'",
            "TYPE_CHECKING",
        )
        if not isinstance(node, allowed) and not text and not main:
            yield ast.unparse(node).splitlines()[0]


def test_importing_a_module_does_nothing_else():
    found = {module: list(statements_that_act(source)) for module, source in sources().items()}
    found = {module: acts for module, acts in found.items() if acts}
    # the two sides of YAML learn one pattern of numbers
    assert found == {"asr.yaml_tree": ["for _side in (_Loader, _Dumper):"]}
    assert list(statements_that_act("'text'\nimport torch\ntorch.manual_seed(1)")) == [
        "torch.manual_seed(1)"
    ]


def test_results_are_printed_by_emit_alone():
    """It tells of a standard output that is full or closed; a bare print ends in a traceback there."""
    found = [module for module, source in sources().items() if "print" in called(source)]
    assert found == ["asr.cli.command", "asr.logging"]
    assert "print" in called("if x:\n    print(1)")


def called(source):
    """Names of functions that a source calls."""
    calls = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def newer_than_python_3_10(source):
    """Names of `typing` that Python 3.10, the oldest one supported, doesn't have."""
    newer = "Self Never LiteralString Required NotRequired Unpack TypeVarTuple override assert_never assert_type"
    return {f"typing.{name}" for name in newer.split()} & set(imports(ast.parse(source)))


def test_the_oldest_python_has_what_is_imported():
    assert {
        module: found
        for module, source in sources().items()
        if (found := newer_than_python_3_10(source))
    } == {}
    assert newer_than_python_3_10("from typing import Any, Self") == {"typing.Self"}
