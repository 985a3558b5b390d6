"""Our model and search, as the benchmarks call them: all they know of the toolkit's interfaces stands here."""

from collections.abc import Callable
from typing import Any

import torch
import workload
from torch import Tensor

from asr.models.hybrid import Hybrid, HybridSettings
from asr.search.attention import AttentionScorer
from asr.search.beam import beam_search
from asr.search.ctc_prefix import CTCPrefixScorer
from asr.search.hypothesis import Hypothesis
from asr.transcribe import transcribe
from asr.transcribe.sources import Source


def build(device: str = "cpu") -> Hybrid:
    """Make the model of the workload's sizes with random weights; it never ends a hypothesis."""
    sizes = {"kind": "transformer", "d_model": workload.D_MODEL, "heads": workload.HEADS, "ff": workload.FF}
    settings = HybridSettings(
        kind="hybrid",
        encoder={**sizes, "layers": workload.ENCODER_LAYERS, "channels": workload.CHANNELS, "dropout": 0.1},
        decoder={**sizes, "layers": workload.DECODER_LAYERS, "dropout": 0.1},
    )
    model = Hybrid(settings, workload.MELS, workload.VOCABULARY)
    with torch.no_grad():
        model.decoder.out.bias[model.sos_eos] = workload.NEVER
    return model.to(device).eval()


def search(
    model: Hybrid,
    H: Tensor,
    H_lens: Tensor,
    limits: Tensor,
    joint: bool,
    wrap: Callable[[str, Callable], Any] = lambda name, make: make(),
) -> list[list[Hypothesis]]:
    """Search as `asr.transcribe.transcribe.search` does, with limits (B,) on the number of labels.

    wrap   called with each scorer's name and the function that makes it; gives what the search is to use
    """
    weight = workload.CTC_WEIGHT if joint else 0.0
    scorers = {"attention": (wrap("attention", lambda: AttentionScorer(model.decoder, H, H_lens)), 1 - weight)}
    if joint:
        make = lambda: CTCPrefixScorer(model.ctc_log_probs(H), H_lens, model.sos_eos)  # noqa: E731
        scorers["ctc"] = (wrap("ctc", make), weight)
    return beam_search(scorers, limits, model.sos_eos, workload.BEAM, pre_beam=workload.PRE_BEAM)


def count_steps(model: Hybrid, count: Callable[[], None]) -> None:
    """Have `count` called at each step of the decoder."""
    step = model.decoder.step

    def counted(*args, **kwargs):
        count()
        return step(*args, **kwargs)

    model.decoder.step = counted


def batches(seconds: tuple[float, ...], batch_seconds: float) -> list[list[int]]:
    """Cut utterances of these lengths into batches as asr-decode does, by their numbers."""
    sources = [Source(str(n), "", 0.0, duration) for n, duration in enumerate(seconds)]
    return [[int(source.id) for source in batch] for batch in transcribe._batches(sources, batch_seconds)]
