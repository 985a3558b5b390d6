"""Prove the model: padding and batch never matter, its loss is the sum of its utterances', its folder gives it back.

Each law of the encoders' contract (contracts.py) is shown to refuse a planted fault. The loss's reference is computed
utterance by utterance, without padding, by `F.cross_entropy` and `F.ctc_loss`.
"""

import math
import pickle
import re

import pytest
import torch
import torch.nn.functional as F
import yaml
from contracts import check_encoder, padded
from refusals import refused
from safetensors.torch import load_file, save_file
from small import FEATURES, Malicious, each, hybrid, near, noise, rows, sizes
from small import VOCABULARY as V
from torch import nn
from torch.testing import assert_close

from asr.features.frontend import FrontendSettings
from asr.models.folder import CONFIG, WEIGHTS
from asr.models.recognizer import Recognizer, load
from asr.nn.encoder import EncoderOutput
from asr.nn.layers import Dropout
from asr.nn.subsampling import Subsampling
from asr.ops import causal_mask, key_mask
from asr.text.tokenizer import train

PLAIN = ["", "both: {norm: post}", "encoder: {positions: rotary}"]
CONVOLUTIONS = """encoder: {kind: conformer, kernel: 5}
encoder: {kind: e_branchformer, cgmlp: 14, kernel: 5, merge_kernel: 3}
encoder: {kind: conformer, kernel: 5, chunk: {frames: 3, left: 1}}""".splitlines()
OTHERS = """decoder: {tied: true}
both: {d_k: 5, d_v: 2}
both: {activation: gelu}, decoder: {d_model: 8, heads: 2}
encoder: {subsampling: 6, channels: null}
encoder: {subsampling: 8}
ctc_weight: 0.0, label_smoothing: 0.0
ctc_weight: 1.0""".splitlines()
VARIANTS = PLAIN + CONVOLUTIONS + OTHERS


def data(padding=-1, fill=torch.nan):
    """Features and labels of four utterances, one of them with an empty text."""
    Y = torch.tensor([[1, 2, 2, 7], [3, -1, -1, -1], [7, 6, 5, -1], [-1, -1, -1, -1]])
    Y_lens = torch.tensor([4, 1, 3, 0])
    return *padded(FEATURES, (61, 33, 75, 47), fill), Y.masked_fill(Y == -1, padding), Y_lens


def singles(X, X_lens, Y, Y_lens):
    """Each utterance alone, without padding."""
    for b in range(len(X)):
        one = slice(b, b + 1)
        yield X[one, : X_lens[b]], X_lens[one], Y[one, : Y_lens[b]], Y_lens[one]


# --- faults planted against the contract ----------------------------------------------------------


class Frames(nn.Module):
    """The simplest encoder: a linear map of each frame, and one more parameter."""

    def __init__(self, clean=lambda X, real: X.where(real, 0), end=torch.add, lengths=torch.clone):
        super().__init__()
        self.map, self.shift = nn.Linear(FEATURES, 5), nn.Parameter(torch.ones(5))
        self.clean, self.end, self.lengths = clean, end, lengths

    def forward(self, X, X_lens):
        real = (torch.arange(X.size(1)) < X_lens[:, None])[:, :, None]
        H = self.end(self.map(self.clean(X, real)), self.shift)
        return EncoderOutput(H, self.lengths(X_lens))


FAULTS = {
    "more padding": {"end": lambda H, shift: shift + H - H.mean(1, keepdim=True)},
    "alone": {"end": lambda H, shift: shift + H + 0.1 * H[:, :30].mean((0, 1))},
    "padding of 0.0 or NaN: NaN": {"clean": lambda X, real: X.where(real, 0) + X.mean() * 0},
    "changes its input": {"clean": lambda X, real: X.data.masked_fill_(~real, 0)},
    "H_lens: got": {"lengths": lambda X_lens: X_lens - 1},
    "H_lens: got torch.float32": {"lengths": torch.Tensor.float},
    "no gradient reaches shift": {"end": lambda H, shift: H},
    "no gradient reaches some frames": {
        "clean": lambda X, real: torch.cat([X[:, :20], X[:, 20:].detach()], 1).where(real, 0)
    },
}


@each("message", FAULTS)
def test_the_contract_refuses(message):
    check_encoder(Frames(), FEATURES)
    with pytest.raises(AssertionError, match=message):
        check_encoder(Frames(**FAULTS[message]), FEATURES)


