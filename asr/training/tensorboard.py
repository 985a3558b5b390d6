"""TensorBoard's files of a run."""

import errno
import io
import itertools
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

VERSION = "brain.Event:2"  # of the format, which a file begins with
NUMBERS = itertools.count()


class Board:
    """Scalars and images in a folder; TensorBoard, whose import is slow, is imported when there's something to write.

    The file is written here and not by PyTorch's SummaryWriter, whose thread prints a traceback
    when a disk is full.

    log:  called once, if it can't be written; nothing more is written then
    """

    def __init__(self, folder: Path, log: Callable[[str], None]):
        self.folder, self.log, self.able = folder, log, True
        self.purge_step: int | None = None
        self._file: IO[bytes] | None = None

    def scalars(self, group: str, metrics: Mapping[str, float], step: int) -> None:
        """Write metrics under "group/name"; they are on disk on return, so that no checkpoint is ahead of them."""
        from torch.utils.tensorboard.summary import scalar

        self._add((scalar(f"{group}/{name}", value) for name, value in metrics.items()), step)

    def image(self, name: str, pixels: np.ndarray, step: int) -> None:
        """Write an image, (height, width, 3) uint8."""
        from torch.utils.tensorboard.summary import image

        self._add([image(name, pixels, dataformats="HWC")], step)

    def rewind(self, step: int) -> None:
        """Hide what was written after a step."""
        self.close()
        self.purge_step = step + 1

    def close(self) -> None:
        """Close the file; all of it has been written."""
        if self._file:
            self._file.close()
            self._file = None

    def _add(self, summaries: Iterable[Any], step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        if not self.able:
            return
        try:
            for summary in summaries:
                self._write(Event(summary=summary, step=step))
        except OSError as error:  # curves are no reason to end a training
            self.able = False
            self.log(
                f"{self.folder}: can't be written ({error.strerror}), so TensorBoard gets no more curves"
            )

    def _write(self, event: Any) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        file = self._file or self._begin()
        event.wall_time, record = time.time(), io.BytesIO()
        RecordWriter(record).write(event.SerializeToString())
        if file.write(record.getbuffer()) < record.tell():  # a disk's last bytes
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _begin(self) -> IO[bytes]:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        self.folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{os.getpid()}.{next(NUMBERS):06d}"
        self._file = file = open(self.folder / name, "wb", buffering=0)  # noqa: SIM115 - open as long as the run
        self._write(Event(file_version=VERSION))
        if self.purge_step is not None:
            self._write(
                Event(step=self.purge_step, session_log=SessionLog(status=SessionLog.START))
            )
            self.purge_step = None
        return file
