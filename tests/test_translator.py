"""Prove the translator: its model by PyTorch's own Transformer, its search by exhaustive search, its training by laws.

The languages it learns are constructed: letters, copied or reversed, so that every answer is known.
"""

import functools
import math
import shutil
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
    assert_processes_change_nothing,
    assert_uninterrupted,
    history,
    stop,
    train,
    weights,
)
from searches import exhaustive
from small import PART, each, near, options, slow
from torch import nn

from asr import config, tasks
from asr.data import manifest, texts
from asr.data.manifest import Utterance
from asr.data.parallel import join
from asr.data.texts import tokenize
from asr.models import translator as translators
from asr.models.lm import FolderSettings, LanguageModel, LMSettings
from asr.models.transfer import load_what_fits
from asr.models.translator import TranslationModel, Translator, TranslatorSettings
from asr.nn.positions import sinusoids
from asr.ops import causal_mask
from asr.tasks.translator import TranslatorTask
from asr.text import tokenizer
from asr.training.distributed.group import Group
from asr.training.settings import PairDataSettings
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher

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


def searcher(model, limit, tokenizer=None, **options):
    model.limits = lambda H_lens: torch.full_like(H_lens, limit)
    fake = SimpleNamespace(model=model, tokenizer=tokenizer, parameters=model.parameters)
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


@torch.no_grad()
def test_with_a_language_model_the_search_is_exhaustive_too(tmp_path):
    model, (X, X_lens, *_), limit = build(), batch(), 3
    letters, settings = (
        tokenizer.train("characters", ["abcde"]),
        LMSettings(**PART | {"kind": "lm"}),
    )
    language = LanguageModel(settings, letters).eval()
    language.save(tmp_path, config.dump(FolderSettings(model=settings)))

    @functools.cache
    def translated(b, labels):
        S, y = X_lens[b], torch.tensor([labels], dtype=torch.long)
        logits = model(X[b][None, :S], S[None], y, torch.tensor([len(labels)]))[0, -1]
        return logits.log_softmax(0).tolist()

    @functools.cache
    def written(b, labels):
        y = torch.tensor([labels], dtype=torch.long)
        return language.model(y, torch.tensor([len(labels)]))[0, -1].log_softmax(0).tolist()

    how = {"lm": str(tmp_path), "lm_weight": 0.7}
    found = searcher(model, limit, letters, **how).search(*model.encode(X, X_lens))
    for b, nbest in enumerate(found):
        scorers = {"a": (translated, True, 1.0), "lm": (written, True, 0.7)}
        scores, labels = zip(*exhaustive(scorers, b, limit, V)[:9], strict=True)
        assert [h.tokens for h in nbest] == [*labels]
        assert [h.score for h in nbest] == approx(scores, abs=1e-5)


# training, on letters that are reversed or copied


def test_the_metrics_are_plain_computations(lettered, translator):
    loaded = translators.load(translator[0])
    lines = [(lettered / f"dev.{side}").read_text().splitlines() for side in ("src", "tgt")]
    losses, correct = [], []
    for pair in zip(*lines, strict=True):
        x, y = (torch.tensor([loaded.tokenizer.encode(text)]) for text in pair)
        logits = loaded.model(x, torch.tensor([x.size(1)]), y, torch.tensor([y.size(1)]))[0]
        targets = torch.tensor([*y[0], loaded.model.sos_eos])
        losses += F.cross_entropy(logits.double(), targets, reduction="none").tolist()
        correct += (logits.argmax(1) == targets).tolist()
    dev = join(*(tokenize(lettered / f"dev.{side}", loaded.tokenizer) for side in ("src", "tgt")))
    expected = {"loss": mean(losses), "accuracy": mean(correct)}
    expected["perplexity"] = math.exp(expected["loss"])
    for size in (1, 300):
        data = PairDataSettings(train="x", dev="x", batch_tokens=size)
        task = TranslatorTask(loaded, data, dev, dev, 0)
        figures = task.validate("fp32", Group())
        assert figures == approx(expected, rel=1e-6) and len(task.alignments()) == 4
    recorded = history(translator[0])[-1]
    assert {name: recorded[name] for name in figures} == approx(figures, rel=1e-6)


