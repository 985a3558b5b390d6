"""Prove the language model: its loss and perplexity by plain computations, its training by the laws of training.

The language it learns is constructed: a chain of letters whose probabilities are known, so that the text's own
perplexity is computed, not fitted.
"""

import itertools
import math
import random
from dataclasses import replace
from statistics import mean

import pytest
import torch
import torch.nn.functional as F
from miniatures import write
from partly import partly
from pytest import approx
from refusals import refused
from runs import Stop, assert_processes_change_nothing, assert_uninterrupted, history, stop, weights
from runs import train_as_is as train
from small import PART, each, near, options, rows, slow
from tones import write_corpus

from asr.cli import decode
from asr.data import tokens
from asr.data.texts import tokenize
from asr.models import lm
from asr.models.lm import LanguageModel, LMSettings, TransformerLM
from asr.tasks.language_model import LanguageModelTask
from asr.text import tokenizer
from asr.training.distributed.group import Group
from asr.training.identity import stamp_of
from asr.training.settings import TextDataSettings
from asr.training.trainer import Trainer

V, EOS = 9, 8
SHAPES = ["", "norm: post", "tied: true", "d_k: 5, d_v: 3", "activation: gelu"]
CONFIG = """
out: {root}/model
seed: 3
tokenizer: {root}/tokenizer
data: {{train: {root}/train.txt, dev: {root}/dev.txt, batch_tokens: 300}}
model: {{kind: lm, d_model: 32, layers: 1, heads: 2, ff: 64, dropout: 0.05, tied: true}}
optimizer: {{kind: adamw, lr: 5e-3}}
schedule: {{kind: cosine, warmup: 20}}
training: {{epochs: 3, average: 2, device: cpu, processes: 1}}
"""


def sizes(text=""):
    return LMSettings(**PART | {"kind": "lm"} | options(text))


def build(shape=""):
    """A model with weights so large that a mistake shows."""
    torch.manual_seed(1)
    model = TransformerLM(sizes(shape), V).double().eval()
    for parameter in model.parameters():
        parameter.data += torch.randn_like(parameter) * 0.2
    return model


def batch():
    """Three sentences, one of them empty, with anything in the padding."""
    Y = torch.randint(1, EOS, (3, 6), generator=torch.Generator().manual_seed(2))
    return Y, torch.tensor([6, 0, 3])


@each("shape", SHAPES)
def test_the_loss_is_that_of_each_sentence_label_by_label(shape):
    """Each label's from what stands before it alone: neither the future nor the padding matters."""
    model, (Y, Y_lens), total, correct = build(shape), batch(), 0, 0
    assert (model.decoder.out.weight is model.decoder.embedding.weight) == ("tied" in shape)
    for y, length in zip(Y, Y_lens, strict=True):
        sentence = [*y[:length], EOS]
        for n, label in enumerate(sentence):
            before = torch.tensor([sentence[:n]], dtype=torch.long)
            logits = model(before, torch.tensor([n]))
            assert logits.shape == (1, n + 1, V)
            total -= logits[0, -1].log_softmax(0)[label]
            correct += logits[0, -1].argmax() == label
    loss = model.loss(Y, Y_lens)
    near(loss.total.double(), total, 1e-4)  # it is summed in float32
    assert (loss.correct, loss.tokens) == (correct, 12)
    assert loss.total.requires_grad and not loss.terms["nll"].requires_grad


# ---- training, on a language: words begin with any of four letters; after a letter comes each of the next two, a
# space, or the end


def write_language(path, sentences, seed):
    """Write sentences; return their -ln P, in all."""
    rng, nll, lines = random.Random(seed), 0.0, []
    odds = {1: 0.35, 2: 0.35, " ": 0.2, "end": 0.1}
    for _ in range(sentences):
        line, letter, choice = "", None, " "
        while choice != "end":
            if choice == " ":
                letter, nll = rng.randrange(4), nll + math.log(4)
            else:
                letter = (letter + choice) % 4
            line += "abcd"[letter]
            choice = rng.choices(list(odds), list(odds.values()))[0]
            nll -= math.log(odds[choice])
            line += " " if choice == " " else ""
        lines.append(line + "\n")
    path.write_text("".join(lines))
    return nll


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("lm")
    write_language(root / "train.txt", 300, 1)
    write_language(root / "dev.txt", 50, 2)
    tokenizer.train("characters", ["a b c d"]).save(root / "tokenizer")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    return root


@pytest.fixture(scope="module")
def whole(root):
    return root / "whole", weights(train(root, root / "whole"))


@slow
def test_a_language_is_learned_to_its_perplexity(root, tmp_path, stderr):
    more = "training.epochs=10 optimizer.lr=1.5e-2 model.tied=false model.dropout=0.0"
    train(root, tmp_path / "x", *more.split())
    final = history(tmp_path / "x")[-1]
    assert (final["kind"], final["chosen"]) == ("candidate", True)
    text = (root / "dev.txt").read_text()  # its characters are the targets, line ends included
    nll, words = write_language(tmp_path / "dev.txt", 50, 2), len(text.split())
    assert final["loss"] == approx(nll / len(text), rel=0.03)
    assert final["word_perplexity"] == approx(math.exp(nll / (words + 50)), rel=0.1)
    log = stderr()
    assert f"{root}/dev.txt: 50 sentences, {words} words, " in log and "<- the model" in log


