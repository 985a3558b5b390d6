"""Laws of fine-tuning: what fits is copied to the bit, rows go with their tokens, what is frozen stays, a resumed run
equals an uninterrupted one. Source weights are random, so that no tensor equals another by chance; the rows that
tokens share are found by hand.
"""

import importlib
import shutil
from pathlib import Path

import pytest
import torch
from refusals import refused
from runs import assert_same, experiment, make_root, stop, train, weights
from small import each, rows, slow
from test_lm import CONFIG as LM_CONFIG

from asr import config
from asr.models import recognizer
from asr.models.transfer import BY_TOKEN, load_what_fits, shared_tokens, unlike_settings
from asr.text import tokenizer
from asr.training.build import build, fine_tune
from asr.training.identity import stamp_of
from asr.training.layers import freeze

TOKENIZERS = "tokenizer", "new"
OLD, NEW = "LOW MID HIGH", "HI WORLD"  # characters of the old and of the new texts
OLD_IDS = [0, 1, 2, 4, 5, 6, 8, 9, 10]  # <blank>, " DHILOW" in code points, <sos/eos>
NEW_IDS = [0, 1, 2, 3, 4, 5, 6, 8, 9]
ROWS = [f"model.decoder.{name}" for name in ("embedding.weight", "out.weight", "out.bias")]
ROWS += ["model.ctc_out.weight", "model.ctc_out.bias"]
SHAPE = """
model.encoder.ff          | 8
model.encoder.layers      | 1
model.encoder.subsampling | 8
features.fbank.mels       | 20
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A corpus, two tokenizers, a pre-trained recognizer and a language model, their weights random."""
    root = make_root(tmp_path_factory.mktemp("transfer"))
    tokenizer.train("characters", [NEW]).save(root / "new")
    (root / "train.txt").write_text("LOW MID HIGH\nHIGH LOW\nMID\n" * 20)
    (root / "dev.txt").write_text("LOW MID\n")
    (root / "lm.yaml").write_text(LM_CONFIG.format(root=root))
    for name in ("x", "lm"):
        save(root / f"base-{name}", experiment(root, name=name))
    return root


def make(settings, seed):
    """A model with random weights and statistics."""
    model, generator = build(settings), torch.Generator().manual_seed(seed)
    for tensor in model.state_dict().values():
        tensor.add_(torch.rand(tensor.shape, generator=generator))
    return model


def save(folder, settings, seed=5):
    model = make(settings, seed)
    model.save(folder, config.dump(settings))
    return model.model


def take(root, *overrides, name="x", base=None):
    """The weights of a random model before it takes those of a folder, the model after that, and the report."""
    model = make(experiment(root, *overrides, name=name), seed=2)
    return weights(model), model, load_what_fits(model, base or root / f"base-{name}")


# ---- what fits


@each("name", ["x", "lm"])
def test_a_model_of_the_same_sizes_and_tokenizer_takes_all(root, name):
    _, model, transfer = take(root, name=name)
    assert_same(weights(model), weights(type(model).load(root / f"base-{name}")))
    assert {*transfer.words.values()} == {"loaded"} and not transfer.notes
    assert transfer.has_statistics == (name == "x")


@each("name", ["x", "lm"])
def test_by_token_are_the_modules_whose_shape_follows_the_vocabulary(root, name):
    old, new = (shapes(experiment(root, f"tokenizer={root}/{t}", name=name)) for t in TOKENIZERS)
    differ = [name for name in old if old[name] != new[name]]
    modules, follow = ({name.rpartition(".")[0] for name in some} for some in (old, differ))
    assert follow and follow == modules & BY_TOKEN.keys()


