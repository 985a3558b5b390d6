"""Our model and search, as the benchmarks call them: all they know of the toolkit's interfaces stands here."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from asr.models.hybrid import Hybrid, HybridSettings
from asr.search.beam import beam_search
from asr.search.ctc_prefix import CTCPrefixScorer
from asr.search.neural import NetworkScorer
from asr.search.scorer import Hypothesis
from asr.transcription import pipeline
from asr.transcription.recordings import Recording
from scripts.bench import workload


def build(device: str = "cpu") -> Hybrid:
    """Make the model of the workload's sizes with random weights."""
    sizes = {
        "d_model": workload.D_MODEL,
        "heads": workload.HEADS,
        "ff": workload.FF,
        "dropout": workload.DROPOUT,
    }
    sizes["kind"] = "transformer"
    settings = HybridSettings(
        kind="hybrid",
        encoder={**sizes, "layers": workload.ENCODER_LAYERS, "channels": workload.CHANNELS},
        decoder={**sizes, "layers": workload.DECODER_LAYERS},
        ctc_weight=workload.CTC_WEIGHT,
        label_smoothing=workload.SMOOTHING,
    )
    return Hybrid(settings, workload.MELS, workload.VOCABULARY).to(device)


def build_endless(device: str = "cpu") -> Hybrid:
    """The same for decoding: it never ends a hypothesis."""
    model = build(device).eval()
    with torch.no_grad():
        model.decoder.out.bias[model.sos_eos] = workload.NEVER
    return model


def search(
    model: Hybrid,
    H: Tensor,
    H_lens: Tensor,
    limits: Tensor,
    joint: bool,
    wrap: Callable[[str, Any], Any] = lambda name, scorer: scorer,
) -> list[list[Hypothesis]]:
    """Search as `asr.transcription.searcher` does, with limits (B,) on the number of labels.

    wrap   called with each scorer's name and the scorer; gives what the search is to use
    """
    H, weight = H.to(model.decoder.out.weight.dtype), workload.CTC_WEIGHT if joint else 0.0
    scorers = {
        "attention": (wrap("attention", NetworkScorer(model.decoder, model.sos_eos)), 1 - weight)
    }
    if joint:
        scorers["ctc"] = (wrap("ctc", CTCPrefixScorer(model.ctc_log_probs, model.sos_eos)), weight)
    options = {
        "beam": workload.BEAM,
        "pre_beam": workload.PRE_BEAM,
        "allow_loops": True,
    }  # random models love loops
    return beam_search(scorers, H, H_lens, limits, model.sos_eos, **options)


def count_steps(model: Hybrid, count: Callable[[], None]) -> None:
    """Have `count` called at each step of the decoder."""
    step = model.decoder.step

    def counted(*args, **kwargs):
        count()
        return step(*args, **kwargs)

    model.decoder.step = counted


def batches(seconds: tuple[float, ...], batch_seconds: float) -> list[list[int]]:
    """Cut utterances of these lengths into batches as asr-decode does, by their numbers."""
    recordings = [Recording(str(n), "", 0.0, duration) for n, duration in enumerate(seconds)]
    return [
        [int(recording.id) for recording in batch]
        for batch in pipeline._batches(recordings, batch_seconds)
    ]
