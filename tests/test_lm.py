"""Prove the language model: its loss and perplexity by plain computations, its training by the laws of training.

The language it learns is constructed: a chain of letters whose probabilities are known, so that the text's own
perplexity is computed, not fitted.
"""

import math
import random
import re
from dataclasses import replace

import pytest
import torch
from runs import Stop, history, stopping, weights
from tones import write_corpus
from torch.testing import assert_close

from asr import config, tasks
from asr.cli import decode
from asr.cli import train as command
from asr.data import bucketing, tokens
from asr.data.texts import tokenize
from asr.errors import UserError
from asr.models import lm, recognizer
from asr.models.lm import LanguageModel, LMSettings, TransformerLM
from asr.tasks.language_model import LanguageModelTask
from asr.text import tokenizer
from asr.training import run
from asr.training.distributed.group import Group
from asr.training.identity import stamp_of
from asr.training.metrics import value
from asr.training.settings import TextDataSettings
from asr.training.trainer import Trainer

V, EOS = 9, 8
SHAPES = {
    "pre-norm": {},
    "post-norm": {"norm": "post"},
    "tied": {"tied": True},
    "d_k and d_v": {"d_k": 5, "d_v": 3},
    "gelu": {"activation": "gelu"},
}
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


def sizes(**more):
    return LMSettings(
        kind="lm", **{"d_model": 12, "layers": 2, "heads": 3, "ff": 16, "dropout": 0.1, **more}
    )


def build(**more):
    torch.manual_seed(1)
    model = TransformerLM(sizes(**more), V).double().eval()
    with torch.no_grad():  # weights large enough that a mistake shows
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def batch():
    """Three sentences, one of them empty, with anything in the padding."""
    Y = torch.randint(1, EOS, (3, 6), generator=torch.Generator().manual_seed(2))
    return Y, torch.tensor([6, 0, 3])


@pytest.mark.parametrize("shape", SHAPES)
def test_the_loss_is_that_of_each_sentence_label_by_label(shape):
    model, (Y, Y_lens) = build(**SHAPES[shape]), batch()
    total, correct = torch.zeros((), dtype=torch.double), 0
    for y, length in zip(Y, Y_lens.tolist(), strict=True):
        sentence = [*y[:length].tolist(), EOS]
        for n, label in enumerate(sentence):
            before = torch.tensor([sentence[:n]], dtype=torch.long)
            logits = model(before, torch.tensor([n]))
            assert logits.shape == (1, n + 1, V)
            total = total - logits[0, -1].log_softmax(0)[label]
            correct += int(logits[0, -1].argmax() == label)
    loss = model.loss(Y, Y_lens)
    assert_close(
        loss.total, total, check_dtype=False, rtol=1e-5, atol=1e-5
    )  # it is summed in float32
    assert (int(loss.correct), int(loss.tokens)) == (correct, 12)
    assert loss.total.requires_grad and not loss.terms["nll"].requires_grad


def test_padding_never_matters():
    model, (Y, Y_lens) = build(), batch()
    logits = model(Y, Y_lens)
    for other in (
        Y.masked_fill(torch.arange(6) >= Y_lens.unsqueeze(1), -1),
        torch.nn.functional.pad(Y, (0, 4)),
    ):
        again = model(other, Y_lens)
        for row, n in enumerate(Y_lens.tolist()):
            assert_close(again[row, : n + 1], logits[row, : n + 1])
        assert_close(model.loss(other, Y_lens).total, model.loss(Y, Y_lens).total)
    for row, n in enumerate(Y_lens.tolist()):
        assert_close(model(Y[row : row + 1, :n], Y_lens[row : row + 1])[0], logits[row, : n + 1])


def test_the_future_does_not_matter_and_the_past_does():
    model, (Y, _) = build(), batch()
    lens = torch.full((3,), 6)
    logits = model(Y, lens)
    for u in range(6):
        other = Y.clone()
        other[:, u:] = other[:, u:] % (EOS - 1) + 1
        assert_close(model(other, lens)[:, : u + 1], logits[:, : u + 1])
        assert (model(other, lens)[:, u + 1] - logits[:, u + 1]).abs().max() > 1e-3


def test_tied_weights_are_one_tensor_of_the_embedding_s_size():
    model = TransformerLM(sizes(tied=True, d_model=96), 500)
    assert model.decoder.out.weight is model.decoder.embedding.weight
    assert model.decoder.embedding.weight.std().item() == pytest.approx(96**-0.5, rel=0.02)


def test_the_attention_of_every_layer():
    maps = build().decoder(batch()[0].clamp(min=0), attention=True).attention
    assert [m.shape for m in maps] == [(3, 3, 6, 6)] * 2 and not any(m.triu(1).any() for m in maps)


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
    nll = write_language(root / "dev.txt", 50, 2)
    tokenizer.train("characters", ["a b c d"]).save(root / "tokenizer")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    (root / "nll").write_text(str(nll))
    return root


def train(root, out, *overrides):
    arguments = (root / "x.yaml", [f"out={out}", *overrides])
    return run.train(config.load(tasks.Experiment, *arguments), stamp_of(*arguments))


