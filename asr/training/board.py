"""TensorBoard's files of a run."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np


class Board:
    """Scalars and images in a folder; the writer, whose import is slow, is made when there's something to write."""

    def __init__(self, folder: Path):
        self.folder, self.purge_step, self._writer = folder, None, None

    def scalars(self, group: str, figures: Mapping[str, float], step: int) -> None:
        """Write figures under "group/name"; they are on disk on return, so that no checkpoint is ahead of them."""
        writer = self._open()
        for name, value in figures.items():
            writer.add_scalar(f"{group}/{name}", value, step)
        writer.flush()

    def image(self, name: str, pixels: np.ndarray, step: int) -> None:
        """Write an image, (height, width, 3) uint8."""
        self._open().add_image(name, pixels, step, dataformats="HWC")

    def rewind(self, step: int) -> None:
        """Hide what was written after a step."""
        self.close()
        self.purge_step = step + 1

    def close(self) -> None:
        """Flush and close."""
        if self._writer:
            self._writer.close()
            self._writer = None

    def _open(self):
        if not self._writer:
            from torch.utils.tensorboard import SummaryWriter

            self._writer, self.purge_step = SummaryWriter(str(self.folder), purge_step=self.purge_step), None
        return self._writer
