"""Train recognizers with a tiny pretrained encoder, and use them like others; laws are those of training (runs.py)."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import soundfile
import sources
import torch
from pretended_gpu import pretended_gpu
from refusals import refused
from runs import (
    assert_processes_change_nothing,
    assert_same,
    assert_uninterrupted,
    dev_losses,
    end,
    experiment,
    history,
    launch,
    status_of,
    stop,
    train,
    wait_for_state,
    weights,
)
from small import each, rows, slow
from spoken import assert_alike

import asr
from asr import imports
from asr.cli.train import main
from asr.data import manifest
from asr.errors import UserError
from asr.info.folders import describe
from asr.models.recognizer import load
from asr.models.transfer import load_what_fits, unlike_settings
from asr.nn.encoders import pretrained_source as source
from asr.serving.engine import Engine
from asr.training import build as building
from asr.training.build import build
from asr.training.folder import continues
from asr.training.identity import stamp_of
from asr.training.optim.adam import parameter_groups
from asr.training.optim.muon import MuonSettings
from asr.training.trainer import Trainer
from asr.transcription.options import SearchOptions
from asr.transcription.times import place
from asr.transcription.windows import ctc_log_probs, reader_of

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return sources.folders(tmp_path_factory)


@pytest.fixture(scope="module")
def trained(tmp_path_factory, folder):
    """A run of three epochs, 15 steps, of which the encoder is frozen in the first 7: root, its folder, its weights."""
    root = sources.configured(tmp_path_factory.mktemp("pretrained"), 8000)
    shutil.copytree(folder("wavlm large"), root / "source")
    return root, root / "whole", weights(train(root, root / "whole"))


def test_training_lowers_the_loss_and_keeps_the_frozen_encoder(trained):
    root, out, _ = trained
    losses = dev_losses(out)
    assert losses[-1] < losses[0] - 0.2
    frozen = train(root, root / "frozen", "training.epochs=1").model.encoder
    said = "freeze_steps: got 7, but the training has about 5 steps, so the encoder stays as it is"
    assert said in (root / "frozen/train.log").read_text()
    assert "freeze_steps" not in (out / "train.log").read_text()
    begun = transformers.AutoModel.from_pretrained(root / "source").state_dict()
    assert_same(frozen.pretrained.state_dict(), begun)
    thawed = load(out).model.encoder.pretrained.state_dict()
    kept = [name for name in begun if torch.equal(thawed[name], begun[name])]
    assert all("k_proj.bias" in name for name in kept)


def test_the_encoder_is_frozen_for_exactly_its_steps(trained, tmp_path, monkeypatch):
    """In the first seven it has neither a gradient nor a step."""
    begun = transformers.AutoModel.from_pretrained(trained[0] / "source").state_dict()
    step, moved, pulled = Trainer.train_step, [], []

    def noting(self, *arguments):
        result, own = step(self, *arguments), self.replicas.model.model.encoder.pretrained
        moved.append(any(not torch.equal(x, begun[name]) for name, x in own.state_dict().items()))
        pulled.append(any(p.grad is not None and bool(p.grad.any()) for p in own.parameters()))
        return result

    monkeypatch.setattr(Trainer, "train_step", noting)
    train(trained[0], tmp_path / "m", "training.epochs=2")
    assert moved == pulled == 7 * [False] + 3 * [True]


@pytest.fixture
def without_source(trained):
    """Within it, the folder of the source is gone."""

    @contextlib.contextmanager
    def away():
        moved = (trained[0] / "source").rename(trained[0] / "gone")
        try:
            yield
        finally:
            moved.rename(trained[0] / "source")

    return away


@slow
def test_a_resumed_run_is_an_uninterrupted_one_and_needs_no_source(
    trained, tmp_path, without_source
):
    root, *whole = trained
    stop(root, tmp_path / "m", 8, "training.save_steps=1")
    with without_source():
        assert_uninterrupted(root, tmp_path / "m", whole, "training.save_steps=1")


def test_a_run_is_known_when_its_source_is_gone(trained, tmp_path, without_source, capsys):
    """A finished one, one that was stopped, and one of other settings, which isn't the same."""
    root, out, _ = trained
    stop(root, tmp_path / "m", 2, "training.save_steps=1")
    given = ["training.epochs=3", f"out={tmp_path}/m", "training.save_steps=1"]
    before = stamp_of(root / "x.yaml", given).facts
    with without_source():
        assert status_of(main, "--config", root / "x.yaml", "training.epochs=3", f"out={out}") == 0
        assert "up to date" in capsys.readouterr().err
        stamp = stamp_of(root / "x.yaml", given)
        assert json.dumps(stamp.facts) == json.dumps(before)
        assert continues(tmp_path / "m", stamp)
        other = stamp_of(root / "x.yaml", [*given, "seed=9"])
        assert not continues(tmp_path / "m", other)
        fresh = experiment(root, f"out={tmp_path}/new")
        refused("source: no such folder", fresh.resolved)