def test_perplexity_is_a_plain_computation(root, whole):
    loaded = lm.load(whole[0])
    text, losses = (root / "dev.txt").read_text(), []
    for line in text.splitlines():
        y = torch.tensor([loaded.tokenizer.encode(line)])
        logits = loaded.model(y, torch.tensor([y.size(1)]))[0].double()
        targets = torch.tensor([*y[0], loaded.model.sos_eos])
        losses += F.cross_entropy(logits, targets, reduction="none").tolist()
    words = len(text.split()) + text.count("\n")  # and the ends
    dev = tokenize(root / "dev.txt", loaded.tokenizer)
    expected = mean(losses), math.exp(mean(losses)), math.exp(sum(losses) / words)
    for batch_tokens in (1, 300):
        data = TextDataSettings(train="", dev="", batch_tokens=batch_tokens)
        figures = LanguageModelTask(loaded, data, dev, dev, 0).validate("fp32", Group())
        found = [figures[name] for name in ("loss", "perplexity", "word_perplexity")]
        assert found == approx(expected, rel=1e-6)
    recorded = history(whole[0])[-1]
    assert {name: recorded[name] for name in figures} == approx(figures, rel=1e-6)


@each("stop_at", partly([3, 20], 2))
def test_continued_equals_uninterrupted(root, whole, tmp_path, stop_at):
    stop(root, tmp_path / "x", stop_at, "training.save_steps=1")
    assert_uninterrupted(root, tmp_path / "x", whole)


@slow
def test_a_run_stopped_after_its_end_equals_an_uninterrupted_one(
    root, whole, tmp_path, monkeypatch
):
    """When the average has been judged already."""
    fit = Trainer.fit

    def stopping_at_the_end(self, out):
        fit(self, out)
        raise Stop

    with monkeypatch.context() as patch, pytest.raises(Stop):
        patch.setattr(Trainer, "fit", stopping_at_the_end)
        train(root, tmp_path / "x", "training.save_steps=1")
    assert_uninterrupted(root, tmp_path / "x", whole)


@slow
def test_runs_share_a_folder_of_token_ids(root, tmp_path, monkeypatch):
    more = "training.epochs=1", f"data.tokens={tmp_path}/ids"
    train(root, tmp_path / "x", *more)
    assert not (tmp_path / "x.tokens").exists()
    assert stamp_of(root / "x.yaml", [f"out={tmp_path}/x", more[0]]).is_current()  # it's no matter
    monkeypatch.setattr(tokens, "encoded", None)  # nothing is tokenized again
    train(root, tmp_path / "y", *more, "seed=4")


@slow
def test_the_number_of_processes_changes_nothing(root, tmp_path):
    assert_processes_change_nothing(root, tmp_path)


def test_lines_are_named_whose_loss_is_not_finite_or_that_are_too_long(
    root, tmp_path, monkeypatch, stderr
):
    """Of the training set; the dev set keeps what is too long."""
    loss, factors = LanguageModel.loss, itertools.chain([1, math.nan], itertools.repeat(1))

    def poisoned(self, *batch):
        made = loss(self, *batch)
        return replace(made, total=made.total * next(factors))

    monkeypatch.setattr(LanguageModel, "loss", poisoned)
    long = " ".join("ab" * 30) + "\n"
    (tmp_path / "train.txt").write_text((root / "train.txt").read_text() + long)
    (tmp_path / "dev.txt").write_text(long)
    files = [f"data.{split}={tmp_path}/{split}.txt" for split in ("train", "dev")]
    train(root, tmp_path / "x", *files, "data.max_tokens=100", "training.epochs=1")
    log = stderr()
    assert f"step 2 left out: its loss isn't finite; {tmp_path}/train.txt, lines " in log
    assert "1 too long ones left out (lines 301)" in log
    dropped = (tmp_path / "x/dropped.tsv").read_text()
    assert dropped == f"{tmp_path}/train.txt:301\tmore tokens than max_tokens\n"


MISTAKES = r"""
data.dev=bad.txt       | bad\.txt:3: character 'x' \(U\+0078\) of 'a x'
data.train=no.txt      | no\.txt: no such text file
data.max_tokens=0      | data.max_tokens: got 0
data.batch_seconds=3   | data.batch_seconds: no such setting; did you mean 'batch_tokens'
training.best_by=wer   | training.best_by: got 'wer', expected: 'loss' or 'accuracy'
training.shuffle=1     | training.shuffle: no such setting
tokenizer=nowhere      | nowhere/tokenizer.json: no tokenizer here
"""


@each("override, message", rows(MISTAKES))
def test_mistakes_are_told_before_anything_is_made(root, tmp_path, monkeypatch, override, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.txt").write_text("a b\n\na x\n")
    refused(message, train, root, tmp_path / "x", override)
    assert not (tmp_path / "x").exists()


def test_a_recognizer_is_no_language_model_nor_the_other_way_round(root, whole, tmp_path, stderr):
    write_corpus(tmp_path, {"test": 1})
    command = f"--model {whole[0]} {tmp_path}/test000.wav"
    pytest.raises(SystemExit, decode.main, command.split())
    message = "whole: holds a language model (model.kind: lm), expected a recognizer (hybrid)\n"
    assert stderr().endswith(message)
    for text, message in (
        ("features: {}\nmodel: {kind: hybrid}", r"m: holds a recognizer \(model.kind: hybrid\)"),
        ("model: {kind: lm, layers: 1}", "config.yaml: model.d_model: missing"),
    ):
        write(tmp_path / "m/config.yaml", [text])
        refused(message, lm.load, tmp_path / "m")
