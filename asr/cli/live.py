"""asr-decode --stream: samples that arrive, from files, a pipe or a microphone → words while they are spoken."""

import argparse
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from asr.audio import containers, live, pcm
from asr.cli.command import emit
from asr.cli.decode import check_raw, end
from asr.cli.decode_arguments import NAME
from asr.errors import UserError, repeated, shorten
from asr.failures import Failure
from asr.files import make_folder
from asr.formats import LIVE, FormatOptions, Growing, check_names, files_of
from asr.logging import printable
from asr.outputs import check_output
from asr.transcript import Event, Final, Partial
from asr.transcription.decoding import Decoding, ModelLoader, warn_failures
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.live import transcribe_live
from asr.transcription.streams import Streams

MICROPHONE = "microphone"  # its id
CLEAR = "\r\x1b[K"  # the current line of a terminal
Write = Callable[[Event], None]


def decode(
    args: argparse.Namespace, how: Decoding, endpoints: EndpointOptions, layout: FormatOptions
) -> int:
    """Transcribe the sources of asr-decode's arguments while they are read; return the exit status."""
    names = [MICROPHONE] if args.mic is not None else args.sources
    _check(args, names)
    how.check_files()
    failures = []
    with ExitStack() as stack:
        stack.enter_context(containers.decoding())
        load = stack.enter_context(ModelLoader(how, []))
        streams = Streams(load(), how.options, endpoints, how.precision)
        writers = {name: _writer(args, name, len(names) > 1, layout, stack) for name in names}
        stopped = stack.enter_context(stopping())
        found = transcribe_live(streams, _sources(args, names), stopped=stopped)
        for name, event in found:
            if isinstance(event, Failure):
                failures.append(event)
            else:
                writers[name](event)
    warn_failures(failures, len(names))
    return end(failures, len(names), "")


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Within it, let the first Ctrl-C end the streams, so that their last words are written; the next one stops all."""
    asked = threading.Event()

    def stop(*_: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _check(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Refuse what a stream can't do."""
    others = ("manifest", "out", "json", "processes", "gpus", "part", "join", "tune", "calibrate")
    if wrong := [f"--{name}" for name in others if getattr(args, name)]:
        raise UserError(f"--stream: doesn't go with {', '.join(wrong)}")
    if args.channel == "all":
        raise UserError("--channel: got all, expected one of a stream's channels")
    if args.mic is not None and args.order:
        raise UserError("--mic: listens to the microphone alone; leave the files away")
    if args.raw is not None:
        check_raw(args)
        pcm.check_rate(args.raw)
    if not names:
        raise UserError("nothing to transcribe; give sound files, --raw RATE - or --mic")
    if twice := repeated(names):
        raise UserError(f"{shorten(twice)}: given twice; give each once")
    if folders := [name for name in names if os.path.isdir(name)]:
        raise UserError(f"{folders[0]}: is a folder; --stream takes files")
    if late := [kind for kind in args.format if kind not in LIVE]:
        raise UserError(f"--format: got {late[0]}, expected some of {', '.join(LIVE)} of a stream")
    one_by_one = args.format in ((), ("txt",), ("json",))  # lines that tell whose they are
    if not args.out_dir and (len(args.format) > 1 or len(names) > 1 and not one_by_one):
        raise UserError(f"--format: got {', '.join(args.format)}; --out-dir takes their files")
    if args.out_dir:
        for path in check_names(names, Path(args.out_dir), args.format or ("txt",)):
            check_output("--out-dir", path, NAME, names, args.force)


def _sources(args: argparse.Namespace, names: Sequence[str]) -> Iterator[tuple[str, live.Portions]]:
    """Open the sources one by one, when they are needed."""
    for name in names:
        if args.mic is not None:
            yield name, live.from_microphone(args.mic or None)
        elif args.raw is not None:
            yield name, live.from_pipe(sys.stdin.buffer, args.raw)
        else:
            portions = live.from_file(name, args.channel)
            yield name, live.paced(portions) if args.realtime else portions


def _writer(
    args: argparse.Namespace, name: str, several: bool, layout: FormatOptions, stack: ExitStack
) -> Write:
    """Return what writes the events of a source."""
    if args.out_dir:
        kinds = args.format or ("txt",)
        paths = files_of(name, Path(args.out_dir), kinds)
        return _all([_file(k, name, p, layout, stack) for k, p in zip(kinds, paths, strict=True)])
    if args.format and args.format != ("txt",):
        growing = Growing(args.format[0], name, layout)
        if growing.head:
            emit(growing.head, end="")
        return lambda event: emit(growing.add(event), end="")
    if sys.stdout.isatty() and not several:
        return _show
    return lambda event: _line(event, f"{name}\t" if several else "")


def _all(writers: Iterable[Write]) -> Write:
    def write(event: Event) -> None:
        for one in writers:
            one(event)

    return write


def _file(kind: str, name: str, path: Path, layout: FormatOptions, stack: ExitStack) -> Write:
    """Begin a file that grows by whole cues or lines."""
    make_folder(path.parent)
    file = stack.enter_context(path.open("w", encoding="utf-8"))
    growing = Growing(kind, name, layout)

    def write(text: str) -> None:
        if text:
            file.write(text)
            file.flush()

    write(growing.head)
    return lambda event: write(growing.add(event))


def _line(event: Event, prefix: str) -> None:
    if isinstance(event, Final) and event.segment.text:
        emit(prefix + event.segment.text)


def _show(event: Event) -> None:
    """Rewrite the terminal's last line, until it is final."""
    if isinstance(event, Partial):
        width = shutil.get_terminal_size().columns - 1
        emit(CLEAR + printable(event.text)[-width:], end="")
    else:
        emit(CLEAR + printable(event.segment.text), end="\n" if event.segment.text else "")
