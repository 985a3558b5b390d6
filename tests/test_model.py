"""Prove the model: padding and batch never matter, its loss is the sum of its utterances', its folder gives it back.

The encoder goes through the contract of contracts.py, and each law of the contract is shown to refuse a planted fault.
The loss's reference is computed utterance by utterance, without padding, by `F.cross_entropy` and `F.ctc_loss`. Sizes
are those of `nn.Transformer`.
"""

import math
import pickle

import pytest
import torch
import torch.nn.functional as F
from contracts import check_encoder, padded
from safetensors.torch import load_file, save_file
from torch import nn
from torch.testing import assert_close

from asr.errors import UserError
from asr.features.frontend import FrontendSettings
from asr.models.folder import CONFIG, WEIGHTS, load_weights, save_weights
from asr.models.hybrid import Hybrid, HybridSettings
from asr.models.recognizer import Recognizer, load
from asr.nn.encoder import EncoderOutput
from asr.nn.encoders.transformer import TransformerSettings
from asr.nn.subsampling import Subsampling
from asr.text.tokenizer import train

V, FEATURES = 9, 20


def sizes(**changes):
    """Settings of a tiny model; `decoder_x` is for the decoder alone, `encoder_x` for the encoder."""
    part = {"kind": "transformer", "d_model": 12, "layers": 2, "heads": 3, "ff": 16, "dropout": 0.1}
    encoder, decoder, top = dict(part, channels=4), dict(part), {}
    for name, value in changes.items():
        side, _, key = name.partition("_")
        if side in ("encoder", "decoder"):
            (encoder if side == "encoder" else decoder)[key] = value
        elif name in ("ctc_weight", "label_smoothing", "flat_start_epochs"):
            top[name] = value
        else:
            encoder[name] = decoder[name] = value
    return HybridSettings(kind="hybrid", encoder=encoder, decoder=decoder, **top)


def build(features=FEATURES, vocabulary=V, **changes):
    torch.manual_seed(1)
    return Hybrid(sizes(**changes), features, vocabulary)


VARIANTS = {
    "pre-norm": {},
    "post-norm": {"norm": "post"},
    "tied": {"decoder_tied": True},
    "d_k and d_v": {"d_k": 5, "d_v": 2},
    "other widths": {"decoder_d_model": 8, "decoder_heads": 2, "activation": "gelu"},
    "subsampling by 6": {"encoder_subsampling": 6, "encoder_channels": None},
    "subsampling by 8": {"encoder_subsampling": 8},
    "rotary": {"encoder_positions": "rotary"},
    "conformer": {"encoder_kind": "conformer", "encoder_kernel": 5},
    "e_branchformer": {
        "encoder_kind": "e_branchformer",
        **{"encoder_cgmlp": 14, "encoder_kernel": 5, "encoder_merge_kernel": 3},
    },
    "chunks": {
        "encoder_kind": "conformer",
        "encoder_kernel": 5,
        "encoder_chunk": {"frames": 3, "left": 1},
    },
}


def data(padding=-1, fill=torch.nan):
    """Features and labels of four utterances, one of them with an empty text."""
    X, X_lens = padded(FEATURES, (61, 33, 75, 47), fill)
    Y = torch.tensor([[1, 2, 2, 7], [3, -1, -1, -1], [7, 6, 5, -1], [-1, -1, -1, -1]])
    return X, X_lens, Y.masked_fill(Y == -1, padding), torch.tensor([4, 1, 3, 0])


# --- the contract, and faults planted against it --------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"norm": "post"}, {"subsampling": 6}, {"subsampling": 8}, {"d_k": 5, "d_v": 2}],
    ids=str,
)
def test_the_encoder_holds_the_contract(options):
    torch.manual_seed(1)
    part = {
        "kind": "transformer",
        "d_model": 12,
        "layers": 2,
        "heads": 3,
        "ff": 16,
        "dropout": 0.1,
        "channels": 4,
    }
    check_encoder(TransformerSettings(**part | options).build(FEATURES), FEATURES)