@each("factor", [4, 6, 8])
def test_subsampling_projects_channel_by_channel(factor):
    module, X = Subsampling(FEATURES, 12, factor, channels=5).double(), noise(2, 50, FEATURES)
    H = module.convolutions(X.unsqueeze(1))  # (B, C, T', F')
    weight = module.project.weight.unflatten(1, (5, -1))  # (D, C, F'): so models are stored
    expected = torch.einsum("bctf,dcf->btd", H, weight) + module.project.bias
    assert_close(module(X, torch.tensor([50, 40]))[0], expected)


# --- outputs and loss -----------------------------------------------------------------------------


def plain_loss(model, x, _, y, y_lens):
    """Loss of CTC, loss of the decoder and logits of one utterance without padding, and its correct labels."""
    H, end = model.encoder(x, torch.tensor([x.size(1)])).H, torch.tensor([[V - 1]])
    targets = torch.cat([y, end], 1)[0]
    logits = model.decoder(torch.cat([end, y], 1), H, torch.tensor([H.size(1)])).logits[0]
    smoothing = {"label_smoothing": model.label_smoothing, "reduction": "sum"}
    log_probs = F.linear(H, model.ctc_out.weight, model.ctc_out.bias).log_softmax(-1)
    frames = torch.tensor([H.size(1)])
    ctc = F.ctc_loss(log_probs.transpose(0, 1), y, frames, y_lens, reduction="sum")
    attention = F.cross_entropy(logits, targets, **smoothing)
    return ctc, attention, logits, (logits.argmax(-1) == targets).sum()


@each(
    "variant, fill",
    [(variant, (-1, torch.nan)) for variant in VARIANTS]
    + [("", fill) for fill in [(0, 0.0), (5, 1e5), (V - 1, torch.inf), (12345, torch.nan)]],
)
def test_the_loss_and_its_gradient_are_the_sum_over_utterances(variant, fill):
    """Whatever stands in the padding; no gradient reaches it, and the logits are those of each alone."""
    model, (X, X_lens, *rest) = hybrid(variant).double().eval(), data(*fill)
    loss = model.loss(X.requires_grad_(), X_lens, *rest)
    got = torch.autograd.grad(loss.total, [X, *model.parameters()])
    assert not got[0][torch.arange(75) >= X_lens[:, None]].any()
    parts = zip(*(plain_loss(model, *one) for one in singles(*data())), strict=True)
    ctc, attention, alone, correct = parts
    ctc, attention = sum(ctc), sum(attention)
    total = model.ctc_weight * ctc + (1 - model.ctc_weight) * attention
    terms = [loss.total, loss.terms["ctc"], loss.terms["attention"]]
    assert_close([x.double() for x in terms], [total, ctc, attention], rtol=1e-5, atol=1e-4)
    assert (int(loss.correct), int(loss.tokens)) == (int(sum(correct)), 4 + 1 + 3 + 0 + 4)
    expected = torch.autograd.grad(total, list(model.parameters()))
    assert_close(got[1:], expected, rtol=1e-4, atol=1e-4)
    logits, lens = model(X, X_lens, *rest)
    assert logits.shape == (4, 5, V) and lens.tolist() == [5, 2, 4, 1]
    for row, length, its in zip(logits, lens, alone, strict=True):
        assert_close(row[:length], its)


def test_gradient_reaches_every_parameter_in_training():
    model, (X, *rest) = hybrid("both: {attention_dropout: 0.1}").train(), data()
    model.loss(X.float(), *rest).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all(), name
        assert name.endswith("key.bias") or parameter.grad.any(), name


@each("variant", PLAIN + CONVOLUTIONS)
@each("training", [True, False])
def test_bf16_autocast_is_near_fp32(variant, training):
    model, (X, *rest) = hybrid(variant).train(training), data()
    for module in model.modules():  # without dropout, results of training can be compared
        if isinstance(module, Dropout):
            module.p = 0.0
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled):
            loss = model.loss(X.float(), *rest).total
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        results.append((loss, torch.cat([g.flatten() for g in gradients])))
    (exact, expected), (loss, gradient) = results
    assert_close(loss, exact, rtol=0.01, atol=0)  # of the same type, float32
    assert F.cosine_similarity(gradient, expected, dim=0) > 0.99


def test_the_attention_of_every_layer_is_over_what_is_there():
    model, (X, X_lens, *text) = hybrid().double().eval(), data()
    encoded, plain = (model.encoder(X, X_lens, attention=asked) for asked in (True, False))
    decoded = model.decode(encoded.H, encoded.H_lens, *text, attention=True)
    mask = key_mask(encoded.H_lens, T := encoded.H.size(1))
    found = [
        ((5, 5), decoded.attention, causal_mask(5)),
        ((5, T), decoded.cross, mask),
        ((T, T), encoded.attention, mask),
    ]
    for shape, maps, hidden in found:
        weights = torch.stack(maps)
        assert weights.shape == (2, 4, 3, *shape) and not weights[0].equal(weights[1])
        assert not weights[hidden.expand_as(weights)].any()
        assert_close(weights.sum(-1), torch.ones(2, 4, 3, shape[0]).double())
    assert_close(model(X, X_lens, *text)[0], decoded.logits)
    assert not plain.attention and not plain.layers
    assert not model.decode(plain.H, plain.H_lens, *text).attention


