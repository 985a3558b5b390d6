"""Prove the translator: its model by PyTorch's own Transformer, its search by exhaustive search, its training by laws.

The languages it learns are constructed: letters, copied or reversed, so that every answer is known.
"""

import functools
import gzip
import io
import json
import math
import random
import shutil
import unicodedata
from importlib import import_module
from statistics import mean
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from miniatures import write
from partly import partly
from pytest import approx
from refusals import refused
from runs import (
    Stop,
    assert_processes_change_nothing,
    assert_uninterrupted,
    history,
    status_of,
    stop,
    train,
    weights,
)
from searches import exhaustive
from small import PART, each, near, options, rows, slow
from torch import nn

from asr import api, config, tasks
from asr.cli import decode, plot, prepare, score
from asr.data import texts
from asr.data.parallel import join
from asr.data.texts import Text, tokenize
from asr.errors import UserError
from asr.models import translator as translators
from asr.models.lm import FolderSettings, LanguageModel, LMSettings
from asr.models.transfer import load_what_fits
from asr.models.translator import TranslationModel, Translator, TranslatorSettings
from asr.nn.positions import sinusoids
from asr.ops import causal_mask
from asr.preflight.check import check
from asr.scoring.translation import score_translations
from asr.tasks.translator import TranslatorTask
from asr.text import tokenizer
from asr.training.distributed.group import Group
from asr.training.settings import PairDataSettings
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher
from asr.translation import attention
from asr.translation import translate as translation
from asr.translation.translate import translate
from scripts import letters

V_SOURCE, V = 8, 7
VARIANTS = """
both: {norm: post}
encoder: {positions: rotary}
encoder: {kind: conformer, kernel: 5}
decoder: {d_model: 8, heads: 2}
decoder: {tied: true}
decoder: {tied: true}, shared: true"""


def build(variant=""):
    """A model without dropout, and with weights so large that a mistake shows."""
    torch.manual_seed(1)
    given = options(variant)
    both = PART | {"dropout": 0.0} | given.pop("both", {})
    encoder = {"subsampling": 1} | both | given.pop("encoder", {})
    decoder = both | given.pop("decoder", {})
    kinds = {"kind": "translator", "source": "text", "encoder": encoder, "decoder": decoder}
    settings = TranslatorSettings(**kinds, **given)
    model = TranslationModel(settings, V if settings.shared else V_SOURCE, V)
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) * 0.2
    return model.double().eval()


def batch(padding=-1):
    """Four pairs of different lengths, an empty target among them."""
    draw = torch.Generator().manual_seed(2)
    X, Y = (torch.randint(1, 6, (4, n), generator=draw) for n in (5, 6))
    X_lens, Y_lens = torch.tensor([2, 5, 1, 3]), torch.tensor([6, 1, 0, 4])
    for ids, lens in ((X, X_lens), (Y, Y_lens)):
        ids[torch.arange(ids.size(1)) >= lens[:, None]] = padding
    return X, X_lens, Y, Y_lens


@each("variant", VARIANTS.splitlines())
def test_padding_never_matters_on_both_sides(variant):
    model, (X, X_lens, Y, Y_lens) = build(variant), batch()
    logits, real = model(X, X_lens, Y, Y_lens), torch.arange(7) <= Y_lens[:, None]
    assert logits.shape == (4, 7, V)
    for padding in (0, 3):  # a valid id
        near(model(*batch(padding))[real], logits[real])
    X, Y = (F.pad(ids, (0, 3), value=-1) for ids in (X, Y))
    near(model(X, X_lens, Y, Y_lens)[:, :7][real], logits[real], 1e-12)


def test_padding_has_no_gradient():
    """Nor has a token that no sentence has."""
    model = build()
    model.loss(*batch()).total.backward()
    used = set(batch(padding=1)[0].flatten().tolist()) | {V_SOURCE - 1}  # and the end
    found = model.embedding.weight.grad.abs().sum(1)
    assert {n for n in range(V_SOURCE) if found[n]} == used and 0 not in used


