"""Prove that imports point down, and three habits of the code that a reader relies on. Found in the source by `ast`.

The layers are those of docs/design.md, highest first; a module imports its own layer and those below. The checker is
shown to refuse planted faults.
"""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "asr"
LAYERS = [
    {"cli"},
    {"run", "preflight"},
    {"experiment"},
    {"training", "transcribe", "scoring"},
    {"data", "models", "search", "download"},
    {"features", "nn", "text"},
    {
        "config",
        "tree",
        "audio",
        "archive",
        "files",
        "stamp",
        "origin",
        "say",
        "optional",
        "errors",
        "asr",
    },  # asr: its version
]
SHARED = ("asr.nn.masks.", "asr.nn.gather.")  # functions of tensors, no modules; masks are made there and nowhere else
APART = {  # rooms of one layer, or above, that know nothing of each other
    "search": {"models", "nn", "data", "features", "text"},
    "data": {"models", "nn", "search"},
    "models": {"data", "search"},
    "nn": {"features", "text", "data"},
    "text": {"nn", "features"},
    "download": {"data", "models", "search", "features", "nn", "text"},
    "training": {"transcribe", "scoring"},
    "scoring": {"training", "transcribe", "models", "nn", "features"},
    "transcribe": {"training", "scoring"},
}
LEVEL = {room: n for n, rooms in enumerate(LAYERS) for room in rooms}


def sources():
    """Module name → its source."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {".".join(["asr", *path.relative_to(PACKAGE).with_suffix("").parts]): path.read_text() for path in files}


def imports(tree):
    """Dotted names that the source imports, at the top and within functions."""
    for node in ast.walk(tree):
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
        if other in APART.get(own, ()) and not (own == "search" and f"{name}.".startswith(SHARED)):
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
    nodes = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)
    ]
    calls = [n for n in ast.walk(ast.parse(source)) if isinstance(n, (ast.Attribute, ast.Name))]
    named = {"logical_not", "bitwise_not", "logical_not_"}
    return [ast.unparse(n) for n in nodes] + [ast.unparse(c) for c in calls if getattr(c, "attr", None) in named]


def test_every_room_has_its_layer():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - {"__init__"} == set(LEVEL) - {"asr"}
    assert len(LEVEL) == sum(map(len, LAYERS))


def test_imports_point_down():
    found = [fault for module, source in sources().items() for fault in faults(module, source)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "module, source, fault",
    [
        ("asr.nn.attention", "from asr.models.loss import Loss", "above it"),
        ("asr.nn.attention", "import asr.cli.train", "above it"),
        ("asr.nn.attention", "def f():\n    from asr import experiment", "above it"),
        ("asr.files", "if True:\n    from asr.text import bpe", "above it"),
        ("asr.search.beam", "from asr.models.hybrid import Hybrid", "search is to know nothing of models"),
        ("asr.search.beam", "from asr.nn.decoder import TransformerDecoder", "search is to know nothing of nn"),
        ("asr.data.batches", "from asr.nn.masks import length_mask", "data is to know nothing of nn"),
        ("asr.models.hybrid", "from asr.data.batches import Batch", "models is to know nothing of data"),
        ("asr.models.hybrid", "from asr.training import loop", "above it"),
        ("asr.config", "from asr.features import fbank", "above it"),
    ],
)
def test_the_checker_refuses(module, source, fault):
    assert any(fault in found for found in faults(module, source))


@pytest.mark.parametrize(
    "module, source",
    [
        ("asr.data.batches", "from asr.features.noise import uniforms\nfrom asr import audio\nimport torch"),
        ("asr.cli.train", "from asr import config, experiment\nfrom asr import __version__"),
        ("asr.training.loop", "from asr.models.recognizer import Recognizer\nfrom asr.data import batches"),
    ],
)
def test_the_checker_accepts(module, source):
    assert not list(faults(module, source))


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
    """True = masked out everywhere in nn; only PyTorch's kernel wants the opposite."""
    found = {module: inversions(source) for module, source in sources().items() if module.startswith("asr.nn.")}
    assert {module: names for module, names in found.items() if names} == {"asr.nn.attention": ["~mask"]}
    assert inversions("keep = ~mask") == ["~mask"] and inversions("keep = mask.logical_not()") == ["mask.logical_not"]


def statements_that_act(source):
    """Top-level statements that do more than define: calls, loops, prints."""
    allowed = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.AugAssign)
    for node in ast.parse(source).body:
        text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        main = isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)
        if not isinstance(node, allowed) and not text and not main:
            yield ast.unparse(node).splitlines()[0]


def test_importing_a_module_does_nothing_else():
    found = {module: list(statements_that_act(source)) for module, source in sources().items()}
    found = {module: acts for module, acts in found.items() if acts}
    # the two sides of YAML learn one pattern of numbers
    assert found == {"asr.tree": ["for _side in (_Loader, _Dumper):"]}
    assert list(statements_that_act("'text'\nimport torch\ntorch.manual_seed(1)")) == ["torch.manual_seed(1)"]