# --- what training leaves out ---------------------------------------------------------------------


@each("encoder, places", [("encoder: {}", 3), (CONVOLUTIONS[0], 6), (CONVOLUTIONS[1], 8)])
def test_dropout_has_its_places(encoder, places):
    """Behind each sublayer, within each feed-forward and gate, behind the merged branches; and of the input."""
    model = hybrid(f"both: {{dropout: 0.11}}, {encoder}")
    passed = []
    for module in model.modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(lambda module, *_: passed.append(module.p))
    model.double().eval()(*data())
    assert passed == [0.11] * (places * 2 + 1 + 4 * 2 + 1)  # of the encoder and of the decoder


def test_layers_are_left_out_in_training_as_the_seed_draws():
    """Where none is to be, no random number is drawn."""
    model = hybrid("both: {layers: 4, dropout: 0, layer_dropout: 0.4}").double().eval()
    taken = []
    for n, layer in enumerate([*model.encoder.layers, *model.decoder.layers]):
        layer.register_forward_hook(lambda *_, n=n: taken.append(n))
    model(*data())
    assert taken == [*range(8)]
    for seed in range(4):
        torch.manual_seed(seed)
        drawn = torch.cat([torch.rand(4), torch.rand(4)])
        torch.manual_seed(seed)
        taken.clear()
        model.train()(*data())
        assert taken == (drawn >= 0.4).nonzero().flatten().tolist()
    model.encoder.layer_dropout, model.decoder.layer_dropout = 0.0, 0.0
    before = torch.get_rng_state()
    model(*data())
    assert torch.get_rng_state().equal(before)


# --- initialization -------------------------------------------------------------------------------


@each("tied", ["false", "true"])
def test_initialization_is_as_stated(tied):
    """Xavier-uniform is uniform within ±√(6 / (in + out)), of deviation bound / √3 (Glorot and Bengio 2010)."""
    parts = "both: {d_model: 96, heads: 4, ff: 300}, encoder: {channels: 32}, decoder: {tied: %s}"
    model = hybrid(parts % tied, 80, 2000)
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None)
        if isinstance(module, nn.Linear | nn.LayerNorm):
            assert not module.bias.any(), name
        if isinstance(module, nn.Linear) and (tied == "false" or name != "decoder.out"):
            bound = math.sqrt(6 / sum(weight.shape))
            assert weight.abs().max() <= bound, name
            assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05), name
        if isinstance(module, nn.LayerNorm):
            assert (weight == 1).all(), name
        if isinstance(module, nn.Conv2d):  # PyTorch's default: uniform within 1 / √fan_in
            scaled = weight * math.sqrt(weight[0].numel())
            assert scaled.abs().max() <= 1 and scaled.std() > 0.4, name
    embedding = model.decoder.embedding.weight * 96**0.5
    assert embedding.std().item() == pytest.approx(1, rel=0.02)
    assert embedding.abs().max() > 3.5  # normal, not uniform


# --- the model folder -----------------------------------------------------------------------------

CONFIG_TEXT = """\
out: exp/x
features: {fbank: {sample_rate: 8000, mels: 20}, specaugment: {time_masks: 1}}
model:
  kind: hybrid
  encoder: {kind: transformer, d_model: 12, layers: 2, heads: 3, ff: 16, dropout: 0.1, channels: 4}
  decoder: {kind: transformer, d_model: 12, layers: 2, heads: 3, ff: 16, dropout: 0.1, tied: true}
"""


@pytest.fixture
def recognizer():
    features = yaml.safe_load(CONFIG_TEXT)["features"]
    torch.manual_seed(1)
    tokenizer = train("characters", ["A BC", "D'E"])
    settings = FrontendSettings(**features), sizes("decoder: {tied: true}")
    recognizer = Recognizer(*settings, tokenizer).eval()
    recognizer.frontend.cmvn.mean.normal_()
    recognizer.frontend.cmvn.std.uniform_(1, 2)
    return recognizer


@pytest.fixture
def folder(recognizer, tmp_path):
    recognizer.save(tmp_path / "model", CONFIG_TEXT)
    return tmp_path / "model"