@pytest.mark.parametrize("factor", [4, 6, 8])
def test_subsampling_projects_channel_by_channel(factor):
    module, X = (
        Subsampling(FEATURES, 12, factor, channels=5).double(),
        torch.randn(2, 50, FEATURES).double(),
    )
    H = module.convolutions(X.unsqueeze(1))  # (B, C, T', F')
    weight = module.project.weight.unflatten(
        1, (5, -1)
    )  # (D, C, F'): in this order models are stored
    expected = torch.einsum("bctf,dcf->btd", H, weight) + module.project.bias
    assert_close(module(X, torch.tensor([50, 40]))[0], expected)


class Frames(nn.Module):
    """The simplest encoder: a linear map of each frame, and one more parameter."""

    def __init__(self):
        super().__init__()
        self.map, self.shift = nn.Linear(FEATURES, 5), nn.Parameter(torch.ones(5))

    def clean(self, X, X_lens):
        return X.masked_fill((torch.arange(X.size(1)) >= X_lens[:, None])[:, :, None], 0)

    def forward(self, X, X_lens):
        return EncoderOutput(self.map(self.clean(X, X_lens)) + self.shift, X_lens)


class Averages(Frames):
    """Fault: takes a mean over time that counts the padding."""

    def forward(self, X, X_lens):
        H = super().forward(X, X_lens).H
        return EncoderOutput(H - H.mean(1, keepdim=True), X_lens)


class Mixes(Frames):
    """Fault: an utterance sees the others of its batch."""

    def forward(self, X, X_lens):
        H = super().forward(X, X_lens).H
        return EncoderOutput(H + 0.1 * H[:, :30].mean((0, 1)), X_lens)


class ReadsPadding(Frames):
    """Fault: multiplies padding by zero, which a NaN survives."""

    def clean(self, X, X_lens):
        Z = self.map(X).mean((1, 2), keepdim=True) * 0
        return super().clean(X, X_lens) + Z


class Overwrites(Frames):
    """Fault: clears the padding in place, in the caller's tensor."""

    def clean(self, X, X_lens):
        X.data[(torch.arange(X.size(1)) >= X_lens[:, None])] = 0
        return X


class Miscounts(Frames):
    """Fault: lengths of another subsampling."""

    def forward(self, X, X_lens):
        return EncoderOutput(super().forward(X, X_lens).H, X_lens - 1)


class FloatLengths(Frames):
    """Fault: lengths that are no integers."""

    def forward(self, X, X_lens):
        return EncoderOutput(super().forward(X, X_lens).H, X_lens.float())


class Unused(Frames):
    """Fault: a parameter that takes no part."""

    def forward(self, X, X_lens):
        return EncoderOutput(self.map(self.clean(X, X_lens)) + self.shift.detach(), X_lens)


class Stops(Frames):
    """Fault: no gradient gets through to the second half of the frames."""

    def forward(self, X, X_lens):
        return super().forward(torch.cat([X[:, :20], X[:, 20:].detach()], 1), X_lens)


def test_the_contract_accepts_the_simplest_encoder():
    check_encoder(Frames(), FEATURES)


@pytest.mark.parametrize(
    "fault, message",
    [
        (Averages, "more padding"),
        (Mixes, "alone"),
        (ReadsPadding, "padding of 0.0 or NaN: NaN"),
        (Overwrites, "changes its input"),
        (Miscounts, "H_lens: got"),
        (FloatLengths, "H_lens: got torch.float32"),
        (Unused, "no gradient reaches shift"),
        (Stops, "no gradient reaches some frames"),
    ],
)
def test_the_contract_refuses(fault, message):
    with pytest.raises(AssertionError, match=message):
        check_encoder(fault(), FEATURES)


# --- outputs and loss -----------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_do_not_depend_on_padding_or_batch(variant):
    model = build(**VARIANTS[variant]).double().eval()
    X, X_lens, Y, Y_lens = data()
    logits, lens = model(X, X_lens, Y, Y_lens)
    assert logits.shape == (4, 5, V) and lens.tolist() == [5, 2, 4, 1]
    other = model(*data(padding=5, fill=1e5))[0]
    for b, length in enumerate(lens):
        alone, _ = model(
            X[b : b + 1, : X_lens[b]],
            X_lens[b : b + 1],
            Y[b : b + 1, : Y_lens[b]],
            Y_lens[b : b + 1],
        )
        assert alone.shape == (1, length, V)
        assert_close(logits[b, :length], alone[0])
        assert_close(other[b, :length], alone[0])