@pytest.fixture(scope="module")
def whole(root):
    return root / "whole", weights(train(root, root / "whole"))


def test_a_language_is_learned_to_its_perplexity(root, tmp_path, capsys):
    train(
        root,
        tmp_path / "x",
        "training.epochs=10",
        "optimizer.lr=1.5e-2",
        "model.tied=false",
        "model.dropout=0.0",
    )
    final = history(tmp_path / "x")[-1]
    assert (final["kind"], final["name"], final["chosen"]) == ("candidate", final["name"], True)
    text = (
        root / "dev.txt"
    ).read_text()  # its characters are the targets, line ends as sentence ends
    nll, words = float((root / "nll").read_text()), text.split()
    assert final["loss"] == pytest.approx(nll / len(text), rel=0.03)
    assert final["perplexity"] == pytest.approx(math.exp(nll / len(text)), rel=0.03)
    assert final["word_perplexity"] == pytest.approx(math.exp(nll / (len(words) + 50)), rel=0.1)
    said = capsys.readouterr().err
    assert f"{root}/dev.txt: 50 sentences, {len(words)} words, " in said
    assert (
        "ppl = exp(-ln P / tokens), word-ppl = exp(-ln P / words), each sentence's end counted"
        in said
    )
    row = re.search(rf"{final['name']}  +(.*)  <- the model\n", said)[1].split()
    names = ("loss", "accuracy", "perplexity", "word_perplexity")
    assert row == [value(name, final[name]) for name in names]


def test_perplexity_is_a_plain_computation(root, whole):
    loaded = lm.load(whole[0])
    lines, nll, tokens = (root / "dev.txt").read_text().splitlines(), 0.0, 0
    with torch.no_grad():
        for line in lines:
            y = torch.tensor([loaded.tokenizer.encode(line)])
            log_probs = loaded.model(y, torch.tensor([y.size(1)])).log_softmax(-1)[0]
            nll -= float(
                log_probs.gather(1, torch.tensor([[*y[0], loaded.model.sos_eos]]).T).double().sum()
            )
            tokens += y.size(1) + 1
    words = sum(len(line.split()) for line in lines)
    dev = tokenize(root / "dev.txt", loaded.tokenizer)
    for batch_tokens in (1, 300):
        data = TextDataSettings(train="", dev="", batch_tokens=batch_tokens)
        figures = LanguageModelTask(loaded, data, dev, dev, 0).validate("fp32", Group())
        assert figures["loss"] == pytest.approx(nll / tokens, rel=1e-6)
        assert figures["perplexity"] == pytest.approx(math.exp(nll / tokens), rel=1e-6)
        assert figures["word_perplexity"] == pytest.approx(
            math.exp(nll / (words + len(lines))), rel=1e-5
        )
    recorded = history(whole[0])[-1]
    assert {name: recorded[name] for name in figures} == pytest.approx(figures, rel=1e-6)


def test_same_seed_same_losses_and_another_seed_others(root, whole, tmp_path):
    again = weights(train(root, tmp_path / "again"))
    assert history(tmp_path / "again") == history(whole[0])
    assert_close(again, whole[1], rtol=0, atol=0)
    train(root, tmp_path / "other", "seed=4")
    assert history(tmp_path / "other") != history(whole[0])


@pytest.mark.parametrize("stop_at", [3, 20, 0])
def test_continued_equals_uninterrupted(root, whole, tmp_path, monkeypatch, stop_at):
    """Stopped in the first epoch, in the second, and (0) after the end, when the average has been judged already."""
    fit = Trainer.fit

    def stopping_at_the_end(self, out):
        fit(self, out)
        raise Stop

    if stop_at:
        stopping(monkeypatch, stop_at)
    else:
        monkeypatch.setattr(Trainer, "fit", stopping_at_the_end)
    with pytest.raises(Stop):
        train(root, tmp_path / "stopped", "training.save_steps=1")
    monkeypatch.undo()
    continued = weights(train(root, tmp_path / "stopped"))
    assert_close(continued, whole[1], rtol=0, atol=0)
    assert history(tmp_path / "stopped") == history(whole[0])


def test_continued_equals_uninterrupted_over_windows_too(root, tmp_path, monkeypatch):
    monkeypatch.setattr(bucketing, "BLOCK", 8)
    monkeypatch.setattr(bucketing, "WINDOW", 64)
    whole = weights(train(root, tmp_path / "whole", "training.epochs=2"))
    with monkeypatch.context() as patched:
        stopping(patched, history(tmp_path / "whole")[0]["step"] + 5)
        with pytest.raises(Stop):
            train(root, tmp_path / "stopped", "training.epochs=2", "training.save_steps=1")
    assert_close(
        weights(train(root, tmp_path / "stopped", "training.epochs=2")), whole, rtol=0, atol=0
    )
    assert history(tmp_path / "stopped") == history(tmp_path / "whole")


