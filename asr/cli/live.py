"""asr-decode --stream: samples that arrive, from files, a pipe or a microphone → words while they are spoken."""

import argparse
import itertools
import json
import os
import shutil
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from asr.audio import containers, live
from asr.audio.load import check_rate
from asr.cli.command import Terminated, emit
from asr.cli.decode import end, enlist, written
from asr.cli.decode_arguments import NAME
from asr.cli.decode_checks import check_raw, check_used
from asr.errors import UserError, repeated, shorten
from asr.failures import Failure
from asr.files import append_text, open_file, read_lines, write_text
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
GONE = "is gone; leave out --resume"
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
    writers, unread, asked = dict[str, Write](), set(readable), list[int]()

    def stopped() -> bool:
        return bool(asked)

    def sources() -> Iterator[tuple[str, live.Portions]]:
        """Begin with the sources one by one, when there is room."""
        for name in readable:
            writers[name] = _writer(args, name, len(names) > 1, layout)
            yield name, _to_end(_portions(args, name, stopped), name, unread)

    with ExitStack() as stack:
        stack.enter_context(containers.decoding())
        load = stack.enter_context(ModelLoader(how, []))
        streams = Streams(load(), how.options, endpoints, how.precision)
        if args.out_dir:
            enlist(args, [path for name in readable for path in _files(args, name)])
        stack.enter_context(stopping(asked))
        at = _resumed(args, names[0])
        # a microphone and a pipe end by themselves, after what they have already heard
        ends = live.never if _once(args) else stopped
        for name, event in transcribe_live(streams, sources(), stopped=ends, at=at):
            if isinstance(event, Failure):
                failures.append(event)
            else:
                writers[name](event)
    for failure in failures:
        _remove_empty(args, failure.id)
    warn_failures(failures, len(names))
    unread -= {failure.id for failure in failures}
    if asked and unread and not _once(args):
        raise _stopped(asked[0], sorted(unread))
    return end(failures, len(names), "")


def _misnamed(names: Sequence[str]) -> list[Failure]:
    """List the files whose names can't stand in a line."""
    faults = {name: fault_of(name) for name in names}
    return [Failure(name, name, str(fault)) for name, fault in faults.items() if fault]


def _to_end(portions: live.Portions, name: str, unread: set[str]) -> live.Portions:
    """Hand portions on; a source that ends isn't unread any more."""
    yield from portions
    unread.discard(name)


@contextmanager
def stopping(asked: list[int]) -> Iterator[None]:
    """Within it, let the first Ctrl-C or SIGTERM end the streams, so that their last words are written.

    The next one stops all. A signal that the program was begun to ignore stays ignored.
    asked   gets the signals that come
    """

    def stop(number: int, _frame: object) -> None:
        asked.append(number)
        if len(asked) > 1:
            raise _stopped(number)

    heeded = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stopped(number: int, unread: Sequence[str] = ()) -> KeyboardInterrupt:
    """What a signal means to the command; unread: sources that it has kept from being read to their ends."""
    error = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
    if unread:
        what = f"{shorten(unread)}: not read to the end; run the same command again to begin anew"
        error.hint = what  # type: ignore[attr-defined]
    return error


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
        _check_files(args, names)


def _check_files(args: argparse.Namespace, names: Sequence[str]) -> None:
    """Refuse to replace files that aren't this command's, or have what can't be recorded again."""
    own, kinds = written(args), _kinds(args)
    if args.resume and args.force:
        raise UserError("--resume and --force: give one of them")
    if args.resume and "json" not in kinds and {*kinds} != {"txt"}:
        got = f"--format: got {', '.join(kinds)} with --resume"
        raise UserError(f"{got}, expected json, too: it has the position; add it")
    for path in check_names(names, Path(args.out_dir), kinds):
        check_output("--out-dir", path, NAME, names, args.force, own.__contains__)
    for path, kind in _files(args, names[0]).items():
        if _once(args) and not (args.resume or args.force or _is_empty(path, kind)):
            raise UserError(
                f"--out-dir {path}: has what was recorded earlier and can't be again; add --resume to go on with "
                "it, --force to replace it, or choose another folder"
            )


def _once(args: argparse.Namespace) -> bool:
    """Whether the source can't be read again, and ends when the person stops it."""
    return args.mic is not None or args.raw is not None


def _kinds(args: argparse.Namespace) -> Sequence[str]:
    return args.format or ("txt",)


def _files(args: argparse.Namespace, name: str) -> dict[Path, str]:
    """Map the files of a source in --out-dir to their formats."""
    kinds = _kinds(args)
    return dict(zip(files_of(name, Path(args.out_dir), kinds), kinds, strict=True))


def _portions(args: argparse.Namespace, name: str, stopped: Callable[[], bool]) -> live.Portions:
    if args.mic is not None:
        return live.from_microphone(args.mic or None, stopped)
    if args.raw is not None:
        return live.from_pipe(sys.stdin.buffer, args.raw, stopped)
    portions = live.from_file(name, args.channel)
    return live.paced(portions) if args.realtime else portions


