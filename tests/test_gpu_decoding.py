"""Decoding on the pretended GPU: it goes the ways of a GPU, gives the CPU's texts, and keeps to its budgets.

The budgets are per step of a search, with a decoder of six layers: launches in the mean, for a step that makes room in
the caches has more.
"""

from statistics import mean

import numpy as np
import pytest
import soundfile
import torch
from partly import partly
from pretended_gpu import pretended_gpu
from small import sizes

from asr.config import dump
from asr.features.frontend import FrontendSettings
from asr.models.lm import FolderSettings, LanguageModel, LMSettings
from asr.models.recognizer import Recognizer
from asr.search import beam
from asr.search.beam import BeamSearch
from asr.text import tokenizer
from asr.transcription import pipeline
from asr.transcription.encoding import encode
from asr.transcription.options import MODES, SearchOptions
from asr.transcription.recordings import find
from asr.transcription.searcher import Searcher

LETTERS = "abcdefghij"
LM = LMSettings(kind="lm", d_model=8, layers=1, heads=2, ff=8, dropout=0.0)
ARPA = "\\data\\\nngram 1=4\n\n\\1-grams:\n-1\t<unk>\n-99\t<s>\n-1\t</s>\n-0.3\ta\n\n\\end\\\n"
each = pytest.mark.parametrize


def make(settings="", text=LETTERS, end=1.0):
    """A recognizer of random weights; the larger `end` is, the sooner hypotheses end."""
    torch.manual_seed(0)
    settings = sizes(settings)
    features = FrontendSettings(fbank={"sample_rate": 8000, "mels": 20})
    made = Recognizer(features, settings, tokenizer.train("characters", [text])).eval()
    with torch.no_grad():
        made.model.decoder.out.weight.mul_(2)
        made.model.decoder.out.bias[-1] = end
    return made


def search(recognizer, precision="fp32", **options):
    """The n-best lists of eight utterances, of which four enter later, by number."""
    draw = np.random.default_rng(0)
    waveforms = [draw.normal(size=n).astype("float32") for n in range(6000, 2000, -500)]
    H, H_lens, *_ = encode(recognizer, waveforms, precision)
    halves = [(range(n, n + 4), H[n : n + 4], H_lens[n : n + 4]) for n in (0, 4)]
    searcher = Searcher(recognizer, SearchOptions(**options), precision)
    return dict(searcher.stream(halves))


@pytest.fixture
def files(tmp_path):
    """Files of scorers, by option."""
    LanguageModel(LM, tokenizer.train("characters", [LETTERS])).save(
        tmp_path / "lm", dump(FolderSettings(model=LM))
    )
    (tmp_path / "lm.arpa").write_text(ARPA)
    (tmp_path / "hotwords").write_text("ab\ncde\t2\n")
    return {
        "lm": {"lm": str(tmp_path / "lm")},
        "ngram": {"lm": str(tmp_path / "lm.arpa"), "length_bonus": 0.2},
        "hotwords": {"hotwords": str(tmp_path / "hotwords")},
    }


@each("name", partly(["joint", "hotwords", *MODES[1:], "lm", "ngram"], 3))
def test_every_search_on_a_gpu_is_that_of_the_cpu(name, files):
    options = {"mode": name} if name in MODES else files[name]
    recognizer = make()
    expected = search(recognizer, **options)
    with pretended_gpu():
        got = search(recognizer.to("cuda"), **options)
        assert len(search(recognizer, "bf16", **options)) == len(expected) == 8
    for n, nbest in expected.items():
        assert [h.tokens for h in got[n]] == [h.tokens for h in nbest]
        assert [h.score for h in got[n]] == pytest.approx([h.score for h in nbest], abs=1e-3)