def test_rows_of_shared_characters_are_carried_over(root):
    before, model, transfer = take(root, f"tokenizer={root}/new")
    expected = weights(recognizer.load(root / "base-x"))
    for name in ROWS:
        rows = expected[name][OLD_IDS]
        expected[name] = before[name].index_copy(0, torch.tensor(NEW_IDS), rows)
    assert_same(weights(model), expected)
    assert transfer.rows == dict.fromkeys(ROWS, (9, 10))
    assert "70 of 75 tensors loaded, 5 by their tokens' rows\n" in transfer.message
    assert "model.decoder.out.* (2): 9 of 10 rows" in transfer.message


def test_tokens_count_and_not_their_number(root, tmp_path):
    """Tokenizers of one size and other characters: shapes agree, rows don't."""
    tokenizer.train("characters", ["ABCDEFGHI"]).save(tmp_path)
    before, model, transfer = take(root, f"tokenizer={tmp_path}")
    assert transfer.rows["model.ctc_out.bias"] == (6, 11)  # D G H I, blank and <sos/eos>
    assert_same(model.model.ctc_out.bias[1], before["model.ctc_out.bias"][1])


def test_tokens_are_paired_by_their_text_and_roles():
    pieces, few = tokenizer.train("bpe", [OLD] * 9, 14), tokenizer.train("characters", ["LO"])
    ids, of_few = shared_tokens(pieces, few)
    assert [pieces.symbols()[n] for n in ids] == ["<blank>", "L", "O", "<sos/eos>"]
    assert of_few == [0, 1, 2, 3]


@each("old, new", [("false", "true"), ("true", "false"), ("true", "true")])
def test_tied_weights(root, tmp_path, old, new):
    source = save(tmp_path, experiment(root, f"model.tied={old}", name="lm"))
    _, model, transfer = take(root, f"model.tied={new}", name="lm", base=tmp_path)
    decoder, theirs = model.model.decoder, source.decoder.embedding.weight
    embedding, out = decoder.embedding.weight, decoder.out.weight
    assert (out is embedding) == (new == "true")
    assert_same((embedding, out), (theirs, theirs))  # the tied output projection was the embedding
    assert transfer.unused == ["model.decoder.out.weight"] * (old == "false")
    assert not transfer.missing and not transfer.other_shape


def test_what_does_not_fit_is_told(root):
    sizes = "model.encoder.layers=3", "model.decoder.ff=48", "features.fbank.mels=20"
    before, model, transfer = take(root, *sizes)
    layer = "model.decoder.layers.0.ff.inner.weight"
    assert f"{layer}: got (64, 32), expected (48, 32); not used" in transfer.message
    assert "model.encoder.layers.2.* (16): not in the folder" in transfer.message
    assert not transfer.has_statistics and "frontend.cmvn.mean" in transfer.other_shape
    after, kept = weights(model), [*transfer.missing, *transfer.other_shape]
    assert_same({n: after[n] for n in kept}, {n: before[n] for n in kept})
    listed = dict(line.split("\t") for line in transfer.lines().splitlines())
    assert set(listed) == set(after) and listed["model.ctc_out.bias"] == "loaded"
    *_, smaller = take(root, "model.encoder.layers=1")
    assert "model.encoder.layers.1.* (16): of the folder, not used" in smaller.message


def test_statistics_of_another_normalization_are_not_taken(root):
    before, model, transfer = take(root, "features.cmvn=utterance")
    names = ["frontend.cmvn.mean", "frontend.cmvn.std"]
    assert transfer.anew == names and not transfer.has_statistics and not transfer.missing
    assert "frontend.* (2): of another features.cmvn; not used" in transfer.message
    assert "left as initialized" not in transfer.message
    after = weights(model)
    assert_same([after[n] for n in names], [before[n] for n in names])
    [note] = transfer.notes
    assert note.startswith(f"features.cmvn is 'utterance', that of {root}/base-x 'global'")


@each("change", ["mels=20", "mel_floor=1e4"])
def test_other_features_are_told(root, change):
    *_, transfer = take(root, f"features.fbank.{change}")
    [note] = transfer.notes
    assert note.startswith(f"features.fbank differs from that of {root}/base-x")
    assert transfer.has_statistics == ("mels" not in change)


