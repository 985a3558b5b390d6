"""What the server counts, as Prometheus reads it at /metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from asr.serving.engine import Engine

SECONDS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
RTFS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
WAITING = {
    "asr_requests_waiting": "Recordings that wait or are searched",
    "asr_audio_waiting_seconds": "Seconds of them",
    "asr_utterances_running": "Utterances in the search",
    "asr_streams": "Open live streams",
}


class Metrics:
    """Counters of requests and of the engines; label values are ours, never a client's."""

    def __init__(self, engines: Mapping[str, Engine]):
        self.registry = own = CollectorRegistry()
        self.requests = Counter("asr_requests", "Answers", ["route", "status"], registry=own)
        self.latency = Histogram(
            "asr_request_seconds", "Until the answer", ["route"], buckets=SECONDS, registry=own
        )
        self.errors = Counter("asr_errors", "Answers with an error", ["code"], registry=own)
        self.audio = Counter("asr_audio_seconds", "Audio transcribed", ["model"], registry=own)
        self.rtf = Histogram(
            "asr_rtf",
            "Seconds of waiting and computing per second of audio",
            ["model"],
            buckets=RTFS,
            registry=own,
        )
        self.arriving = Gauge("asr_requests_arriving", "Transcriptions in all", registry=own)
        size = Histogram("asr_batch_size", "Utterances", ["model"], buckets=SIZES, registry=own)
        step = Histogram("asr_step_seconds", "A step", ["model"], buckets=STEPS, registry=own)
        for name, engine in engines.items():
            engine.watch = _watch(size.labels(name), step.labels(name))
        own.register(_Loads(engines))

    def page(self) -> bytes:
        """Write all of them."""
        return generate_latest(self.registry)


def _watch(sizes: Histogram, steps: Histogram) -> Callable[[int, float], None]:
    def watch(size: int, seconds: float) -> None:
        sizes.observe(size)
        steps.observe(seconds)

    return watch


class _Loads:
    """Read the engines' loads when they are asked for."""

    def __init__(self, engines: Mapping[str, Engine]):
        self._engines = engines

    def collect(self):
        """Yield a gauge of each kind, by model."""
        loads = {name: engine.load for name, engine in self._engines.items()}
        for n, (metric, help) in enumerate(WAITING.items()):
            family = GaugeMetricFamily(metric, help, labels=["model"])
            for name, load in loads.items():
                family.add_metric([name], load[n])
            yield family