@each("variant", VARIANTS.splitlines())
def test_logits_and_loss_are_those_of_each_pair_alone_label_by_label(variant):
    model, (X, X_lens, Y, Y_lens) = build(variant), batch()
    smoothed = nll = correct = 0
    for x, S, y, U, row in zip(X, X_lens, Y, Y_lens, model(X, X_lens, Y, Y_lens), strict=True):
        sentence = [*y[:U], V - 1]
        for n, label in enumerate(sentence):
            before = torch.tensor([sentence[:n]], dtype=torch.long)
            logits = model(x[None, :S], S[None], before, torch.tensor([n]))[0, -1]
            near(row[n], logits, 1e-12)
            log_probs = logits.log_softmax(0)
            nll -= log_probs[label].item()
            smoothed -= (0.9 * log_probs[label] + 0.1 * log_probs.mean()).item()
            correct += int(logits.argmax() == label)
    loss = model.loss(X, X_lens, Y, Y_lens)
    assert loss.total.item() == approx(nll, rel=1e-5)
    assert (loss.correct, loss.tokens) == (correct, 15)
    trained = model.train().loss(X, X_lens, Y, Y_lens)  # its labels alone are other ones
    assert trained.total.item() == approx(smoothed, rel=1e-5)


# PyTorch's own Transformer: name of a part of a layer → ours
SELF = {
    "self_attn": "attention",
    "norm1": "norm_attention",
    "linear1": "ff.inner",
    "linear2": "ff.outer",
}
PARTS = {
    "encoder": SELF | {"norm2": "norm_ff"},
    "decoder": SELF | {"multihead_attn": "cross", "norm2": "norm_cross", "norm3": "norm_ff"},
}


def pytorchs(stack, ours, pre_norm):
    """PyTorch's stack of layers with the weights of ours."""
    kind = f"Transformer{stack.capitalize()}"
    layer = getattr(nn, f"{kind}Layer")(12, 3, 16, 0.0, batch_first=True, norm_first=pre_norm)
    norm = nn.LayerNorm(12) if pre_norm else None
    if pre_norm:
        norm.load_state_dict(ours.norm.state_dict())
    theirs = getattr(nn, kind)(layer, 2, norm).double().eval()
    for their, our in zip(theirs.layers, ours.layers, strict=True):
        for name, ours in PARTS[stack].items():
            module, given = their.get_submodule(name), our.get_submodule(ours)
            if isinstance(module, nn.MultiheadAttention):
                parts = given.query, given.key, given.value
                module.in_proj_weight.data = torch.cat([part.weight for part in parts])
                module.in_proj_bias.data = torch.cat([part.bias for part in parts])
                module, given = module.out_proj, given.out
            module.load_state_dict(given.state_dict())
    return theirs


@torch.no_grad()
@each("norm", ["pre", "post"])
def test_the_model_is_the_paper_s(norm):
    """Sinusoids, embeddings · √D: by PyTorch's Transformer, which pads and masks by itself."""
    model, (X, X_lens, Y, Y_lens) = build(f"both: {{norm: {norm}}}"), batch(padding=0)
    ends = F.pad(X, (0, 1)).scatter(1, X_lens[:, None], V_SOURCE - 1)  # (B, S + 1)
    starts = F.pad(Y, (1, 0), value=V - 1)  # (B, U + 1)
    X_, Y_ = (
        part.weight[ids] * math.sqrt(12) + sinusoids(ids.size(1), 12)
        for part, ids in ((model.embedding, ends), (model.decoder.embedding, starts))
    )
    padding, future = torch.arange(6) > X_lens[:, None], causal_mask(7)
    encoder, decoder = (pytorchs(stack, getattr(model, stack), norm == "pre") for stack in PARTS)
    H = encoder(X_, src_key_padding_mask=padding)
    Z = decoder(Y_, H, tgt_mask=future, memory_key_padding_mask=padding)
    real, got = torch.arange(7) <= Y_lens[:, None], model(X, X_lens, Y, Y_lens)
    near(got[real], model.decoder.out(Z)[real], 1e-6)  # sinusoids are float32


def test_the_base_model_has_the_paper_s_size():
    """Of 37,000 shared tokens; the paper rounds it to 65 M."""
    made = config.load(tasks.Experiment, "conf/translator_base.yaml").model
    with torch.device("meta"):
        model = TranslationModel(made, 37_000, 37_000)
    assert sum(p.numel() for p in model.parameters()) / 1e6 == approx(63.1, abs=0.1)


# search


def searcher(model, limit, **options):
    model.limits = lambda H_lens: torch.full_like(H_lens, limit)
    fake = SimpleNamespace(model=model, tokenizer=None, parameters=model.parameters)
    return Searcher(fake, SearchOptions("attention", beam=200, nbest=9, **options))


