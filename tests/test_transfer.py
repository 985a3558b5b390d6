"""Laws of fine-tuning: what fits is copied to the bit, rows go with their tokens, what is frozen stays, a resumed run
equals an uninterrupted one. Source weights are random, so that no tensor equals another by chance; the rows that
tokens share are found by hand.
"""

import importlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from runs import Stop, stopping
from test_lm import CONFIG as LM_CONFIG
from tones import CONFIG, write_corpus
from torch.testing import assert_close

from asr import config, tasks
from asr.data.prepare import prepare
from asr.errors import UserError
from asr.models import lm, recognizer
from asr.models.transfer import BY_TOKEN, grouped, load_what_fits, shared_tokens, unlike_settings
from asr.text import tokenizer
from asr.training import run
from asr.training.build import build
from asr.training.build import fine_tune as fine_tune_model
from asr.training.identity import stamp_of
from asr.training.layers import freeze

OLD, NEW = "LOW MID HIGH", "HI WORLD"  # characters of the old and of the new texts
SHARED = {
    " ": (1, 1),
    "D": (2, 2),
    "H": (4, 3),
    "I": (5, 4),
    "L": (6, 5),
    "O": (8, 6),
    "W": (9, 8),
}  # in code points


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A corpus, three tokenizers, a pre-trained recognizer and a language model, their weights random."""
    root = tmp_path_factory.mktemp("transfer")
    write_corpus(root / "corpus", {"train": 24, "dev": 4})
    prepare("tsv", root / "corpus", root / "data")
    tokenizer.train("characters", [OLD]).save(root / "tokenizer")
    tokenizer.train("characters", [NEW]).save(root / "new")
    tokenizer.train("bpe", [OLD] * 9, 14).save(root / "bpe")
    (root / "train.txt").write_text("LOW MID HIGH\nHIGH LOW\nMID\n" * 20)
    (root / "dev.txt").write_text("LOW MID\n")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    (root / "lm.yaml").write_text(LM_CONFIG.format(root=root))
    for name in ("x", "lm"):
        settings = load(root, name)
        make(settings, seed=5).save(root / f"base-{name}", config.dump(settings))
    return root


def load(root, name, *overrides):
    return config.load(tasks.Experiment, root / f"{name}.yaml", overrides)


def make(settings, seed=1):
    """A model with random weights and statistics."""
    model = build(settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.add_(torch.rand(tensor.shape, generator=generator))
    return model.eval()


def state(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def waveforms():
    return torch.rand(2, 8000, generator=torch.Generator().manual_seed(0)) - 0.5, torch.tensor(
        [8000, 6000]
    )


def train(root, out, *overrides, name="x"):
    arguments = (root / f"{name}.yaml", [f"out={out}", *overrides])
    return run.train(config.load(tasks.Experiment, *arguments), stamp_of(*arguments))


# ---- what fits


def test_the_same_sizes_and_tokenizer_give_identical_logits(root):
    model = make(load(root, "x"), seed=2)
    transfer = load_what_fits(model, root / "base-x")
    assert len(transfer.loaded) == len(model.state_dict()) and transfer.has_statistics
    assert not (
        transfer.rows
        or transfer.other_shape
        or transfer.missing
        or transfer.unused
        or transfer.notes
    )
    pretrained, Y = recognizer.load(root / "base-x"), torch.tensor([[1, 2, 3], [4, 5, -1]])
    features = [m.frontend(*waveforms()) for m in (model, pretrained)]
    logits = [
        m.model(*f, Y, torch.tensor([3, 2]))[0]
        for m, f in zip((model, pretrained), features, strict=True)
    ]
    assert_close(logits[0], logits[1], rtol=0, atol=0)


def test_language_models_too(root):
    model = make(load(root, "lm"), seed=2)
    load_what_fits(model, root / "base-lm")
    assert_close(state(model), state(lm.load(root / "base-lm")), rtol=0, atol=0)


def test_by_token_are_the_modules_whose_shape_follows_the_vocabulary(root):
    for name in ("x", "lm"):
        shapes = [
            {
                n: t.shape
                for n, t in build(load(root, name, f"tokenizer={root}/{t}")).state_dict().items()
            }
            for t in ("tokenizer", "new")
        ]
        follow = {n.rpartition(".")[0] for n in shapes[0] if shapes[0][n] != shapes[1][n]}
        assert follow and follow == {n.rpartition(".")[0] for n in shapes[0]} & BY_TOKEN


def test_rows_of_shared_characters_are_carried_over(root):
    model = make(load(root, "x", f"tokenizer={root}/new"), seed=2)
    before, old = state(model), state(recognizer.load(root / "base-x"))
    transfer = load_what_fits(model, root / "base-x")
    after, V, V_old = state(model), model.tokenizer.vocabulary, 11
    assert old["model.ctc_out.bias"].shape == (V_old,) and V == 10
    pairs = {0: 0, V - 1: V_old - 1} | {new: old_id for old_id, new in SHARED.values()}
    for name in ("model.ctc_out.weight", "model.ctc_out.bias", "model.decoder.embedding.weight"):
        for row in range(V):
            expected = old[name][pairs[row]] if row in pairs else before[name][row]
            assert_close(after[name][row], expected, rtol=0, atol=0)
    assert set(transfer.rows.values()) == {(9, 10)} and len(transfer.rows) == 5
    assert "70 of 75 tensors loaded, 5 by their tokens' rows\n" in transfer.message
    assert "model.decoder.out.* (2): 9 of 10 rows" in transfer.message
    others = [name for name in after if name not in transfer.rows]
    assert_close({n: after[n] for n in others}, {n: old[n] for n in others}, rtol=0, atol=0)


def test_tokens_count_and_not_their_number(root, tmp_path):
    """Tokenizers of one size and other characters: shapes agree, rows don't."""
    tokenizer.train("characters", ["ABCDEFGHI"]).save(tmp_path / "other")
    model = make(load(root, "x", f"tokenizer={tmp_path}/other"), seed=2)
    assert model.tokenizer.vocabulary == 11
    before, transfer = state(model), load_what_fits(model, root / "base-x")
    assert transfer.rows["model.ctc_out.bias"] == (6, 11)  # D G H I, blank and <sos/eos>
    assert_close(model.model.ctc_out.bias[1], before["model.ctc_out.bias"][1], rtol=0, atol=0)