def test_a_changed_source_makes_another_run(trained):
    root, out, _ = trained
    given = ["training.epochs=3", f"out={out}"]
    (root / "source/more.safetensors").write_bytes(b"x")
    try:
        assert not stamp_of(root / "x.yaml", given).is_current()
    finally:
        (root / "source/more.safetensors").unlink()
    assert stamp_of(root / "x.yaml", given).is_current()


@slow
def test_processes_change_nothing(trained, tmp_path):
    assert_processes_change_nothing(trained[0], tmp_path)


LORA = "model.encoder.lora={rank: 2}"


def test_low_rank_matrices_are_trained_and_nothing_else_of_the_source(trained):
    root = trained[0]
    encoder = train(root, root / "lora", LORA, "model.fine_tuning=null").model.encoder
    losses = dev_losses(root / "lora")
    assert losses[-1] < losses[0] - 0.2
    begun = transformers.AutoModel.from_pretrained(root / "source").state_dict()
    found = encoder.pretrained.state_dict()
    moved = {name for name in begun if not torch.equal(found[name], begun[name])}
    assert moved == {"masked_spec_embed"}
    assert all(value.any() for name, value in found.items() if name.endswith("_proj.B"))


@each("changes", [(LORA, "model.fine_tuning=null"), ("freeze=[model.encoder.*]",), ()])
def test_what_is_frozen_takes_memory_for_itself_alone(trained, monkeypatch, changes):
    """16 bytes a parameter that is trained, 4 of any other value: to the byte."""
    settings = experiment(trained[0], *changes).resolved()
    model = build(settings)
    building.freeze(model, settings.freeze)
    trained_ = sum(p.numel() for p in model.parameters() if p.requires_grad)
    values = sum(x.numel() for x in (*model.parameters(), *model.buffers()))
    assert bool(changes) == any(not p.requires_grad for p in model.parameters())
    most = 16 * trained_ + 4 * (values - trained_)
    memory = {"SC_PHYS_PAGES": most, "SC_PAGE_SIZE": 1}
    monkeypatch.setattr(building.os, "sysconf", memory.__getitem__)
    build(settings)
    memory["SC_PHYS_PAGES"] -= 1
    refused("its training takes more than this machine's memory", build, settings)


@slow
@each("adds", [False, True])
def test_shards_change_nothing_but_rounding(trained, adapted, tmp_path, adds):
    """An encoder that thaws hasn't counted the steps in which it was frozen, in either."""
    more = "training.accumulate=2", "training.processes=2", "model.encoder.layer_dropout=0"
    more += (*adapted, LORA) * adds
    for name in ("false", "true"):
        train(trained[0], tmp_path / name, *more, f"training.shard={name}")
    whole, shards = (dev_losses(tmp_path / name) for name in ("false", "true"))
    assert shards == pytest.approx(whole, abs=1e-4)