@torch.no_grad()
@each("options", partly([{"length_norm": 0.6}, {}, {"length_bonus": 0.7}, {"length_norm": 2.0}], 2))
def test_the_search_is_exhaustive_on_a_tiny_vocabulary(options):
    model, (X, X_lens, *_), limit = build(), batch(), 3
    bonus, alpha = (options.get(name, 0.0) for name in ("length_bonus", "length_norm"))

    @functools.cache
    def log_probs(b, labels):
        S, y = X_lens[b], torch.tensor([labels], dtype=torch.long)
        logits = model(X[b][None, :S], S[None], y, torch.tensor([len(labels)]))[0, -1]
        return (logits.log_softmax(0) + bonus * (torch.arange(V) < V - 1)).tolist()

    found = searcher(model, limit, **options).search(*model.encode(X, X_lens))
    for b, nbest in enumerate(found):
        every = exhaustive({"a": (log_probs, True, 1.0)}, b, limit, V)
        every = [(total / ((6 + len(y)) / 6) ** alpha, y) for total, y in every]
        scores, labels = zip(*sorted(every, reverse=True)[:9], strict=True)
        assert [h.tokens for h in nbest] == [*labels]
        assert [h.score for h in nbest] == approx(scores, abs=1e-5)


# training, on letters that are reversed or copied