def test_tokens_are_paired_by_their_text_and_roles():
    old, new = (tokenizer.train("characters", [text]) for text in (OLD, NEW))
    pairs = [(0, 0), *SHARED.values(), (10, 9)]
    assert shared_tokens(old, new) == ([a for a, _ in pairs], [b for _, b in pairs])
    pieces = tokenizer.train("bpe", [OLD] * 9, 14)
    back = shared_tokens(pieces, tokenizer.train("characters", ["LO"]))
    assert [pieces.symbols()[n] for n in back[0]] == ["<blank>", "L", "O", "<sos/eos>"] and back[
        1
    ] == [0, 1, 2, 3]


@pytest.mark.parametrize("old, new", [("false", "true"), ("true", "false"), ("true", "true")])
def test_tied_weights(root, tmp_path, old, new):
    settings = load(root, "lm", f"model.tied={old}")
    pretrained = make(settings, seed=6)
    pretrained.save(tmp_path / "base", config.dump(settings))
    model = make(load(root, "lm", f"model.tied={new}"), seed=2)
    transfer = load_what_fits(model, tmp_path / "base")
    assert_close(
        model.model.decoder.embedding.weight,
        pretrained.model.decoder.embedding.weight,
        rtol=0,
        atol=0,
    )
    if new == "false":  # the tied output projection was the embedding
        assert_close(
            model.model.decoder.out.weight,
            pretrained.model.decoder.embedding.weight,
            rtol=0,
            atol=0,
        )
    assert (model.model.decoder.out.weight is model.model.decoder.embedding.weight) == (
        new == "true"
    )
    assert transfer.unused == (
        ["model.decoder.out.weight"] if (old, new) == ("false", "true") else []
    )
    assert not transfer.missing and not transfer.other_shape


