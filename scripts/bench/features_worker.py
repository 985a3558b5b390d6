"""What a worker of features.py does: log-mel features of batches of waveforms, by the implementation of that --name.

    {"workload": "many", "batches": [[0, 3], [1, 2]]}  →  {"seconds": 0.12}

Each is called as its users call it: on padded batches, or on one waveform after the other.
"""

import time
from argparse import Namespace
from collections.abc import Callable

import torch
from torch import Tensor

from scripts.bench import worker, workload


def ours() -> Callable:
    """The module that the frontend calls, in a process tuned as those of asr-train and asr-decode are."""
    from asr.device import keep_memory
    from asr.features.fbank import Fbank

    keep_memory()
    return Fbank(workload.SAMPLE_RATE, workload.MELS).eval()


def torchaudio() -> Callable:
    """Kaldi's features, one by one."""
    from torchaudio.compliance.kaldi import fbank

    options = {
        "sample_frequency": workload.SAMPLE_RATE,
        "num_mel_bins": workload.MELS,
        "dither": 0.0,
    }
    return lambda waveforms, lens: fbank(waveforms * 32768, **options)


def lhotse() -> Callable:
    """Kaldi's features but for the edges, one by one."""
    from lhotse import Fbank, FbankConfig

    fbank = Fbank(FbankConfig(num_mel_bins=workload.MELS))
    return lambda waveforms, lens: fbank.extract(waveforms.numpy(), workload.SAMPLE_RATE)


def espnet() -> Callable:
    """ESPnet's default frontend, batched."""
    from espnet2.asr.frontend.default import DefaultFrontend

    return DefaultFrontend(
        workload.SAMPLE_RATE, n_fft=512, win_length=400, hop_length=160, n_mels=workload.MELS
    ).eval()


def speechbrain() -> Callable:
    """SpeechBrain's, batched, with the sizes of its LibriSpeech recipes."""
    from speechbrain.lobes.features import Fbank

    fbank = Fbank(sample_rate=workload.SAMPLE_RATE, n_fft=512, n_mels=workload.MELS).eval()
    return lambda waveforms, lens: fbank(waveforms)


def answering(args: Namespace) -> Callable[[dict], dict]:
    """Answer the requests of features.py."""
    extract = globals()[args.name]()
    waveforms = workload.waveforms("many")

    @torch.inference_mode()
    def answer(request: dict) -> dict:
        batches = [workload.pad([waveforms[n] for n in batch]) for batch in request["batches"]]
        return {"seconds": measure(extract, batches)}

    return answer


def measure(extract: Callable, batches: list[tuple[Tensor, Tensor]]) -> float:
    """Time the features of all batches."""
    begun = time.perf_counter()
    for waveforms, lens in batches:
        extract(waveforms, lens)
    return time.perf_counter() - begun


if __name__ == "__main__":
    worker.serve(answering)