@each("stop_at", partly([3, 15], 2))
def test_continued_equals_uninterrupted(lettered, translator, tmp_path, stop_at):
    stop(lettered, tmp_path / "stopped", stop_at, "training.save_steps=1")
    assert_uninterrupted(lettered, tmp_path / "stopped", translator)


@slow
def test_the_number_of_processes_changes_nothing(lettered, tmp_path):
    assert_processes_change_nothing(lettered, tmp_path, counts=(1, 2, 4))


def test_a_table_is_the_same_as_two_files(lettered, tmp_path):
    files = [lettered / "dev.src", lettered / "dev.tgt"]
    both = (file.read_text().splitlines() for file in files)
    table = write(tmp_path / "dev.tsv", map("\t".join, zip(*both, strict=True)))
    for column, file in enumerate(files):
        found = [text.text.rstrip("\n") for text in texts.read(table, column)]
        assert found == file.read_text().splitlines()


@pytest.fixture(scope="module")
def apart(lettered):
    """A translator of two tokenizers, hardly trained."""
    more = f"source_tokenizer={lettered}/other", "model.shared=false", "training.epochs=1"
    return train(lettered, lettered / "apart", *more)


def test_two_tokenizers_make_a_folder_that_gives_them_back(lettered, apart, tmp_path):
    loaded = translators.load(lettered / "apart")
    assert loaded.source_tokenizer.symbols() == list(tokenizer.load(lettered / "other").symbols())
    assert loaded.tokenizer.symbols() != loaded.source_tokenizer.symbols()
    near(weights(loaded), weights(apart))
    damaged = shutil.copytree(lettered / "apart", tmp_path / "damaged")
    tokenizer.train("characters", ["hgfedcbz"]).save(damaged / "source")
    refused("source/tokenizer.json: .* changed since", translators.load, damaged)


def test_weights_of_other_tokens_are_taken_by_their_rows(lettered, apart):
    """Of the source by its tokenizer, of the target by its own."""
    source, target = (tokenizer.train("characters", [text]) for text in ("bcdefghxy", "hgf edcba"))
    settings = config.load(tasks.Experiment, lettered / "apart/config.yaml").model
    model, old = Translator(settings, target, source), translators.load(lettered / "apart")
    transfer = load_what_fits(model, lettered / "apart")
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


def test_long_pairs_are_left_out_together(lettered, tmp_path, stderr):
    source, target = (lettered / "train.src").read_text(), (lettered / "train.tgt").read_text()
    (tmp_path / "train.src").write_text("a\n" + "b" * 30 + "\n\nc\n" + source)
    (tmp_path / "train.tgt").write_text("d" * 30 + "\ne\n\nf\n" + target)
    files = f"data.train=[{tmp_path}/train.src,{tmp_path}/train.tgt]"
    train(lettered, tmp_path / "x", files, "data.max_tokens=20", "training.epochs=1")
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


def test_manifests_are_joined_by_their_ids(tmp_path):
    tokens = tokenizer.train("characters", ["abc"])
    sides = {"x": "ab", "y": "ab", "swapped": "ba", "one": "a"}
    for name, ids in sides.items():
        spoken = (Utterance(u, f"/{name}.wav", 8000, 8000, 1, 0.0, 1.0, "abc") for u in ids)
        manifest.write(tmp_path / f"{name}.jsonl.gz", spoken)
    read = {name: tokenize(tmp_path / f"{name}.jsonl.gz", tokens) for name in sides}
    assert len(join(read["x"], read["y"])) == 2
    refused(
        "swapped.jsonl.gz: got 'b' as utterance 1, expected 'a'", join, read["x"], read["swapped"]
    )
    refused("got 2 and 1 lines", join, read["x"], read["one"])
    plain = tokenize(write(tmp_path / "plain", ["a", "b"]), tokens)
    assert len(join(plain, read["swapped"])) == 2  # texts have no ids