def plain_loss(model, x, y, ctc_weight=0.3, smoothing=0.1):
    """The loss of one utterance without padding, written out: x (T, F), y a list of labels."""
    H = model.encoder(x[None], torch.tensor([len(x)])).H
    inputs, targets = [V - 1, *y], [*y, V - 1]
    logits = model.decoder(torch.tensor([inputs]), H, torch.tensor([H.size(1)])).logits[0]
    attention = F.cross_entropy(
        logits, torch.tensor(targets), label_smoothing=smoothing, reduction="sum"
    )
    log_probs = F.linear(H[0], model.ctc_out.weight, model.ctc_out.bias).log_softmax(-1)
    labels = torch.tensor(y, dtype=torch.long)
    ctc = F.ctc_loss(
        log_probs[:, None], labels[None], (len(H[0]),), (len(y),), blank=0, reduction="sum"
    )
    return (
        ctc_weight * ctc + (1 - ctc_weight) * attention,
        ctc,
        attention,
        (logits.argmax(-1) == torch.tensor(targets)).sum(),
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_and_its_gradient_are_the_sum_over_utterances(variant):
    model = build(**VARIANTS[variant]).double().eval()
    X, X_lens, Y, Y_lens = data()
    loss = model.loss(X, X_lens, Y, Y_lens)
    loss.total.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    parts = [plain_loss(model, X[b, : X_lens[b]], Y[b, : Y_lens[b]].tolist()) for b in range(4)]
    total, ctc, attention, correct = (sum(part) for part in zip(*parts, strict=True))
    total.backward()
    for got, expected in (
        (loss.total, total),
        (loss.terms["ctc"], ctc),
        (loss.terms["attention"], attention),
    ):
        assert_close(got.double(), expected, rtol=1e-5, atol=1e-4)
    assert (int(loss.correct), int(loss.tokens)) == (int(correct), 4 + 1 + 3 + 0 + 4)
    for name, gradient in zip(dict(model.named_parameters()), gradients, strict=True):
        assert_close(
            gradient,
            model.get_parameter(name).grad,
            rtol=1e-4,
            atol=1e-4,
            msg=lambda m, name=name: f"{name}: {m}",
        )


@pytest.mark.parametrize(
    "padding, fill", [(0, 0.0), (5, 1e5), (V - 1, torch.inf), (12345, torch.nan)]
)
def test_padding_never_matters_to_the_loss_or_a_gradient(padding, fill):
    results = []
    for Y_fill, X_fill in ((-1, torch.nan), (padding, fill)):
        model = build().double().eval()
        X, X_lens, Y, Y_lens = data(Y_fill, X_fill)
        X.requires_grad_()
        loss = model.loss(X, X_lens, Y, Y_lens)
        loss.total.backward()
        assert not X.grad[torch.arange(X.size(1)) >= X_lens[:, None]].any()
        results.append([loss.total, loss.correct, X.grad, *(p.grad for p in model.parameters())])
    assert_close(results[0], results[1])


@pytest.mark.parametrize("ctc_weight", [0.0, 0.3, 1.0])
def test_ctc_weight(ctc_weight):
    model = build(ctc_weight=ctc_weight, label_smoothing=0.0).double().eval()
    loss = model.loss(*data())
    assert_close(
        loss.total, ctc_weight * loss.terms["ctc"] + (1 - ctc_weight) * loss.terms["attention"]
    )
    X, X_lens, Y, Y_lens = data()
    parts = [
        plain_loss(model, X[b, : X_lens[b]], Y[b, : Y_lens[b]].tolist(), ctc_weight, 0.0)[0]
        for b in range(4)
    ]
    assert_close(loss.total.double(), sum(parts), rtol=1e-5, atol=1e-4)


def test_gradient_reaches_every_parameter_in_training():
    model = build(attention_dropout=0.1).train()
    X, X_lens, Y, Y_lens = data()
    model.loss(X.float(), X_lens, Y, Y_lens).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert name.endswith("key.bias") or parameter.grad.any(), name


def test_the_same_seed_gives_the_same_loss_in_training():
    model, (X, X_lens, Y, Y_lens) = build().train(), data()
    losses = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        losses.append(model.loss(X.float(), X_lens, Y, Y_lens).total.item())
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize(
    "variant", ["pre-norm", "post-norm", "rotary", "conformer", "e_branchformer", "chunks"]
)
def test_bf16_autocast_is_near_fp32(variant):
    model, (X, X_lens, Y, Y_lens) = build(**VARIANTS[variant]), data()
    X = X.float()
    for mode in (model.eval(), model.train()):
        for (
            module
        ) in mode.modules():  # without dropout: the path of training, whose result can be compared
            if hasattr(module, "p"):
                module.p = 0.0
        expected = mode.loss(X, X_lens, Y, Y_lens)
        expected.total.backward()
        gradient = torch.cat([p.grad.flatten() for p in mode.parameters()])
        mode.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = mode.loss(X, X_lens, Y, Y_lens)
            assert loss.total.dtype == torch.float32
        loss.total.backward()
        half = torch.cat([p.grad.flatten() for p in mode.parameters()])
        mode.zero_grad()
        assert_close(loss.total, expected.total, rtol=0.01, atol=0)
        assert F.cosine_similarity(gradient, half, dim=0) > 0.99


def test_the_attention_of_every_layer():
    model, (X, X_lens, Y, Y_lens) = build().double().eval(), data()
    encoded = model.encoder(X, X_lens, attention=True)
    decoded = model.decode(encoded.H, encoded.H_lens, Y, Y_lens, attention=True)
    T = model.encoder.subsampling.lengths(75)
    for maps, queries, keys in (
        (encoded.attention, T, T),
        (decoded.attention, 5, 5),
        (decoded.cross, 5, T),
    ):
        assert [weights.shape for weights in maps] == [(4, 3, queries, keys)] * 2
        for weights in maps:
            assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert_close(model(X, X_lens, Y, Y_lens)[0], decoded.logits)
    plain = model.encoder(X, X_lens)
    assert (
        not plain.attention
        and not plain.layers
        and not model.decode(plain.H, plain.H_lens, Y, Y_lens).attention
    )


def test_an_utterance_too_short_names_itself():
    with pytest.raises(
        ValueError, match="utterance 1 of the batch: got 6 frames, expected 7 or more"
    ):
        build()(
            torch.zeros(2, 40, FEATURES),
            torch.tensor([40, 6]),
            torch.ones(2, 1).long(),
            torch.tensor([1, 1]),
        )


# --- sizes and initialization ---------------------------------------------------------------------


def test_the_papers_base_has_its_size():
    """N = 6, d = 512, h = 8, ff = 2048: `nn.Transformer`'s defaults without its final norms."""
    with torch.device("meta"):
        model = build(80, 5000, d_model=512, layers=6, heads=8, ff=2048, norm="post")
        reference = nn.Transformer(512, 8, 6, 6, 2048, batch_first=True)
    ours = sum(
        p.numel() for stack in (model.encoder, model.decoder) for p in stack.layers.parameters()
    )
    norms = sum(
        p.numel()
        for stack in (reference.encoder, reference.decoder)
        for p in stack.norm.parameters()
    )
    assert ours == sum(p.numel() for p in reference.parameters()) - norms == 44_138_496
    assert model.decoder.embedding.weight.shape == (5000, 512)


def test_tied_weights_are_one():
    model, untied = build(decoder_tied=True), build()
    assert model.decoder.out.weight is model.decoder.embedding.weight
    assert (
        sum(p.numel() for p in untied.parameters()) - sum(p.numel() for p in model.parameters())
        == V * 12
    )
    assert untied.decoder.out.weight is not untied.decoder.embedding.weight


@pytest.mark.parametrize("tied", [False, True])
def test_initialization_is_as_stated(tied):
    """Xavier-uniform is uniform within ±√(6 / (in + out)), of deviation bound / √3 (Glorot and Bengio 2010)."""
    model = build(80, 2000, d_model=96, heads=4, ff=300, encoder_channels=32, decoder_tied=tied)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and not (tied and name == "decoder.out"):
            bound = math.sqrt(6 / sum(module.weight.shape))
            assert module.weight.abs().max() <= bound, name
            assert_close(
                module.weight.std().item(), bound / math.sqrt(3), rtol=0.05, atol=0, msg=name
            )
        if isinstance(module, nn.Linear):
            assert not module.bias.any(), name
        if isinstance(module, nn.LayerNorm):
            assert (module.weight == 1).all() and not module.bias.any(), name
        if isinstance(module, nn.Conv2d):  # PyTorch's default: uniform within 1 / √fan_in
            assert module.weight.abs().max() <= 1 / math.sqrt(module.weight[0].numel()), name
            assert module.weight.std() > 0.4 / math.sqrt(module.weight[0].numel()), name
    embedding = model.decoder.embedding.weight
    assert_close(embedding.std().item(), 96**-0.5, rtol=0.02, atol=0)
    assert embedding.abs().max() > 3.5 * 96**-0.5  # normal, not uniform


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
    features = FrontendSettings(
        fbank={"sample_rate": 8000, "mels": 20}, specaugment={"time_masks": 1}
    )
    torch.manual_seed(1)
    recognizer = Recognizer(
        features, sizes(decoder_tied=True), train("characters", ["A BC", "D'E"])
    )
    recognizer.frontend.cmvn.mean.normal_()
    recognizer.frontend.cmvn.std.uniform_(1, 2)
    return recognizer


@pytest.fixture
def folder(recognizer, tmp_path):
    recognizer.save(tmp_path / "model", CONFIG_TEXT)
    return tmp_path / "model"


def speech():
    waveforms = torch.randn(2, 9000, generator=torch.Generator().manual_seed(1)) * 0.1
    return (
        waveforms,
        torch.tensor([9000, 5000]),
        torch.tensor([[1, 2, 3], [4, -1, -1]]),
        torch.tensor([3, 1]),
    )


def test_saved_and_loaded_gives_identical_outputs(recognizer, folder):
    loaded = load(folder)
    recognizer.eval()
    assert not loaded.training
    batch = speech()
    assert_close(loaded.encode(*batch[:2]), recognizer.encode(*batch[:2]), rtol=0, atol=0)
    assert_close(loaded.loss(*batch).total, recognizer.loss(*batch).total, rtol=0, atol=0)
    assert loaded.tokenizer.symbols() == recognizer.tokenizer.symbols()
    assert loaded.model.decoder.out.weight is loaded.model.decoder.embedding.weight
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.yaml",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_the_lengths_of_a_recognizer(recognizer):
    """The fewest samples that make an encoder frame, and the frames that each number of samples makes."""
    fewest = recognizer.shortest_samples
    assert recognizer.encoder_frames(fewest) == 1 and recognizer.encoder_frames(fewest - 1) == 0
    assert recognizer.encoder_frames(0) == recognizer.encoder_frames(1) == 0
    for samples in (fewest, 5000, 8000):
        H, H_lens = recognizer.eval().encode(torch.zeros(1, samples), torch.tensor([samples]))
        assert recognizer.encoder_frames(samples) == H.size(1) == H_lens[0]


def test_waveforms_beyond_their_lengths_never_matter(recognizer):
    waveforms, lens, Y, Y_lens = speech()
    expected = recognizer.eval().loss(waveforms, lens, Y, Y_lens).total
    waveforms[1, 5000:] = torch.nan
    assert_close(recognizer.loss(waveforms, lens, Y, Y_lens).total, expected, rtol=0, atol=0)


class Malicious:
    """A pickle that would make a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, "tokenizer.json"])
@pytest.mark.parametrize("write", [pickle.dump, torch.save], ids=["pickle", "torch.save"])
def test_loading_runs_no_code(folder, tmp_path, name, write):
    trace = tmp_path / "trace"
    with open(folder / name, "wb") as file:
        write(Malicious(trace), file)
    with pytest.raises(UserError, match=str(folder / name)):
        load(folder)
    assert not trace.exists()


def test_a_tag_of_yaml_runs_no_code(folder, tmp_path):
    (folder / CONFIG).write_text(
        f"{CONFIG_TEXT}seed: !!python/object/apply:open [{tmp_path / 'trace'}, w]\n"
    )
    with pytest.raises(UserError, match="not valid YAML"):
        load(folder)
    assert not (tmp_path / "trace").exists()


def damage(folder, name, how):
    path = folder / name
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(b"\xff\xfenoise")


@pytest.mark.parametrize(
    "name, how, message",
    [
        (
            WEIGHTS,
            "missing",
            "missing; a training writes it when it validates first, else copy the folder again",
        ),
        (WEIGHTS, "empty", r"damaged \(.*\); copy the model folder again"),
        (WEIGHTS, "truncated", r"damaged \(.*\); copy the model folder again"),
        (WEIGHTS, "noise", r"damaged \(.*\); copy the model folder again"),
        (CONFIG, "missing", "missing; is .* a model folder of asr-train whose training has begun"),
        (CONFIG, "empty", "got NoneType, expected a mapping of settings"),
        (CONFIG, "truncated", ""),
        (CONFIG, "noise", "not UTF-8 text"),
        ("tokenizer.json", "missing", "no tokenizer here; asr-tokenizer makes one"),
        ("tokenizer.json", "empty", "damaged, not the description of a tokenizer"),
        ("tokenizer.json", "truncated", "damaged, not the description of a tokenizer"),
    ],
)
def test_missing_and_damaged_files_are_named(folder, name, how, message):
    damage(folder, name, how)
    with pytest.raises(UserError, match=f"{folder / name}:.*{message}") as caught:
        load(folder)
    assert len(str(caught.value).splitlines()) == 1


def test_no_folder(tmp_path):
    with pytest.raises(UserError, match="nowhere: no such model folder; asr-train makes one"):
        load(tmp_path / "nowhere")


def test_weights_of_another_model_are_refused(folder):
    weights = load_file(folder / WEIGHTS)
    for change, name in [
        (lambda w: w.pop("model.ctc_out.bias"), "model.ctc_out.bias"),
        (lambda w: w.update(extra=torch.zeros(1)), "extra"),
        (lambda w: w.update({"model.ctc_out.bias": torch.zeros(3)}), "model.ctc_out.bias"),
    ]:
        changed = dict(weights)
        change(changed)
        save_file(changed, folder / WEIGHTS)
        with pytest.raises(
            UserError,
            match=f"{WEIGHTS}: doesn't fit the model of config.yaml and tokenizer: {name}$",
        ):
            load(folder)


def test_a_config_of_another_model_is_refused(folder):
    (folder / CONFIG).write_text(CONFIG_TEXT.replace("layers: 2", "layers: 3", 1))
    with pytest.raises(
        UserError,
        match="doesn't fit the model of config.yaml and tokenizer: model.encoder.layers.2.* and",
    ):
        load(folder)
    (folder / CONFIG).write_text(CONFIG_TEXT.replace("heads: 3", "heads: 5", 1))
    with pytest.raises(
        UserError,
        match=f"{folder / CONFIG}: model.encoder.heads: got 5, expected a divisor of d_model = 12",
    ):
        load(folder)
    (folder / CONFIG).write_text(CONFIG_TEXT.split("model:")[0])
    with pytest.raises(UserError, match=f"{folder / CONFIG}: model: missing"):
        load(folder)


def test_weights_travel_without_their_shared_twins(tmp_path):
    model, other = build(decoder_tied=True), build(decoder_tied=True)
    with torch.no_grad():
        model.decoder.embedding.weight.fill_(3)
    save_weights(model, tmp_path / WEIGHTS)
    assert len(load_file(tmp_path / WEIGHTS)) == len(model.state_dict()) - 1
    load_weights(other, tmp_path / WEIGHTS)
    assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert WEIGHTS == "model.safetensors"