@slow
def test_a_resumed_run_in_shards_is_an_uninterrupted_one(trained, tmp_path):
    """Stopped while the encoder is frozen, whose moments aren't there yet."""
    root, more = trained[0], ["training.processes=2", "training.shard=true"]
    more += ["model.encoder.layer_dropout=0", "model.fine_tuning.freeze_steps=20"]
    more += ["training.accumulate=2", "data.batch_seconds=2"]
    whole = tmp_path / "whole", weights(train(root, tmp_path / "whole", *more))
    process = launch(root, tmp_path / "m", *more, "training.save_steps=1")
    wait_for_state(tmp_path / "m", 1, process)
    process.terminate()
    end(process, 128 + signal.SIGTERM)
    steps = max(line["step"] for line in history(whole[0]))
    stopped_at = max(
        int(path.name.split("-")[1]) for path in (tmp_path / "m/checkpoints").glob("state-*")
    )
    assert stopped_at < 20 < steps - 5
    assert_uninterrupted(root, tmp_path / "m", whole, *more, "training.save_steps=1")


@slow
@each(
    "family, more",
    rows("""
    wavlm large   | training.activation_checkpointing=true
    wav2vec2 base | model.encoder.lora={rank: 2, alpha: 8, targets: [q_proj, v_proj]}
    data2vec      | model.encoder.weighted_layers=true
    """),
)
def test_training_takes_a_gpus_branches(trained, folder, tmp_path, family, more):
    """Without dropout its losses are a CPU's; in bf16, with dropout, they fall."""
    dropouts = ("dropout", "attention_dropout", "activation_dropout", "layer_dropout")
    more = [more, f"model.encoder.source={folder(family)}"]
    still = [f"model.encoder.{name}=0" for name in dropouts] + ["model.decoder.dropout=0"]
    train(trained[0], tmp_path / "cpu", *more, *still, "training.processes=1")
    with pretended_gpu():
        train(trained[0], tmp_path / "gpu", *more, *still, "training.device=cuda")
        low = "training.device=cuda", "training.precision=bf16"
        train(trained[0], tmp_path / "bf16", *more, *low)
    cpu, gpu, bf16 = (dev_losses(tmp_path / name) for name in ("cpu", "gpu", "bf16"))
    assert gpu == pytest.approx(cpu, rel=1e-4)
    assert bf16 == sorted(bf16, reverse=True) and bf16 == pytest.approx(cpu, abs=0.2)


@slow
def test_recomputing_activations_changes_nothing(trained, tmp_path):
    root, _, expected = trained
    again = train(root, tmp_path / "m", "training.activation_checkpointing=true")
    assert_same(weights(again), expected)


@slow
def test_the_model_folder_has_all_and_decodes_the_same_in_any_batch(trained, tmp_path):
    """In a process without the source and, by its sockets, without a network."""
    root, out, _ = trained
    moved = shutil.copytree(out, tmp_path / "m", ignore=shutil.ignore_patterns("checkpoints"))
    program = """
import socket, sys
def refuse(*_): raise AssertionError("network")
socket.socket.connect = socket.getaddrinfo = refuse
import asr, asr.cli.train
assert "transformers" not in sys.modules
model, paths = asr.load(sys.argv[1], "cpu"), sys.argv[2:]
together = [t.nbest[0].score for t in asr.transcribe_all(model, paths)]
alone = [model.transcribe(path).nbest[0].score for path in paths]
assert all(abs(a - b) < 1e-4 for a, b in zip(together, alone)), (together, alone)
"""
    paths = [str(root / f"corpus/dev00{n}.wav") for n in range(6)]
    facts = describe(str(moved)).facts
    assert facts["sample_rate_hz"] == 8000 and facts["encoder"]["model_type"] == "wavlm"
    environment = {**os.environ, "HF_HOME": str(tmp_path / "none")}
    subprocess.run([sys.executable, "-c", program, moved, *paths], check=True, env=environment)