def test_what_does_not_fit_is_told(root):
    sizes = [
        "model.encoder.layers=3",
        "model.decoder.ff=48",
        "features.fbank.mels=20",
        "model.ctc_weight=0.3",
    ]
    model = make(load(root, "x", *sizes), seed=2)
    before, transfer = state(model), load_what_fits(model, root / "base-x")
    layer = "model.decoder.layers.0.ff.inner.weight"
    assert transfer.other_shape[layer] == ((64, 32), (48, 32))
    assert f"{layer}: got (64, 32), expected (48, 32); not used" in transfer.message
    assert "model.encoder.layers.2.* (16): not in the folder" in transfer.message
    assert (
        all(name.startswith("model.encoder.layers.2.") for name in transfer.missing)
        and len(transfer.missing) == 16
    )
    assert not transfer.has_statistics and "frontend.cmvn.mean" in transfer.other_shape
    assert transfer.notes == [
        f"features.fbank differs from that of {root}/base-x, which its weights and statistics expect"
    ]
    kept = [*transfer.missing, *transfer.other_shape]
    assert_close({n: state(model)[n] for n in kept}, {n: before[n] for n in kept}, rtol=0, atol=0)
    listed = dict(line.split("\t") for line in transfer.lines().splitlines())
    assert set(listed) == set(model.state_dict()) and listed["model.ctc_out.bias"] == "loaded"
    smaller = load_what_fits(make(load(root, "x", "model.encoder.layers=1")), root / "base-x")
    assert "model.encoder.layers.1.* (16): of the folder, not used" in smaller.message


def test_statistics_of_another_normalization_are_not_taken(root):
    model = make(load(root, "x", "features.cmvn=utterance"), seed=2)
    before, transfer = state(model), load_what_fits(model, root / "base-x")
    names = ["frontend.cmvn.mean", "frontend.cmvn.std"]
    assert transfer.anew == names and not transfer.has_statistics and not transfer.missing
    assert "frontend.* (2): of another features.cmvn; not used" in transfer.message
    assert "left as initialized" not in transfer.message
    assert_close({n: state(model)[n] for n in names}, {n: before[n] for n in names}, rtol=0, atol=0)
    assert transfer.notes == [
        f"features.cmvn is 'utterance', that of {root}/base-x 'global': its statistics are taken anew"
    ]


def test_another_floor_of_the_features_is_told(root):
    transfer = load_what_fits(
        make(load(root, "x", "features.fbank.mel_floor=1e4")), root / "base-x"
    )
    said = f"features.fbank differs from that of {root}/base-x, which its weights and statistics expect"
    assert transfer.notes == [said] and transfer.has_statistics


def fine_tune(settings):
    return fine_tune_model(settings, make(settings), continued=False)


def test_many_other_shapes_are_told_in_few_lines(root):
    """Another width, but the same first convolution."""
    sizes = ["model.encoder.d_model=8", "model.decoder.d_model=8"]
    transfer = fine_tune(load(root, "x", f"init_from={root}/base-x", *sizes))
    lines = transfer.message.splitlines()
    assert len(lines) < 12 and all(len(line) < 250 for line in lines)
    assert any(
        line.startswith("  model.encoder: ") and line.endswith(" of another shape")
        for line in lines
    )
    assert "model.encoder.d_model is 32 there, 8 here" in lines[-1]
    assert lines[-1].endswith(f"take model: and features: of {root}/base-x/config.yaml")
    assert "expected (8, 8); not used" in transfer.lines()


def test_what_decides_about_shapes_is_compared(root):
    """Each size of the settings alone changes the model's tensors, and is reported; what isn't a size does neither."""
    shapes = lambda settings: {n: t.shape for n, t in build(settings).state_dict().items()}  # noqa: E731
    base = f"init_from={root}/base-x"
    for change, told in {
        "model.encoder.ff=8": True,
        "model.encoder.layers=1": True,
        "model.decoder.heads=1": False,
        "model.decoder.tied=true": False,
        "features.fbank.mels=20": True,
        "model.encoder.subsampling=8": True,
        "model.encoder.dropout=0.3": False,
        "model.ctc_weight=0.2": False,
        "training.epochs=1": False,
    }.items():
        settings = load(root, "x", base, change)
        name, _, value = change.partition("=")
        unlike = unlike_settings(settings, root / "base-x")
        if told:
            assert (
                len(unlike) == 1
                and unlike[0].startswith(f"{name} is ")
                and value in unlike[0].lower()
            )
            assert shapes(settings) != shapes(load(root, "x"))
        else:
            assert shapes(settings) == shapes(load(root, "x")) and (not unlike or "heads" in change)


