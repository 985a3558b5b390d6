"""Pictures of a run: matplotlib's figures as PNG files, drawn without a display, and not too often."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from asr import optional
from asr.errors import UserError
from asr.files import replacing

PAUSE = 30.0  # seconds between two drawings of a picture, which take some tenths of one


class Pictures:
    """Draw pictures as a run goes on: each at most once in PAUSE seconds, and what is left over at the end.

    say:  told once, if matplotlib can't be imported or a file can't be written; nothing more is drawn then
    """

    def __init__(self, say: Callable[[str], None]):
        self.say, self.able = say, True
        self.began, self.drawn_at, self.pending = time.monotonic(), {}, {}

    def offer(self, name: str, draw: Callable[[], None]) -> None:
        """Call draw now, or later, unless a newer picture of the name comes before."""
        self.pending[name] = draw
        if time.monotonic() - self.drawn_at.get(name, self.began) >= PAUSE:
            self._draw(name)

    def finish(self) -> None:
        """Draw all that is pending."""
        for name in list(self.pending):
            self._draw(name)

    def _draw(self, name: str) -> None:
        draw = self.pending.pop(name)
        self.drawn_at[name] = time.monotonic()
        try:
            if self.able:
                draw()
        except UserError as error:  # a picture is no reason to end a training
            self.able = False
            self.say(f"no pictures are drawn: {error}")


def pixels(figure: Any) -> np.ndarray:
    """Draw a Figure of matplotlib: (height, width, 3) uint8."""
    canvas = optional.matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def save(image: np.ndarray, path: Path) -> None:
    """Write pixels as a PNG file, whole or not at all."""
    with replacing(path) as temporary:
        optional.matplotlib("matplotlib.image").imsave(temporary, image, format="png")