CONFIG = """
out: {root}/model
seed: 3
tokenizer: {root}/tokenizer
data:
  train: [{root}/train.src, {root}/train.tgt]
  dev: [{root}/dev.src, {root}/dev.tgt]
  batch_tokens: 300
model:
  kind: translator
  source: text
  encoder: {{kind: transformer, d_model: 32, layers: 1, heads: 2, ff: 64, dropout: 0.1, subsampling: 1}}
  decoder: {{kind: transformer, d_model: 32, layers: 1, heads: 2, ff: 64, dropout: 0.1, tied: true}}
  shared: true
optimizer: {{kind: adam, lr: 5e-3}}
schedule: {{kind: noam, warmup: 20}}
training: {{epochs: 3, average: 2, device: cpu, processes: 1}}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("letters")
    for name, count, seed in (("train", 300, 1), ("dev", 40, 2)):
        letters.write(root, name, letters.words(random.Random(seed), count, range(1, 9)), -1)
    tokenizer.train("characters", [" ".join(letters.LETTERS)]).save(root / "tokenizer")
    tokenizer.train("characters", ["hgfedcba"]).save(root / "other")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    return root


@pytest.fixture(scope="module")
def whole(root):
    return root / "whole", weights(train(root, root / "whole"))


def test_the_metrics_are_plain_computations(root, whole):
    loaded = translators.load(whole[0])
    lines = [(root / f"dev.{side}").read_text().splitlines() for side in ("src", "tgt")]
    losses, correct = [], []
    for pair in zip(*lines, strict=True):
        x, y = (torch.tensor([loaded.tokenizer.encode(text)]) for text in pair)
        logits = loaded.model(x, torch.tensor([x.size(1)]), y, torch.tensor([y.size(1)]))[0]
        targets = torch.tensor([*y[0], loaded.model.sos_eos])
        losses += F.cross_entropy(logits.double(), targets, reduction="none").tolist()
        correct += (logits.argmax(1) == targets).tolist()
    dev = join(*(tokenize(root / f"dev.{side}", loaded.tokenizer) for side in ("src", "tgt")))
    expected = {"loss": mean(losses), "accuracy": mean(correct)}
    expected["perplexity"] = math.exp(expected["loss"])
    for size in (1, 300):
        data = PairDataSettings(train="x", dev="x", batch_tokens=size)
        task = TranslatorTask(loaded, data, dev, dev, 0)
        figures = task.validate("fp32", Group())
        assert figures == approx(expected, rel=1e-6) and len(task.alignments()) == 4
    recorded = history(whole[0])[-1]
    assert {name: recorded[name] for name in figures} == approx(figures, rel=1e-6)


@each("stop_at", partly([3, 15], 2))
def test_continued_equals_uninterrupted(root, whole, tmp_path, stop_at):
    stop(root, tmp_path / "stopped", stop_at, "training.save_steps=1")
    assert_uninterrupted(root, tmp_path / "stopped", whole)


@slow
def test_the_number_of_processes_changes_nothing(root, tmp_path):
    assert_processes_change_nothing(root, tmp_path)


def test_a_table_is_the_same_as_two_files(root, tmp_path):
    files = [root / "dev.src", root / "dev.tgt"]
    both = (file.read_text().splitlines() for file in files)
    table = write(tmp_path / "dev.tsv", map("\t".join, zip(*both, strict=True)))
    for column, file in enumerate(files):
        found = [text.text.rstrip("\n") for text in texts.read(table, column)]
        assert found == file.read_text().splitlines()


@pytest.fixture(scope="module")
def apart(root):
    """A translator of two tokenizers, hardly trained."""
    more = f"source_tokenizer={root}/other", "model.shared=false", "training.epochs=1"
    return train(root, root / "apart", *more)


def test_two_tokenizers_make_a_folder_that_gives_them_back(root, apart, tmp_path):
    loaded = translators.load(root / "apart")
    assert loaded.source_tokenizer.symbols() == list(tokenizer.load(root / "other").symbols())
    assert loaded.tokenizer.symbols() != loaded.source_tokenizer.symbols()
    near(weights(loaded), weights(apart))
    damaged = shutil.copytree(root / "apart", tmp_path / "damaged")
    tokenizer.train("characters", ["hgfedcbz"]).save(damaged / "source")
    refused("source/tokenizer.json: .* changed since", translators.load, damaged)


def test_weights_of_other_tokens_are_taken_by_their_rows(root, apart):
    """Of the source by its tokenizer, of the target by its own."""
    source, target = (tokenizer.train("characters", [text]) for text in ("bcdefghxy", "hgf edcba"))
    settings = config.load(tasks.Experiment, root / "apart/config.yaml").model
    model, old = Translator(settings, target, source), translators.load(root / "apart")
    transfer = load_what_fits(model, root / "apart")
    assert transfer.rows["model.embedding.weight"] == (9, 11)
    rows, theirs = (
        dict(zip(made.source_tokenizer.symbols(), made.model.embedding.weight, strict=True))
        for made in (model, old)
    )
    for name in rows.keys() & theirs.keys():
        near(rows[name], theirs[name])
    assert "model.decoder.embedding.weight" in transfer.loaded


def test_a_manifest_is_no_table_of_two_languages():
    refused("train.jsonl.gz: a manifest has one text", next, texts.read("train.jsonl.gz", 1))


def test_long_pairs_are_left_out_together(root, tmp_path, stderr):
    source, target = (root / "train.src").read_text(), (root / "train.tgt").read_text()
    (tmp_path / "train.src").write_text("a\n" + "b" * 30 + "\n\nc\n" + source)
    (tmp_path / "train.tgt").write_text("d" * 30 + "\ne\n\nf\n" + target)
    files = f"data.train=[{tmp_path}/train.src,{tmp_path}/train.tgt]"
    train(root, tmp_path / "x", files, "data.max_tokens=20", "training.epochs=1")
    log = stderr()
    assert "301 pairs of sentences" in log and "left out (lines 1, 2)" in log
    dropped = (tmp_path / "x/dropped.tsv").read_text()
    reason = "more tokens than max_tokens"
    assert dropped == f"{tmp_path}/train.src:2\t{reason}\n{tmp_path}/train.tgt:1\t{reason}\n"


def test_pairs_are_joined_by_lines(tmp_path):
    tokens = tokenizer.train("characters", ["abc"])
    texts = {"x": ["a", "ab" * 9, "", "b", "c"], "y": ["c" * 9, "c", " ", "cc", "aa"]}
    pairs = join(*(tokenize(write(tmp_path / name, texts[name]), tokens, 8) for name in texts))
    made = pairs.batch([1, 0])
    assert made.source.Y.tolist() == [tokens.encode("c"), tokens.encode("b")]
    assert made.target.Y.tolist() == [tokens.encode("aa"), tokens.encode("cc")]
    assert (pairs.lines([1, 0]), pairs.lens.tolist(), len(pairs)) == ([5, 4], [2, 2], 2)
    assert pairs.longest(5) == [0, 1]


# what is wrong

PAIRS = {
    "a": ("x\ny\n", "x\n"),
    "b": ("x\n \n", "x\ny\n"),
    "c": ("x\n", "x\x07\n"),
    "d": ("x" * 10001, "y"),
    "e": ("\n", " \n"),
    "f": ("x\ny\n", "x\n - !\n"),
}


@pytest.fixture(scope="module")
def faulty(root):
    lines = (root / "dev.src").read_text().splitlines()
    write(root / "short.src", ["a", "b"])
    write(root / "empty.src", [lines[0], "", *lines[2:]])
    write(root / "strange.tgt", ["x", *["a"] * 39])
    write(root / "half.tsv", ["a\tb", "b\t"])
    write(root / "columns.tsv", ["a\tb", "a\tb\tc"])
    write(root / "long", ["a", "b" * 1100])
    (root / "bytes").write_bytes(b"\xff\n")
    (root / "sound").write_bytes(b"RIFF\xff\xff")
    write(root / "gap", ["a", "", "b"])
    write(root / "none", [])
    write(root / "lm/config.yaml", ["model: {kind: lm}"])
    (root / "pairs").mkdir()
    for name, sides in PAIRS.items():
        for language, text in zip(("en", "de"), sides, strict=True):
            (root / f"pairs/{name}.{language}").write_text(text)
    return root


MISTAKES = r"""
data.dev=[short.src,dev.tgt]   | short.src and .*dev.tgt: got 2 and 40 lines, expected as many
data.dev=[empty.src,dev.tgt]   | empty.src:2: empty, but line 2 of .*dev.tgt isn't \(1 such lines\)
data.dev=[dev.src,strange.tgt] | strange.tgt:1: character 'x' \(U\+0078\)
data.dev=half.tsv              | half.tsv:2: empty, but one column isn't \(1 such lines\)
data.dev=columns.tsv           | columns.tsv:2: got 3 columns, expected 2
data.dev=[dev.src]             | dev.src:1: got 1 columns, expected 2
data.dev=[a,b,c]               | data.dev: got \['a', 'b', 'c'\], expected \[source, target\]
data.train=[no.src,dev.tgt]    | no.src: no such text file
model.encoder.subsampling=4    | encoder.subsampling: got 4, expected 1
model.source=speech            | model.source: got 'speech', expected: 'text'
source_tokenizer=other         | model.shared: the tokens of the two languages differ
source_tokenizer=nowhere       | nowhere/tokenizer.json: no tokenizer here
model.decoder.d_model=64       | shared: got encoder.d_model = 32 and decoder.d_model = 64
"""


@each("override, message", rows(MISTAKES))
def test_mistakes_are_told_before_anything_is_made(
    faulty, tmp_path, monkeypatch, override, message
):
    monkeypatch.chdir(faulty)
    refused(message, train, faulty, tmp_path / "x", override)
    assert not (tmp_path / "x").exists()


def test_the_check_before_training_finds_what_training_refuses(faulty, tmp_path):
    change = f"data.dev=[{faulty}/short.src,{faulty}/dev.tgt]"
    report = check(config.load(tasks.Experiment, faulty / "x.yaml", [change]))
    assert report.refused and "got 2 and 40 lines" in report.text()
    (tmp_path / "test").write_text("".join(f"{word}\tabc\n" for word in ("xa", "bcd", "zz")))
    report = check(config.load(tasks.Experiment, faulty / "x.yaml"), [str(tmp_path / "test")])
    assert not report.refused and report.prediction.examples == 300
    [found] = (p for p in report.problems if p.stops or p.role == "test")
    assert (found.role, found.count, found.of) == ("test", 2, 3)


# commands


def decoded(model, source, options=""):
    """Call asr-decode."""
    decode.main(f"--model {model} {source} {options}".split())


def test_lines_come_back_in_order_and_each_as_if_alone(whole, root, monkeypatch):
    """Whatever shares its batch and its window, to rounding; an empty line stays empty."""
    model = translators.load(whole[0])
    lines = ["abc", "", "hgfedcba" * 5, "a", "  ", *(root / "dev.src").read_text().split()]
    texts = [Text(f"x:{n}", n, line) for n, line in enumerate(lines, 1)]
    options = SearchOptions("attention", beam=4, nbest=3, length_norm=0.6)
    together = list(translate(model, texts, options))
    assert [found.id for found in together] == [text.where for text in texts]
    assert together[1].text == together[4].text == ""
    alone = [found for text in texts for found in translate(model, [text], options)]
    monkeypatch.setitem(translation.WINDOW, "cpu", 7)
    monkeypatch.setitem(translation.BATCH_TOKENS, "cpu", 40)
    for other in (alone, translate(model, texts, options)):
        for one, same in zip(together, other, strict=True):
            assert [a.tokens for a in one.nbest] == [a.tokens for a in same.nbest]
            scores = [a.score for a in same.nbest]
            assert [a.score for a in one.nbest] == approx(scores, abs=1e-4)


def test_python_translates_in_one_call(whole):
    plain, empty = api.translate(whole[0], ["abc", ""], beam=3)
    [same] = api.translate(translators.load(whole[0]), ["abc"], beam=3)
    assert (plain.id, plain.text, empty.text) == ("line 1", same.text, "")
    for lines, more, argument in (("abc", {}, "lines"), (["abc"], {"mode": "ctc"}, "mode")):
        with pytest.raises(UserError) as error:
            api.translate(whole[0], lines, **more)
        assert error.value.argument == argument


@pytest.fixture
def type_in(monkeypatch):
    """Write on standard input."""
    return lambda text: monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()))
    )


def test_the_command_reads_standard_input_or_files(whole, root, tmp_path, capsys, type_in):
    given = "abc\n\n" + (root / "dev.src").read_text()
    type_in(given)
    decoded(whole[0], "")
    printed, told = capsys.readouterr()
    _, empty, *lines = printed.splitlines()
    assert not empty and "41 lines translated, 1 without a token" in told
    texts, table = tmp_path / "x.txt", tmp_path / "x.json"
    decoded(whole[0], root / "dev.src", f"--out {texts} --json {table} --nbest 2")
    assert texts.read_text().splitlines() == lines
    found = [json.loads(line) for line in table.read_text().splitlines()]
    assert [one["text"] for one in found] == lines and found[-1]["id"] == f"{root}/dev.src:40"
    for one in found:
        best, second = one["nbest"]
        assert best["score"] >= second["score"]


def test_finished_work_is_not_repeated(whole, root, tmp_path, capsys, type_in):
    for option, message in (
        ("", "40 lines translated"),
        ("", "is up to date"),
        ("--length-norm 1", "40 lines translated"),
    ):
        decoded(whole[0], root / "dev.src", f"--out {tmp_path}/x {option}")
        assert message in capsys.readouterr().err
    for line in ("a\n", "b\n"):  # standard input is another one each time
        type_in(line)
        decoded(whole[0], "", f"--out {tmp_path}/y")
        assert "1 lines translated" in capsys.readouterr().err
    for _ in range(2):  # what is printed is printed again
        decoded(whole[0], root / "dev.src", f"--json {tmp_path}/z")
        assert len(capsys.readouterr().out.splitlines()) == 40


@each(
    "change, again", [("", [8, 16, 9]), ("lines", [1, 8, 16, 9]), ("options", [1, 2, 4, 8, 16, 9])]
)
def test_a_killed_translation_goes_on_to_the_same_bytes(
    whole, root, tmp_path, monkeypatch, change, again
):
    """Killed within a write; what is finished is not searched again, unless options or its lines are others."""
    source = tmp_path / "src"
    source.write_text((root / "dev.src").read_text())
    outputs = tmp_path / "x", tmp_path / "x.json"
    how = f"--out {outputs[0]} --json {outputs[1]} --nbest 2"
    journal, searched, stop_at, search = tmp_path / ".x.journal", [], 4, translation.search

    def counted(searcher, window):
        if len(searched) == stop_at:
            raise Stop
        searched.append(len(window))
        return search(searcher, window)

    monkeypatch.setattr(translation, "search", counted)
    pytest.raises(Stop, decoded, whole[0], source, how)
    journal.write_bytes(journal.read_bytes()[:-9])
    assert searched == [1, 2, 4, 8] and not any(path.exists() for path in outputs)
    searched, stop_at = [], None
    if change == "lines":
        source.write_text("abc\n" + source.read_text().split("\n", 1)[1])
    how += " --length-norm 1" * (change == "options")
    decoded(whole[0], source, how)
    found = [path.read_bytes() for path in outputs]
    assert searched == again and not journal.exists()
    for option in (" --beam 9", ""):
        decoded(whole[0], source, how + option)
    assert found == [path.read_bytes() for path in outputs]


REFUSALS = r"""
decode  | --model {m} {r}/dev.src --channel 1        | --channel: got 1, but {m} is a translator
decode  | --model {m} {r}/dev.src --chunk 0.6        | --chunk: got '0.6', but {m} is a translator
decode  | --model {m} {r}/dev.src --stream           | --stream: got True, but
decode  | --model {m} {r}/dev.src --mode ctc         | --mode: got 'ctc', expected attention
decode  | --model {m} {r}/no.src                     | {r}/no.src: no such file
decode  | --model {m} {r}/long                       | {r}/long:2: got 1100 tokens, expected 1024
decode  | --model {m} {r}/bytes                      | {r}/bytes:1: not UTF-8
decode  | --model {m} {r}/dev.src --tune beam=1      | --tune: needs texts and their --reference
decode  | --model {m} {r}/gap --tune beam=1 --reference {r}/gap | {r}/gap:2: empty, expected a translation
decode  | --model {m} {r}/sound                      | {r}/sound:1: is sound; expected text
decode  | --model {l}                                | nothing to transcribe; {l} is no translator
decode  | --model {m} {r}/dev.src --reference {r}/x  | --reference: is for --tune
decode  | --model {m} {r}/dev.src --out {r}/dev.src  | --out {r}/dev.src: is an input
decode  | --model {l} {r}/dev.src --reference {r}/x  | --reference: is for translators
decode  | --model {m} {r}/dev.src --tokenize none     | --tokenize: is for --tune
decode  | --model {l} {r}/dev.src --lowercase         | --lowercase: is for translators
plot    | --model {m} {r}/dev.src --mode ctc --out x  | --mode: got 'ctc', expected attention
plot    | --model {m} {r}/dev.src --line 99 --out x  | {r}/dev.src: has no line 99
score   | {r}/dev.tgt {r}/long --bleu                | {r}/long: got 2 lines, expected 40
score   | {r}/gap {r}/gap --bleu                     | {r}/gap:2: empty
score   | {r}/none {r}/none --bleu                   | {r}/none: has no lines
score   | {r}/gap {r}/gap --bleu --tokenize klingon  | --tokenize: got 'klingon'
score   | {r}/gap {r}/gap --bleu --unit word         | --unit: is for error rates
score   | {r}/gap {r}/gap --lowercase                | --tokenize, --lowercase: are for --bleu
prepare | parallel {r}/pairs {r}/out                 | --languages: got none, expected two
prepare | parallel {r}/pairs {r}/out --languages x y | {r}/pairs: no split has files of both
prepare | parallel {r}/pairs {r}/out --languages en de --splits a | {r}/pairs/a.de: got 1 lines, but
prepare | parallel {r}/pairs {r}/out --languages en de --splits b | {r}/pairs/b.en:2: empty, but
prepare | parallel {r}/pairs {r}/out --languages en de --splits c | {r}/pairs/c.de:1: the text has a control
prepare | parallel {r}/pairs {r}/out --languages en de --splits d | {r}/pairs/d.en:1: got 10001 characters
prepare | parallel {r}/pairs {r}/out --languages en de --splits e | {r}/pairs/e.de: have no pair of sentences
prepare | parallel {r}/pairs {r}/out --languages en de --splits f --normalize plain | f.de:2: normalization leaves
prepare | parallel {r}/pairs {r}/out --languages en de --splits q | --splits: got 'q', no such split
prepare | parallel {r}/pairs {r}/out --languages en de --dev 5    | --dev: is for recordings
prepare | tsv {r}/pairs {r}/out --languages en de    | --languages: is for parallel texts
"""


@each("name, arguments, message", rows(REFUSALS))
def test_refusals(whole, faulty, stderr, name, arguments, message):
    words = {"m": whole[0], "r": faulty, "l": faulty / "lm"}
    command = import_module(f"asr.cli.{name}").main
    assert status_of(command, *arguments.format(**words).split()) == 2
    assert message.format(**words) in stderr().splitlines()[-1]
    assert not (faulty / "out").exists()


def test_a_recognizer_does_not_translate_nor_the_other_way_round(whole, root, tmp_path):
    refused("holds a translator .*, expected a recognizer", api.load, whole[0], "cpu")
    lm, folder = LMSettings(**PART | {"kind": "lm"}), tmp_path / "lm"
    other = tokenizer.train("characters", ["abcdefgz"])
    LanguageModel(lm, other).save(folder, config.dump(FolderSettings(model=lm)))
    refused("holds a language model .*, expected a translator", translators.load, folder)
    options = SearchOptions("attention", lm=str(folder))
    found = translate(translators.load(whole[0]), [Text("x", 1, "a")], options)
    refused("a language model of other tokens", next, found)


def test_characters_that_no_token_has_are_left_out(whole, stderr):
    model, options = translators.load(whole[0]), SearchOptions("attention")
    texts = [Text("x", 1, "añb"), Text("y", 2, "ab")]
    strange, plain = (found.text for found in translate(model, texts, options))
    assert strange == plain and "doesn't know are left out" in stderr()


def test_prepared_texts_are_clean_and_packed_ones_the_same(tmp_path, stderr):
    write(tmp_path / "in/train.en", ["a  dog", "", "cafe\u0301 "])
    with gzip.open(tmp_path / "in/train.de.gz", "wt") as file:
        file.write("ein\tHund\n \nCafe\u0301\n")
    for message in ("train: 2 pairs, 3 and 3 words, 1 empty ones left out", "is up to date"):
        prepare.main(f"parallel {tmp_path}/in {tmp_path}/out --languages en de".split())
        assert message in stderr()
    assert (tmp_path / "out/train.en").read_text() == "a dog\ncafé\n"
    assert (tmp_path / "out/train.de").read_text() == "ein Hund\nCafé\n"


def test_scores_are_sacrebleu_s(tmp_path, capsys):
    sacrebleu = pytest.importorskip("sacrebleu")
    draw = random.Random(1)
    words = "A dog , runs over the Grass and THE man sees it ."
    ref = [" ".join(draw.choices(words.split(), k=9)) for _ in range(30)]
    hyp, other = ([" ".join(draw.sample(line.split(), n)) for line in ref] for n in (9, 4))
    paths = [
        str(write(tmp_path / name, lines))
        for name, lines in (("ref", ref), ("hyp", hyp), ("other", other))
    ]
    how = ["--bleu", "--tokenize", "none", "--lowercase", "--json", "-", "--against"]
    score.main([*paths[:2], *how, paths[2]])
    found = json.loads(capsys.readouterr().out)
    bleu, how = found["bleu"], {"tokenize": "none", "lowercase": True}
    best, least = (sacrebleu.corpus_bleu(lines, [ref], **how).score for lines in (hyp, other))
    chrf = sacrebleu.CHRF(lowercase=True).corpus_score(hyp, [ref]).score
    scores = bleu["score"], found["chrf"]["score"], bleu["difference"]
    assert scores == approx((best, chrf, best - least))
    assert bleu["p"] < 0.01 and bleu["low"] < best < bleu["high"] and found["lines"] == 30
    assert "|case:lc|eff:no|tok:none|" in bleu["signature"]
    score.main([*paths[:2], "--bleu"])
    cased = sacrebleu.corpus_bleu(hyp, [ref]).score
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith(f"BLEU {cased:.2f} [") and "|case:mixed|eff:no|tok:13a|" in first


WEAK = [*[""] * 18, "der Hund", "geht über Gräser"]


@each("hyp", [WEAK, ["x"] * 18 + WEAK[18:]], ids=["empty lines", "no match"])
def test_intervals_of_weak_systems_are_possible_scores(tmp_path, hyp):
    pytest.importorskip("sacrebleu")
    reference = write(tmp_path / "ref", ["der Hund geht über Gräser"] * 20)
    for metric in score_translations(reference, write(tmp_path / "hyp", hyp)).metrics.values():
        assert 0 <= metric.low <= metric.score <= metric.high <= 100


def test_a_system_does_not_differ_from_itself_nor_from_its_decomposed_form(tmp_path):
    pytest.importorskip("sacrebleu")
    text = "der Hund läuft über das grüne Gras\nzwei Männer spielen im Hof\n"
    for form in ("NFC", "NFD"):
        (tmp_path / form).write_text(unicodedata.normalize(form, text), encoding="utf-8")
    found = score_translations(tmp_path / "NFC", *[tmp_path / "NFD"] * 2, tokenize="none").metrics
    assert all((m.score, m.p) == (approx(100), 1) for m in found.values())


def test_tuning_prints_the_bleu_of_each_setting(whole, root, tmp_path, capsys):
    """As asr-score finds it of what asr-decode writes."""
    given = whole[0], root / "dev.src"
    decoded(*given, f"--tune length-norm=0,2 --reference {root}/dev.tgt")
    printed, told = capsys.readouterr()
    decoded(*given, f"--length-norm 2 --out {tmp_path}/x")
    score.main(f"{root}/dev.tgt {tmp_path}/x --bleu".split())
    bleu = capsys.readouterr().out.split()[1]
    assert printed.splitlines()[1] == f"{bleu}\t--length-norm 2.0" and "best: --length-norm" in told


def test_attention_is_drawn_source_by_target(whole, root, tmp_path, capsys):
    path, image = root / "dev.src", tmp_path / "x.png"
    plot.main(f"--model {whole[0]} {path} --line 3 --out {image}".split())
    where, text = capsys.readouterr().out.rstrip("\n").split("\t")
    assert image.read_bytes()[:4] == b"\x89PNG" and where == f"{path}:3"
    line = Text(where, 3, path.read_text().splitlines()[2])
    seen = attention.observe(translators.load(whole[0]), line, SearchOptions("attention"))
    assert seen.attention.shape == (1, 2, len(text) + 1, len(line.text) + 1) and seen.text == text
    assert ["".join(side[:-1]) for side in (seen.source, seen.target)] == [line.text, text]
    assert seen.attention.sum(3) == approx(1, abs=1e-5)


@slow
def test_letters_are_reversed(tmp_path):
    """All held-out words of the lengths of the training come out right."""
    lengths = range(1, letters.MOST + 1)
    assert dict(letters.right(tmp_path, -1, lengths)) == dict.fromkeys(lengths, letters.EACH)