def tune(settings):
    return fine_tune(settings, make(settings, seed=1), continued=False)


def test_many_other_shapes_are_told_in_few_lines(root):
    """Another width, but the same first convolution."""
    sizes = "model.encoder.d_model=8", "model.decoder.d_model=8"
    transfer = tune(experiment(root, f"init_from={root}/base-x", *sizes))
    lines = transfer.message.splitlines()
    assert len(lines) < 12 and max(map(len, lines)) < 250
    [counted] = [line for line in lines if line.startswith("  model.encoder: ")]
    assert counted.endswith(" of another shape")
    assert "model.encoder.d_model is 32 there, 8 here" in lines[-1]
    assert lines[-1].endswith(f"take model: and features: of {root}/base-x/config.yaml")
    assert "expected (8, 8); not used" in transfer.lines()


@each("name, value", rows(SHAPE))
def test_settings_that_decide_about_shapes_are_compared(root, name, value):
    settings = experiment(root, f"{name}={value}")
    [unlike] = unlike_settings(settings, root / "base-x")
    assert unlike.startswith(f"{name} is ") and unlike.endswith(f" there, {value} here")
    assert shapes(settings) != shapes(experiment(root))


def test_settings_that_decide_about_no_shape_are_not_compared(root):
    changes = "model.decoder.tied=true", "model.encoder.dropout=0.3", "model.ctc_weight=0.2"
    settings = experiment(root, "training.epochs=1", *changes)
    assert not unlike_settings(settings, root / "base-x")
    assert shapes(settings) == shapes(experiment(root))


def shapes(settings):
    return {name: tensor.shape for name, tensor in build(settings).state_dict().items()}


def test_settings_scaled_for_a_model_take_all_its_weights(root, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "recipes/own")
    scaled, base = importlib.import_module("scaled"), str(root / "base-x")
    scaled.main([str(root / "data"), str(tmp_path)])
    overrides = [f"tokenizer={root}/tokenizer", f"init_from={base}"]
    plain = experiment(tmp_path, *overrides, name="config")
    refused("no matrix of it fits .*; take .*base-x/config.yaml", tune, plain)
    scaled.main([str(root / "data"), str(tmp_path), "--init-from", base])
    made = experiment(tmp_path, f"tokenizer={root}/new", name="config")
    transfer = tune(made)
    assert made.training == plain.training and made.init_from == base
    assert (len(transfer.loaded), len(transfer.rows), len(transfer.words)) == (70, 5, 75)


NO_TRAINING = r"""
x  | base-lm |                   | holds a language model \(model.kind: lm\), expected a recognizer
x  | no      |                   | no such model folder; asr-train makes one
x  | bad     |                   | model.safetensors: damaged
x  | base-x  | out={root}/base-x | is out, too; a new model needs another
lm | base-lm | model.d_model=8 model.heads=1 model.ff=4 | NO_MATRIX
"""
NO_MATRIX = "no matrix of it fits this model: model.d_model is 32 there, 8 here, .*; take "
NO_MATRIX += "model: and features: of .*base-lm/config.yaml$"


@each("name, base, more, message", rows(NO_TRAINING.replace("NO_MATRIX", NO_MATRIX)))
def test_what_cannot_begin_a_training_is_refused(root, name, base, more, message):
    bad = shutil.copytree(root / "base-x", root / "bad", dirs_exist_ok=True)
    (bad / "model.safetensors").write_bytes(b"no weights")
    changes = f"init_from={root}/{base} {more.format(root=root)}".split()
    settings = experiment(root, *changes, name=name)
    refused(f"init_from: {root}/{base}.*{message}", tune, settings)


def test_a_refused_training_leaves_folders_as_they_were(root, tmp_path):
    out, init = root / "base-x", f"init_from={root}/no"
    refused("out: .*base-x: is no training's folder, .*config.yaml", train, root, out)
    refused("init_from: .*no: no such model folder", train, root, tmp_path / "new", init)
    assert not (tmp_path / "new").exists()