def test_runs_share_a_folder_of_token_ids(root, tmp_path, monkeypatch, capsys):
    arguments = root, tmp_path / "x", "training.epochs=1"
    train(*arguments, f"data.tokens={tmp_path}/ids")
    assert not (tmp_path / "x.tokens").exists()
    monkeypatch.setattr(tokens, "encoded", None)  # nothing is tokenized again
    train(root, tmp_path / "y", "training.epochs=1", "seed=4", f"data.tokens={tmp_path}/ids")
    command.main(
        ["--config", str(root / "x.yaml"), f"out={tmp_path}/x", "training.epochs=1"]
    )  # the folder is no matter
    assert capsys.readouterr().err.endswith(f"{tmp_path}/x is up to date\n")


def test_the_number_of_processes_changes_nothing(root, tmp_path):
    """Not a bit."""
    one, two = (
        weights(
            train(
                root,
                tmp_path / str(n),
                "training.accumulate=3",
                f"training.processes={n}",
                "training.epochs=1",
            )
        )
        for n in (1, 2)
    )
    assert_close(two, one, rtol=0, atol=0)
    assert history(tmp_path / "1") == history(tmp_path / "2")


def test_the_folder_is_a_model_folder(root, whole):
    out, _ = whole
    for name in ("config.yaml", "model.safetensors", "tokenizer.json", "versions.json"):
        assert (out / name).exists(), name
    assert config.load(tasks.Experiment, out / "config.yaml").model.kind == "lm"
    assert list((out / "tensorboard").iterdir())
    assert lm.load(out).tokenizer.decode([1, 2]) == "a"


def test_a_loss_that_is_not_finite_names_the_lines(root, tmp_path, monkeypatch, capsys):
    def poisoned(self, Y, Y_lens, loss=LanguageModel.loss, steps=[0]):  # noqa: B006 - counts
        steps[0] += 1
        made = loss(self, Y, Y_lens)
        return replace(made, total=made.total * (float("nan") if steps[0] == 2 else 1.0))

    monkeypatch.setattr(LanguageModel, "loss", poisoned)
    train(root, tmp_path / "x", "training.epochs=1")
    assert (
        f"step 2 left out: its loss isn't finite; {root}/train.txt, lines "
        in capsys.readouterr().err
    )


def test_mistakes_are_said_before_anything_is_made(root, tmp_path):
    (tmp_path / "bad.txt").write_text("a b\n\na x\n")
    cases = {
        f"data.dev={tmp_path}/bad.txt": r"bad\.txt:3: character 'x' \(U\+0078\) of 'a x' is not in the tokenizer's",
        "data.train=no.txt": r"no\.txt: no such text file",
        "data.max_tokens=0": "data.max_tokens: got 0, expected: greater than 0",
        "data.batch_seconds=3": "data.batch_seconds: no such setting; did you mean 'batch_tokens'",
        "training.best_by=wer": "training.best_by: got 'wer', expected: 'loss' or 'accuracy'",
        "training.shuffle=1": "training.shuffle: no such setting",
        "tokenizer=nowhere": "nowhere/tokenizer.json: no tokenizer here",
    }
    for override, message in cases.items():
        with pytest.raises(UserError, match=message):
            train(root, tmp_path / "x", override)
    assert not (tmp_path / "x").exists()


def test_too_long_sentences_are_listed_of_train_and_kept_of_dev(root, tmp_path, capsys):
    (tmp_path / "train.txt").write_text(
        (root / "train.txt").read_text() + " ".join("ab" * 30) + "\n"
    )
    (tmp_path / "dev.txt").write_text(" ".join("ab" * 30) + "\n")
    files = [f"data.{split}={tmp_path}/{split}.txt" for split in ("train", "dev")]
    train(root, tmp_path / "x", *files, "data.max_tokens=100", "training.epochs=1")
    assert "1 too long ones left out (lines 301)" in capsys.readouterr().err
    assert (
        tmp_path / "x/dropped.tsv"
    ).read_text() == f"{tmp_path}/train.txt:301\tmore tokens than max_tokens\n"


def test_a_recognizer_is_no_language_model_nor_the_other_way_round(root, whole, tmp_path, capsys):
    out, _ = whole
    message = r"whole: holds a language model \(model.kind: lm\), expected a recognizer \(hybrid\)$"
    with pytest.raises(UserError, match=message):
        recognizer.load(out)
    write_corpus(tmp_path, {"test": 1})
    with pytest.raises(SystemExit):
        decode.main(["--model", str(out), "--device", "cpu", str(tmp_path / "test000.wav")])
    assert capsys.readouterr().err.strip().endswith("expected a recognizer (hybrid)")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.yaml").write_text("features: {}\nmodel: {kind: hybrid}\n")
    with pytest.raises(
        UserError, match=r"m: holds a recognizer \(model.kind: hybrid\), expected a language model"
    ):
        lm.load(tmp_path / "m")
    with pytest.raises(UserError, match="no: no such model folder; asr-train makes one"):
        lm.load(tmp_path / "no")
    LanguageModel(sizes(), tokenizer.load(root / "tokenizer")).save(
        tmp_path / "n", "model: {kind: lm, layers: 1}\n"
    )
    with pytest.raises(
        UserError, match=r"config.yaml: model.d_model: missing; a complete experiment states it"
    ):
        lm.load(tmp_path / "n")
