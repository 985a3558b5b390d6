"""How many seconds of audio a batch may hold: measured at the start, where `data.batch_seconds: auto` asks for it."""

import torch

from asr.data.batches import Batch
from asr.errors import UserError
from asr.training import memory
from asr.training.blocks import all_take_part
from asr.training.device import autocast
from asr.training.settings import LoopSettings
from asr.training.speech import SpeechTask


def batch_seconds(task: SpeechTask, device: torch.device, settings: LoopSettings, processes: int) -> float:
    """Measure what ever larger batches of the longest utterances take, up to a quarter of the memory; conclude.

    processes  that share the machine's memory; a GPU each has for itself
    returns    seconds of padded audio a batch
    raises     UserError if the longest utterance alone takes too much, or the system doesn't tell what it takes
    """
    free = memory.free_bytes(device, processes) - memory.later_bytes(task.model, average=bool(settings.ema))
    task.model.train()
    seconds, taken, n = 0.0, 1.0, 1
    while taken < free / 4:
        indices = task.longest(n)
        batch = next(iter(task.load(0, [indices])))
        try:
            taken = memory.peak_bytes(device, lambda batch=batch: _gradient(task, batch, device, settings.precision))
        except RuntimeError as error:
            if not memory.is_out(error):
                raise
            break
        except OSError as error:
            raise UserError(
                f"data.batch_seconds: auto: this system doesn't tell what a process takes ({error}); give a number"
            ) from None
        seconds = batch.elements / task.model.sample_rate
        if len(indices) < n:
            break
        n *= 2
    task.model.zero_grad()
    if not seconds:
        raise UserError("data.batch_seconds: auto: the longest utterance doesn't fit in memory; lower data.max_seconds")
    return float(max(seconds, seconds * free / taken) // 1)


def _gradient(task: SpeechTask, batch: Batch, device: torch.device, precision: str) -> None:
    with all_take_part(task.model), autocast(device, precision):
        loss = task.loss(task.model, batch.to(device), max(task.mask_after, task.flat_start))
    loss.total.backward()