def test_saved_and_loaded_gives_identical_outputs(recognizer, folder):
    loaded, waveforms = load(folder), 0.1 * noise(2, 9000, seed=1).float()
    lens, labels = torch.tensor([9000, 5000]), torch.tensor([[1, 2, 3], [4, -1, -1]])
    batch = waveforms, lens, labels, torch.tensor([3, 1])
    assert not loaded.training
    near(loaded.encode(waveforms, lens), recognizer.encode(waveforms, lens))
    expected = recognizer.loss(*batch).total
    waveforms[1, 5000:] = torch.nan  # beyond their lengths, waveforms never matter
    near(loaded.loss(*batch).total, expected)
    assert loaded.tokenizer.symbols() == recognizer.tokenizer.symbols()
    assert loaded.model.decoder.out.weight is loaded.model.decoder.embedding.weight
    assert (
        len(load_file(folder / WEIGHTS)) == len(recognizer.state_dict()) - 1
    )  # that is stored once
    files = {path.name for path in folder.iterdir()}
    assert files == {"config.yaml", "model.safetensors", "tokenizer.json"} >= {CONFIG, WEIGHTS}


def test_the_lengths_of_a_recognizer(recognizer):
    """The fewest samples that make an encoder frame, and the frames that each number of samples makes."""
    fewest = recognizer.shortest_samples
    assert [recognizer.encoder_frames(n) for n in (0, 1, fewest - 1, fewest)] == [0, 0, 0, 1]
    for samples in (fewest, 5000, 8000):
        H, H_lens = recognizer.encode(torch.zeros(1, samples), torch.tensor([samples]))
        assert recognizer.encoder_frames(samples) == H.size(1) == H_lens[0]


@each("name", [WEIGHTS, CONFIG, "tokenizer.json"])
@each("write", [pickle.dump, torch.save, None], ids=["pickle", "torch.save", "yaml"])
def test_loading_runs_no_code(folder, tmp_path, name, write):
    trace = tmp_path / "trace"
    if write:
        with open(folder / name, "wb") as file:
            write(Malicious(trace), file)
    else:
        (folder / name).write_text(f"seed: !!python/object/apply:open [{trace}, w]\n")
    refused(str(folder / name), load, folder)
    assert not trace.exists()


DAMAGED = f"""
{WEIGHTS}      | missing   | missing; a training writes it when it validates first, else copy
{WEIGHTS}      | empty     | damaged \\(.*\\); copy the model folder again
{WEIGHTS}      | truncated | damaged \\(.*\\); copy the model folder again
{WEIGHTS}      | noise     | damaged \\(.*\\); copy the model folder again
{CONFIG}       | missing   | missing; .* a model folder of asr-train
{CONFIG}       | empty     | got NoneType
{CONFIG}       | truncated | .
{CONFIG}       | noise     | not UTF-8
tokenizer.json | missing   | no tokenizer here; asr-tokenizer makes one
tokenizer.json | empty     | damaged
tokenizer.json | truncated | damaged
"""


@each("name, how, message", rows(DAMAGED))
def test_missing_and_damaged_files_are_named(folder, name, how, message):
    whole = (folder / name).read_bytes()
    left = {"empty": b"", "truncated": whole[: len(whole) // 2], "noise": b"\xff\xfenoise"}
    (folder / name).unlink()
    says = "nowhere: no such model folder; asr-train makes one"
    refused(says, load, folder.parent / "nowhere")
    if how in left:
        (folder / name).write_bytes(left[how])
    refused(f"{re.escape(str(folder / name))}:.*{message}", load, folder)


@each("name, size", [("model.ctc_out.bias", 0), ("extra", 1), ("model.ctc_out.bias", 3)])
def test_weights_of_another_model_are_refused(folder, name, size):
    weights = load_file(folder / WEIGHTS)
    weights.pop(name, None)
    save_file(weights | ({name: torch.zeros(size)} if size else {}), folder / WEIGHTS)
    says = f"{WEIGHTS}: doesn't fit the model of config.yaml and tokenizer: {name}$"
    refused(says, load, folder)


CHANGED = """
layers: 2 | layers: 3 | model.safetensors: .*: model.encoder.layers.2.* and
heads: 3  | heads: 5  | config.yaml: model.encoder.heads: got 5, .* divisor of d_model = 12
model:    | seed:     | config.yaml: model: missing
"""


@each("old, new, message", rows(CHANGED))
def test_a_config_of_another_model_is_refused(folder, old, new, message):
    (folder / CONFIG).write_text(CONFIG_TEXT.replace(old, new, 1))
    refused(f"{folder}/{message}", load, folder)