def test_settings_scaled_for_a_model_take_all_its_weights(root, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "recipes/own")
    scaled = importlib.import_module("scaled")
    path = tmp_path / "own/config.yaml"
    scaled.main([str(root / "data"), str(path.parent)])
    plain = config.load(
        tasks.Experiment, path, [f"tokenizer={root}/tokenizer", f"init_from={root}/base-x"]
    )
    with pytest.raises(
        UserError,
        match="no matrix of it fits .*; take model: and features: of .*base-x/config.yaml",
    ):
        fine_tune(plain)
    scaled.main([str(root / "data"), str(path.parent), "--init-from", str(root / "base-x")])
    made = config.load(tasks.Experiment, path, [f"tokenizer={root}/new"])
    transfer = fine_tune(made)
    assert made.training == plain.training and made.init_from == str(root / "base-x")
    assert (
        not transfer.other_shape
        and not transfer.missing
        and len(transfer.loaded) == 70
        and len(transfer.rows) == 5
    )


def test_names_are_grouped_where_all_below_a_prefix_agree():
    words = {"a.0.x": "new", "a.0.y": "new", "a.1.x": "new", "a.1.y": "old", "b": "old"}
    assert grouped(words) == ["a.0.* (2): new", "a.1.x: new", "a.1.y: old", "b: old"]