def _writer(args: argparse.Namespace, name: str, several: bool, layout: FormatOptions) -> Write:
    """Return what writes the events of a source."""
    if args.out_dir:
        growing = {path: Growing(kind, name, layout) for path, kind in _files(args, name).items()}
        return _into_files(growing, args.resume)
    if args.format and args.format != ("txt",):
        one = Growing(args.format[0], name, layout)
        if one.head:
            emit(one.head, end="")
        return lambda event: emit(one.add(event), end="")
    if sys.stdout.isatty() and not several:
        return _show
    return lambda event: _line(event, f"{name}\t" if several else "")


def _into_files(growing: Mapping[Path, Growing], resume: bool) -> Write:
    """Begin files that grow by whole cues or lines, or go on with them.

    Of an event json is written first, and its values make the other files: a run that is killed
    before it writes those leaves what they need.
    """
    files = sorted(growing.items(), key=lambda item: item[1].kind != "json")
    events = next((path for path, one in files if one.kind == "json"), None)
    finals = _finals(events) if events and resume else []
    for path, one in files:
        if resume:
            _go_on(path, one, () if one.kind == "json" else finals)
        else:
            write_text(path, one.head)

    def write(event: Event) -> None:
        if events and isinstance(event, Final):
            event = Final.of_json(event.as_json())  # as a resumed run will read it
        for path, one in files:
            if text := one.add(event):
                append_text(path, text)

    return write


def _go_on(path: Path, one: Growing, finals: Sequence[Final]) -> None:
    """Let a file of an earlier run end in a whole cue or line; if it is a part of what `finals` make, add the rest."""
    made = one.head + "".join(map(one.add, finals))
    if not path.exists() or made.encode().startswith(_content(path)):
        write_text(path, made)
    else:
        earlier = _earlier(path)
        os.truncate(path, earlier.size)
        one.cues = earlier.cues


class _Earlier(NamedTuple):
    """What a file of an earlier run has: bytes of complete lines, cues, and the lines of final events."""

    size: int
    cues: int
    finals: list[bytes]


def _earlier(path: Path) -> _Earlier:
    """Read a file of an earlier run, which may have been killed within a line.

    raises   UserError if it can't be read
    """
    size, cues, finals = 0, 0, []
    with open_file(path, GONE) as file:
        for line in read_lines(file, path):
            if line.endswith(b"\n"):
                size += len(line)
                cues += b" --> " in line
                finals += [line] if b'"type": "final"' in line else []
    return _Earlier(size, cues, finals)


def _content(path: Path) -> bytes:
    with open_file(path, GONE) as file:
        return file.read()


def _finals(path: Path) -> list[Final]:
    """Read the final events of an earlier run, if there are any; none if a hand has changed them."""
    lines = _earlier(path).finals if path.exists() else []
    try:
        return [Final.of_json(json.loads(line)) for line in lines]
    except (ValueError, KeyError, TypeError):
        return []


def _resumed(args: argparse.Namespace, name: str) -> tuple[float, int]:
    """Return the position and the number with which the stream begins, or goes on.

    raises   UserError if the last final event of an earlier run can't be read
    """
    for path, kind in _files(args, name).items() if args.resume else ():
        if kind == "json" and path.exists() and (finals := _earlier(path).finals):
            try:
                event = json.loads(finals[-1])
                return event["position"], event["number"] + 1
            except (ValueError, KeyError, TypeError):
                what = f"{path}: its last final event is damaged, expected position and number"
                raise UserError(
                    f"{what}; replace it by --force, or choose another folder"
                ) from None
    return 0.0, 0


def _is_empty(path: Path, kind: str) -> bool:
    """Whether a file is missing, or nothing was recognized for it."""
    return not path.exists() or path.stat().st_size <= len(HEADS.get(kind, ""))


def _remove_empty(args: argparse.Namespace, name: str) -> None:
    """Remove the files in --out-dir of a source in which nothing was recognized."""
    for path, kind in _files(args, name).items() if args.out_dir else ():
        if _is_empty(path, kind):
            path.unlink(missing_ok=True)


def _line(event: Event, prefix: str) -> None:
    if isinstance(event, Final) and event.segment.text:
        emit(prefix + event.segment.text)


def _show(event: Event) -> None:
    """Rewrite the terminal's last line, until it is final."""
    if isinstance(event, Partial):
        width = shutil.get_terminal_size().columns - 1
        emit(CLEAR + _last(printable(event.text), width), end="")
    else:
        emit(CLEAR + printable(event.segment.text), end="\n" if event.segment.text else "")


def _last(text: str, width: int) -> str:
    """Keep the end of a text that fits into some columns of a terminal."""
    columns = itertools.accumulate(map(_columns, reversed(text)))
    return text[len(text) - sum(count <= width for count in columns) :]


def _columns(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):  # drawn onto the one before
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