@torch.no_grad()
def test_streams_of_an_encoder():
    recognizer = make("encoder: {chunk: {frames: 2, left: 1}}")
    encoder, X = recognizer.model.encoder, torch.randn(2, 50, 20)
    expected = encoder(X, torch.tensor([50, 50])).H
    with pretended_gpu():
        encoder.to("cuda")
        state, parts = encoder.start(2), []
        for n in range(0, 50, 25):
            H, state = encoder.step(X[:, n : n + 25].to("cuda"), state, last=n == 25)
            parts.append(H.cpu())
    torch.testing.assert_close(torch.cat(parts, 1), expected, rtol=1e-3, atol=1e-4)


def steps(monkeypatch, recognizer, precision="fp32", **options):
    """What each step of a search does, and how many utterances it finishes."""
    counted, step = [], BeamSearch.step

    def counting(self):
        before = len(self.finished)
        with gpu.counting() as counts:
            step(self)
        counted.append((counts, len(self.finished) - before))

    monkeypatch.setattr(BeamSearch, "step", counting)
    with pretended_gpu() as gpu:
        search(recognizer.to("cuda"), precision, **options)
    return counted


@each(
    "mode, precision",
    [
        ("joint", "fp32"),
        pytest.param("joint", "bf16", marks=pytest.mark.slow),
        ("attention", "bf16"),
        ("ctc", "fp32"),
    ],
)
def test_budgets_of_a_step(mode, precision, monkeypatch):
    many = "".join(
        map(chr, range(0x4E00, 0x4E00 + 1100))
    )  # labels enough that CTC scores candidates
    counted = steps(monkeypatch, make("decoder: {layers: 6}", many, end=-3.0), precision, mode=mode)
    going = [counts for counts, finished in counted if not finished]
    typical = sorted(going, key=lambda counts: counts.launches.total())[len(going) // 2]
    typical.within(launches=290)
    assert mean(counts.launches.total() for counts in going) <= 290
    for counts, finished in counted:
        counts.within(synchronizations=1 + 2 * finished, copies=0)
    assert sum(finished for _, finished in counted) == 8 and len(going) > 8


def test_a_wait_more_exceeds_the_budget_and_the_place_is_named(monkeypatch):
    looping = beam.looping
    monkeypatch.setattr(beam, "looping", lambda Y: (Y.sum().item(), looping(Y))[1])
    counts, _ = steps(monkeypatch, make(), mode="attention")[1]
    with pytest.raises(AssertionError, match=r"2 sync.*(\n.*)*asr/search/beam.py:\d+"):
        counts.within(synchronizations=1)


def test_greedy_search_waits_once_per_step_and_at_its_ends():
    recognizer = make()
    for mode, most in (("ctc-greedy", 1), ("attention-greedy", 2)):
        with pretended_gpu() as gpu:
            recognizer.to("cuda")
            with gpu.counting() as counts:
                found = search(recognizer, mode=mode)
        longest = max(len(nbest[0].tokens) for nbest in found.values()) + 1
        counts.within(synchronizations=2 * (most + (longest if mode == "attention-greedy" else 0)))


def test_recordings_to_texts_in_one_stream_with_the_devices_batches(tmp_path, monkeypatch):
    """Windows of one recording each are one search; the batches' size is the device's."""
    seconds, searches, group, start = [], [], pipeline._batches, Searcher.beam
    for n in range(3):
        samples = np.random.default_rng(n).normal(scale=0.1, size=3000 + 500 * n)
        soundfile.write(tmp_path / f"{n}.wav", samples, 8000)
    monkeypatch.setattr(pipeline, "WINDOW_SECONDS", 0.1)
    monkeypatch.setattr(pipeline, "_batches", lambda w, s: seconds.append(s) or group(w, s))
    monkeypatch.setattr(Searcher, "beam", lambda *args: searches.append(1) or start(*args))
    recognizer, recordings = make(), find(tmp_path)
    expected = [found.text for found in pipeline.transcribe(recognizer, recordings)]
    with pretended_gpu():
        got = [found.text for found in pipeline.transcribe(recognizer.to("cuda"), recordings)]
    assert got == expected and len(searches) == 2
    assert seconds == [120.0] * 3 + [2000.0] * 3