def test_what_cannot_begin_a_training_is_refused(root, tmp_path):
    model = make(load(root, "x"))
    for folder, message in {
        root
        / "base-lm": r"init_from: .*base-lm: holds a language model \(model.kind: lm\), expected a recognizer",
        root / "no": "init_from: .*no: no such model folder; asr-train makes one",
    }.items():
        with pytest.raises(UserError, match=message):
            load_what_fits(model, folder)
    shutil.copytree(root / "base-x", tmp_path / "bad")
    (tmp_path / "bad/model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UserError, match="init_from: .*model.safetensors: damaged"):
        load_what_fits(model, tmp_path / "bad")
    widths = ["model.d_model=8", "model.heads=1", "model.ff=4"]
    with pytest.raises(
        UserError,
        match="init_from: .*base-lm: no matrix of it fits this model: model.d_model is 32 there, 8 here, "
        "model.heads is 2 there, 1 here, model.ff is .*; take model: and features: of .*base-lm/config.yaml$",
    ):
        fine_tune(load(root, "lm", f"init_from={root}/base-lm", *widths))
    with pytest.raises(
        UserError, match="init_from: .*base-x is out, too; a new model needs another folder"
    ):
        fine_tune(load(root, "x", f"out={root}/base-x", f"init_from={root}/base-x"))
    with pytest.raises(
        UserError, match="out: .*base-x: is no training's folder, for it holds .*base-x/config.yaml"
    ):
        train(root, root / "base-x")
    with pytest.raises(UserError, match="init_from: .*no: no such model folder"):
        train(root, tmp_path / "new", f"init_from={root}/no")
    assert not (tmp_path / "new").exists()


# ---- freezing


def test_frozen_parameters(root):
    model = make(load(root, "x"))
    freeze(model, ["frontend.*", "model.encoder.layers.[0-0].*", "*.out.bias"])
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    expected = {
        n
        for n, _ in model.named_parameters()
        if n.startswith("model.encoder.layers.0.") or ".out.bias" in n
    }
    assert frozen == expected and len(frozen) > 16
    tied = make(load(root, "lm", "model.tied=true"))
    freeze(tied, ["model.decoder.out.weight"])
    assert not tied.model.decoder.embedding.weight.requires_grad


@pytest.mark.parametrize(
    "patterns, message",
    [
        (
            ["model.encoder.layer.0.*"],
            "freeze: 'model.encoder.layer.0.*' matches no parameter; did you mean 'model.enc",
        ),
        (["Q"], "freeze: 'Q' matches no parameter; names are as 'model.ctc_out.bias'"),
        (
            ["model.encoder.*", "*"],
            "freeze: model.encoder.*, * leaves no parameter to train; take a pattern out",
        ),
    ],
)
def test_patterns_that_make_no_sense(root, patterns, message):
    with pytest.raises(UserError) as caught:
        freeze(make(load(root, "x")), patterns)
    assert str(caught.value).startswith(message)


# ---- training


FINE = ["training.epochs=2", "freeze=[model.encoder.*]"]


@pytest.fixture(scope="module")
def tuned(root):
    """A recognizer fine-tuned with frozen encoder, on one process."""
    return state(train(root, root / "tuned", f"init_from={root}/base-x", *FINE))


def test_what_is_frozen_stays_to_the_bit_and_the_rest_moves(root, tuned, capsys):
    old = state(recognizer.load(root / "base-x"))
    moved = {name for name in old if not torch.equal(old[name], tuned[name])}
    assert moved == {name for name in old if name.startswith(("model.decoder.", "model.ctc_out."))}


def test_it_is_said_and_listed(root, tmp_path, capsys):
    train(
        root,
        tmp_path / "x",
        f"init_from={root}/base-x",
        "training.epochs=1",
        f"tokenizer={root}/tokenizer",
        *FINE,
    )
    said, names = capsys.readouterr().err, list(recognizer.load(root / "base-x").state_dict())
    assert (
        f"init_from {root}/base-x: {len(names)} of {len(names)} tensors loaded\n  transfer.tsv lists all\n"
        in said
    )
    assert f"CMVN: the statistics are those of {root}/base-x, which its weights expect" in said
    assert "M of them frozen" in said
    assert (tmp_path / "x/transfer.tsv").read_text() == "".join(
        f"{name}\tloaded\n" for name in names
    )


def test_processes_begin_with_the_same_weights(root, tuned, tmp_path):
    two = [
        "training.accumulate=2",
        "training.epochs=1",
        "freeze=[model.encoder.*]",
        f"init_from={root}/base-x",
    ]
    made = [state(train(root, tmp_path / n, *two, f"training.processes={n}")) for n in ("1", "2")]
    counted = [name for name in made[0] if not name.endswith("key.bias")]
    assert_close(*({n: m[n] for n in counted} for m in made), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stop_at", [1, 4])
def test_a_resumed_fine_tuning_equals_an_uninterrupted_one(
    root, tuned, tmp_path, monkeypatch, capsys, stop_at
):
    arguments = [f"init_from={root}/base-x", *FINE, "training.save_steps=1"]
    stopping(monkeypatch, stop_at)
    with pytest.raises(Stop):
        train(root, tmp_path / "x", *arguments)
    monkeypatch.undo()
    listed = (tmp_path / "x/transfer.tsv").read_text()
    monkeypatch.setattr(
        "asr.training.build.load_what_fits",
        lambda *_: pytest.fail("a resumed run has its own weights"),
    )
    assert_close(state(train(root, tmp_path / "x", *arguments)), tuned, rtol=0, atol=0)
    assert (tmp_path / "x/transfer.tsv").read_text() == listed


def test_other_weights_to_begin_with_are_another_run(root, tmp_path):
    shutil.copytree(root / "base-lm", tmp_path / "base")
    arguments = (
        root / "lm.yaml",
        [f"out={tmp_path}/x", f"init_from={tmp_path}/base", "training.epochs=1"],
    )
    first = stamp_of(*arguments)
    run.train(config.load(tasks.Experiment, *arguments), first)
    assert stamp_of(*arguments).is_current()
    make(load(root, "lm"), seed=9).save(tmp_path / "base", config.dump(load(root, "lm")))
    assert not stamp_of(*arguments).is_current()
    assert json.dumps(first.facts) != json.dumps(stamp_of(*arguments).facts)
    plain = stamp_of(root / "lm.yaml", []).facts["inputs"]
    assert (
        len(plain) == 3 and len(first.facts["inputs"]) == 5
    )  # texts and tokenizer; weights and theirs