def test_server_hotwords_long_recordings_and_alignment_are_those_of_any_encoder(
    trained, tmp_path, monkeypatch
):
    for judge in ("is_noise", "is_doubtful"):  # tones hold their pitch as music does
        monkeypatch.setattr(f"asr.transcription.nonspeech.Spectra.{judge}", lambda *_: False)
    (root, out, _), texts = trained, []
    model, paths, parts = load(out), [], [np.zeros(6400)]
    model.longest = 1.5  # seconds
    for line in manifest.read(root / "data/dev.jsonl.gz"):
        texts.append(line.text)
        paths.append(line.path)
        parts += [soundfile.read(line.path)[0], np.zeros(6400)]
    soundfile.write(tmp_path / "long.wav", np.concatenate(parts), 8000)
    how = SearchOptions(beam=3, hotwords=("LOW MID", "HIGH"))
    with Engine(model, how) as engine:
        asked = [engine.submit(path) for path in (*paths, tmp_path / "long.wav")]
        found = [future.result(60) for future in asked]
    for path, transcript in zip((*paths, tmp_path / "long.wav"), found, strict=True):
        assert_alike(transcript, asr.transcribe(model, str(path), **vars(how)))
    assert len(found[-1].segments) > 1 and "hotwords" in found[0].nbest[0].scores
    aligned = asr.align(model, tmp_path / "long.wav", texts)
    assert [part.text for part in aligned.segments] == texts
    edges = [edge for part in aligned.segments for w in part.words for edge in (w.start, w.end)]
    assert edges == sorted(edges) and 0 < edges[0] < edges[-1] <= found[-1].duration


@slow
def test_fine_tuning_a_model_folder_reads_no_source(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "find", None)
    out = trained[1]
    tuned = train(out, tmp_path / "m", f"init_from={out}", "training.epochs=1", name="config")
    assert_same(tuned.model.encoder.state_dict(), load(out).model.encoder.state_dict())  # frozen


def test_a_look_before_training_says_that_the_encoder_stays_frozen(trained, capsys):
    arguments = "--config", str(trained[0] / "x.yaml"), f"out={trained[0] / 'looked'}", "--check"
    for epochs, said in ((1, True), (2, False)):
        assert status_of(main, *arguments, f"training.epochs={epochs}") == 0
        assert ("freeze_steps: got 7, but the training has" in capsys.readouterr().out) == said


def test_before_python_3_11_the_version_is_named(monkeypatch):
    """For which pip installs nothing of the extra."""
    monkeypatch.setattr(sys, "version_info", (3, 10, 13))
    refused(
        "need.* Python 3.11 or later; this is Python 3.10", imports.transformers, "transformers"
    )


def test_rates_fall_from_layer_to_layer(trained):
    """rate · decay^(N - n); what is in no layer is one below the first; what is new has the optimizer's."""
    model = load(trained[1])
    names = {parameter: name for name, parameter in model.named_parameters()}
    settings = MuonSettings(kind="muon", lr=1.0)
    expected = {}
    for name in names.values():
        layer = re.search(r"pretrained.*encoder\.layers\.(\d)", name)
        rate = 0.5 * 0.9 ** (2 - int(layer[1]) if layer else 3)
        inside = name.startswith("model.encoder.")
        expected[name] = (pytest.approx(rate), 7) if inside else (1.0, 0)
    for groups in (parameter_groups(model, settings), settings.build(model).param_groups):
        assert expected == {
            names[p]: (g["initial_lr"], g.get("frozen_steps", 0))
            for g in groups
            for p in g["params"]
        }


@pytest.fixture(scope="module")
def adapted(trained, folder):
    """Overrides for a run whose encoder has all that it can add to its source, at 16 kHz: 25 frames a second."""
    root = trained[0]
    path = shutil.copytree(folder("wavlm large"), root / "fast")
    sources.edit(source.PREPROCESSOR, "sampling_rate: 16000")(path)
    added = "model.encoder.stride=2", "model.encoder.weighted_layers=true"
    return f"model.encoder.source={path}", "features.waveform.sample_rate=16000", *added