# ---- freezing


def test_frozen_parameters(root):
    model = make(experiment(root), seed=1)
    freeze(model, ["frontend.*", "model.encoder.layers.[0-0].*", "*.out.bias"])
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    names = [name for name, _ in model.named_parameters()]
    layer = {name for name in names if name.startswith("model.encoder.layers.0.")}
    biases = {name for name in names if name.endswith(".out.bias")}
    assert frozen == layer | biases and len(layer) == 16
    tied = make(experiment(root, "model.tied=true", name="lm"), seed=1)
    freeze(tied, ["model.decoder.out.weight"])
    assert not tied.model.decoder.embedding.weight.requires_grad


NO_SENSE = r"""
model.encoder.layer.* | 'model.encoder.layer.*' matches no .*; did you mean 'model.enc
Q                     | 'Q' matches no parameter; names are as 'model.ctc_out.bias'
model.encoder.* *     | model.encoder.\*, \* leaves no parameter to train
"""


@each("patterns, message", rows(NO_SENSE))
def test_patterns_that_make_no_sense(root, patterns, message):
    refused(f"^freeze: {message}", freeze, build(experiment(root)), patterns.split())


# ---- training


def how_to_tune(root):
    return "training.epochs=2", "freeze=[model.encoder.*]", f"init_from={root}/base-x"


def fine(root, out, *more):
    return weights(train(root, out, *how_to_tune(root), *more))


@pytest.fixture(scope="module")
def tuned(root):
    """A recognizer fine-tuned with frozen encoder, on one process."""
    return fine(root, root / "tuned")


def test_what_is_frozen_stays_to_the_bit_and_the_rest_moves(root, tuned):
    for name, old in weights(recognizer.load(root / "base-x")).items():
        moves = name.startswith(("model.decoder.", "model.ctc_out."))
        assert old.equal(tuned[name]) != moves, name


def test_it_is_said_and_listed(root, tmp_path, stderr):
    stop(root, tmp_path / "x", 0, *how_to_tune(root))
    said, names = stderr(), weights(recognizer.load(root / "base-x"))
    assert (
        f"base-x: {len(names)} of {len(names)} tensors loaded\n  transfer.tsv lists all\n" in said
    )
    assert f"CMVN: the statistics are those of {root}/base-x" in said
    assert "M of them frozen" in said
    listed = (tmp_path / "x/transfer.tsv").read_text().splitlines()
    assert listed == [f"{name}\tloaded" for name in names]


@slow
def test_processes_begin_with_the_same_weights(root, tmp_path):
    how = "training.accumulate=2", "training.epochs=1"
    one, two = (fine(root, tmp_path / n, *how, f"training.processes={n}") for n in "12")
    assert_same(two, one)


@each("stop_at", [1, 4])
def test_a_resumed_fine_tuning_equals_an_uninterrupted_one(
    root, tuned, tmp_path, monkeypatch, stop_at
):
    stop(root, tmp_path / "x", stop_at, *how_to_tune(root), "training.save_steps=1")
    listed = (tmp_path / "x/transfer.tsv").read_text()
    monkeypatch.setattr("asr.training.build.load_what_fits", None)  # it has its own weights
    assert_same(fine(root, tmp_path / "x"), tuned)
    assert (tmp_path / "x/transfer.tsv").read_text() == listed


def test_other_weights_to_begin_with_are_another_run(root, tmp_path):
    def facts(*overrides):
        return stamp_of(root / "lm.yaml", overrides).facts

    base, init = experiment(root, name="lm"), f"init_from={tmp_path}"
    save(tmp_path, base)
    first = facts(init)
    assert facts(init) == first
    save(tmp_path, base, seed=9)
    assert facts(init) != first
    counts = len(facts()["inputs"]), len(first["inputs"])
    assert counts == (3, 5)  # texts and tokenizer; weights and theirs
