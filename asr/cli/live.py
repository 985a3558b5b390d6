"""asr-decode --stream: samples that arrive, from files, a pipe or a microphone → words while they are spoken."""

import argparse
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from asr.audio import containers, live
from asr.audio.load import check_rate
from asr.cli.command import emit
from asr.cli.decode import check_raw, check_used, end, enlist, written
from asr.cli.decode_arguments import NAME
from asr.errors import UserError, repeated, shorten
from asr.failures import Failure
from asr.files import append_text, write_text
from asr.formats import HEADS, LIVE, FormatOptions, Growing, check_names, files_of
from asr.logging import printable
from asr.outputs import check_output
from asr.transcript import Event, Final, Partial
from asr.transcription.decoding import Decoding, ModelLoader, warn_failures
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.live import transcribe_live
from asr.transcription.recordings import fault_of
from asr.transcription.streams import Streams

MICROPHONE = "microphone"  # its id
CLEAR = "\r\x1b[K"  # the current line of a terminal
Write = Callable[[Event], None]


def decode(
    args: argparse.Namespace, how: Decoding, endpoints: EndpointOptions, layout: FormatOptions
) -> int:
    """Transcribe the sources of asr-decode's arguments while they are read; return the exit status."""
    names = [MICROPHONE] if args.mic is not None else args.sources
    _check(args, names, how)
    how.check_files()
    failures = [] if args.raw is not None else _misnamed(names)
    readable = [name for name in names if name not in {failure.id for failure in failures}]
    writers = dict[str, Write]()

    def sources() -> Iterator[tuple[str, live.Portions]]:
        """Begin with the sources one by one, when there is room."""
        for name in readable:
            writers[name] = _writer(args, name, len(names) > 1, layout)
            yield name, _portions(args, name)

    with ExitStack() as stack:
        stack.enter_context(containers.decoding())
        load = stack.enter_context(ModelLoader(how, []))
        streams = Streams(load(), how.options, endpoints, how.precision)
        if args.out_dir:
            enlist(args, [path for name in readable for path in _files(args, name)])
        stopped = stack.enter_context(stopping())
        for name, event in transcribe_live(streams, sources(), stopped=stopped):
            if isinstance(event, Failure):
                failures.append(event)
            else:
                writers[name](event)
    for failure in failures:
        _remove_empty(args, failure.id)
    warn_failures(failures, len(names))
    return end(failures, len(names), "")


def _misnamed(names: Sequence[str]) -> list[Failure]:
    """List the files whose names can't stand in a line."""
    faults = {name: fault_of(name) for name in names}
    return [Failure(name, name, str(fault)) for name, fault in faults.items() if fault]


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


def _check(args: argparse.Namespace, names: Sequence[str], how: Decoding) -> None:
    """Refuse what a stream can't do."""
    others = ("manifest", "out", "json", "processes", "gpus", "part", "join", "tune", "calibrate")
    if wrong := [f"--{name}" for name in others if getattr(args, name)]:
        raise UserError(f"--stream: doesn't go with {', '.join(wrong)}")
    check_used(args, how.options)
    if args.channel == "all":
        raise UserError("--channel: got all, expected one of a stream's channels")
    if args.mic is not None and args.order:
        raise UserError("--mic: listens to the microphone alone; leave the files away")
    if args.raw is not None:
        check_raw(args)
        check_rate(args.raw, "raw")
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
        own = written(args)
        for path in check_names(names, Path(args.out_dir), _kinds(args)):
            check_output("--out-dir", path, NAME, names, args.force, own.__contains__)


def _kinds(args: argparse.Namespace) -> Sequence[str]:
    return args.format or ("txt",)


def _files(args: argparse.Namespace, name: str) -> dict[Path, str]:
    """Map the files of a source in --out-dir to their formats."""
    kinds = _kinds(args)
    return dict(zip(files_of(name, Path(args.out_dir), kinds), kinds, strict=True))


def _portions(args: argparse.Namespace, name: str) -> live.Portions:
    if args.mic is not None:
        return live.from_microphone(args.mic or None)
    if args.raw is not None:
        return live.from_pipe(sys.stdin.buffer, args.raw)
    portions = live.from_file(name, args.channel)
    return live.paced(portions) if args.realtime else portions


def _writer(args: argparse.Namespace, name: str, several: bool, layout: FormatOptions) -> Write:
    """Return what writes the events of a source."""
    if args.out_dir:
        growing = {path: Growing(kind, name, layout) for path, kind in _files(args, name).items()}
        return _into_files(growing)
    if args.format and args.format != ("txt",):
        one = Growing(args.format[0], name, layout)
        if one.head:
            emit(one.head, end="")
        return lambda event: emit(one.add(event), end="")
    if sys.stdout.isatty() and not several:
        return _show
    return lambda event: _line(event, f"{name}\t" if several else "")


def _into_files(growing: Mapping[Path, Growing]) -> Write:
    """Begin files that grow by whole cues or lines."""
    for path, one in growing.items():
        write_text(path, one.head)

    def write(event: Event) -> None:
        for path, one in growing.items():
            if text := one.add(event):
                append_text(path, text)

    return write


def _remove_empty(args: argparse.Namespace, name: str) -> None:
    """Remove the files in --out-dir of a source in which nothing was recognized."""
    for path, kind in _files(args, name).items() if args.out_dir else ():
        if path.exists() and path.stat().st_size == len(HEADS.get(kind, "")):
            path.unlink()


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