def test_what_an_encoder_adds_to_its_source_is_trained_from_the_beginning(trained, adapted):
    """While the source's weights are frozen, at the optimizer's rate; the norm begins with 1, the scores with 0."""
    root = trained[0]
    encoder = train(root, root / "added", *adapted, "training.epochs=1").model.encoder
    begun = transformers.AutoModel.from_pretrained(root / "fast").state_dict()
    assert_same(encoder.pretrained.state_dict(), begun)
    assert (encoder.adapter.norm.weight != 1).all() and (encoder.layer_scores != 0).all()
    model = load(root / "added")
    new = {name for name, _ in model.named_parameters() if ".encoder.pretrained." not in name}
    rates = model.model.rates()
    known = {name for name, parameter in model.named_parameters() if parameter not in rates}
    assert known == new and "model.encoder.adapter.conv.weight" in new


def test_frames_and_times_are_those_of_the_adapter(trained, adapted):
    root, more = trained[0], ("model.intermediate_ctc={layers: [2], weight: 0.3}",)
    model = train(root, root / "adapted", *adapted, *more).eval()
    losses = dev_losses(root / "adapted")
    assert losses[-1] < losses[0] - 0.2 and model.frame_seconds == 0.04
    assert [model.encoder_frames(n) for n in (1039, 1040, 1679, 1680)] == [0, 1, 1, 2]
    with pytest.raises(ValueError, match="utterance 1 .* got 1039 samples, expected 1040"):
        model.encode(torch.zeros(2, 2000), torch.tensor([2000, 1039]))
    wave = np.sin(np.arange(16000 * 9) / 7).astype(np.float32)
    model.longest = 2.0  # seconds: several windows
    frames = [
        n + k for n, P in ctc_log_probs(model, reader_of(wave), len(wave)) for k in range(len(P))
    ]
    assert frames == [*range(model.encoder_frames(len(wave)))]
    H, H_lens = model.encode(torch.from_numpy(wave)[None], torch.tensor([len(wave)]))
    text = model.tokenizer.encode("LOW MID HIGH")
    [words], [places] = place(model.model.ctc_log_probs(H), H_lens, [text], model)
    edges = [edge for at in places for edge in (at.first, at.end)]  # in samples
    assert [word.text for word in words] == ["LOW", "MID", "HIGH"] and edges == sorted(edges)
    assert not any(edge % 640 for edge in edges) and edges[-1] <= len(wave)


def test_ctc_needs_frames_of_the_adapter(trained, tmp_path):
    """80 ms each at 8 kHz are too few for the letters of tones."""
    samples = int(soundfile.info(trained[0] / "corpus/train000.wav").frames / 1.1)
    frames = ((samples - 400) // 320 + 1 - 1) // 2
    message = rf"too short for CTC to align .*train000 \({frames} frames at speed 1.1, "
    with pytest.raises(UserError, match=message):
        train(trained[0], tmp_path / "m", "model.encoder.stride=2")


@slow
def test_a_resumed_run_with_all_that_is_added_is_an_uninterrupted_one(trained, adapted, tmp_path):
    root, more = trained[0], (*adapted, LORA)
    whole = root / "whole of added", weights(train(root, root / "whole of added", *more))
    stop(root, tmp_path / "m", 8, *more, "training.save_steps=1")
    assert_uninterrupted(root, tmp_path / "m", whole, *more, "training.save_steps=1")


def test_an_adapter_that_a_folder_lacks_is_left_as_initialized(trained, tmp_path):
    settings = experiment(trained[1], "model.encoder.stride=2", name="config")
    transfer = load_what_fits(build(settings), trained[1], unlike_settings(settings, trained[1]))
    assert transfer.unlike == ["model.encoder.stride is 1 there, 2 here"]
    assert [name.split(".")[:3] for name in transfer.missing] == 4 * [
        ["model", "encoder", "adapter"]
    ]


def test_a_transformers_that_computes_something_else_is_refused(trained, monkeypatch):
    kinds = transformers.models.wavlm.modeling_wavlm
    before = kinds.WavLMFeedForward.forward
    monkeypatch.setattr(kinds.WavLMFeedForward, "forward", lambda self, x: before(self, 1.01 * x))
    refused(f"another encoder than {transformers.__version__} did", load, trained[1])
