"""The recordings of a manifest without their texts, to draw from: noises, impulse responses."""

import os

import numpy as np

from asr.audio import load as audio
from asr.data import manifest as manifests
from asr.data.validate import check_audio
from asr.errors import UserError


class Recordings:
    """Where N recordings stand; kept in arrays, for every worker holds them.

    paths:   (N,) bytes
    starts, durations:  (N,) float64, seconds
    channels:  (N,) int16, the channel that the manifest asks for; -1 where it asks for none
    """

    def __init__(self, manifest: str | os.PathLike):
        """Read a manifest and look at the header of each of its sound files.

        raises   UserError if there is no manifest, it is damaged or empty, or disagrees with a
                 sound file
        """
        utterances = list(manifests.read(manifest))
        if not utterances:
            raise UserError(
                f"{manifest}: holds no recording; `asr-prepare folder SOUNDS OUT` makes a manifest"
            )
        check_audio(utterances, manifest)
        self.paths = np.array([os.fsencode(u.path) for u in utterances])
        self.starts = np.array([u.start for u in utterances])
        self.durations = np.array([u.duration for u in utterances])
        self.channels = np.array(
            [-1 if u.channel is None else u.channel for u in utterances], np.int16
        )

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, n: int, rate: int) -> np.ndarray:
        """Read recording n whole, the channel asked for or the first, at `rate` Hz: (samples,) float32."""
        return self._read(n, rate, 0.0, float(self.durations[n]), channel=0)

    def stretch(self, n: int, rate: int, samples: int, place: float) -> np.ndarray:
        """Read a stretch of recording n, repeated where the recording is shorter.

        samples:  of the stretch, at `rate` Hz
        place:    in [0, 1), where the stretch begins among all places where it fits
        returns   (samples,) float32, of the channel asked for, or the mean of all
        """
        whole = float(self.durations[n])
        wanted = min(
            whole, (samples + 1) / rate
        )  # one more, against the roundings of times and resampling
        return np.resize(self._read(n, rate, place * (whole - wanted), wanted), samples)

    def _read(
        self, n: int, rate: int, skip: float, duration: float, channel: int | None = None
    ) -> np.ndarray:
        path, start = os.fsdecode(self.paths[n]), float(self.starts[n])
        channel = channel if self.channels[n] < 0 else int(self.channels[n])
        return audio.load(
            path, rate, start + skip, duration, channel, clip=False
        )  # its scale doesn't matter
