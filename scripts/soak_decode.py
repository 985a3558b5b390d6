"""Stop a decoding at random moments, go on each time, and compare with an undisturbed one.

    python -m scripts.soak_decode [--files 1000] [--stops 20] [--seed 1]
    python -m scripts.soak_decode --stops 0 --parts 200 --processes 4 --kills 3
    python -m scripts.soak_decode --stops 0 --worker-kills 3 --command-kills 5

A tiny model decodes many short files. Each stop is a Ctrl-C, a SIGTERM or a SIGKILL at a moment
drawn from the time that the undisturbed decoding takes; then the same command is run to its end.
Text and JSON must come out the same, nothing finished may be searched again, nothing may stay
beside the outputs. Printed for each stop: the signal, when it came, how many files were finished by
then, and both runs' seconds.

With --parts the same files are decoded in parts, some at a time; some are killed when a few of
their files are finished, and run again. What is joined must come out the same.

With --worker-kills some of the processes of one decoding are killed, with --command-kills it is itself,
and run again, each time a further share of the files is finished. The bytes must be those of a decoding
by one process that nobody disturbs.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parent.parent / "tests")
)  # the constructed corpus lives there

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
SHORT = "2"  # seconds of a batch where there shall be many, to be killed between them
SCORES = re.compile(r"-?\d+\.\d+(e-?\d+)?")


def prepare(root: Path, files: int) -> None:
    """Make the recordings and a model of one epoch."""
    from runs import make_root, train
    from tones import write_corpus

    make_root(root)
    train(root, root / "model", "training.epochs=1")
    write_corpus(root / "many", {"file": files}, seed=5)


def start(root: Path, out: str, *more: str) -> subprocess.Popen:
    """Begin to decode, or go on."""
    outputs = ["--out", root / f"{out}.txt", "--json", root / f"{out}.json"]
    command = [
        sys.executable,
        "-m",
        "asr.cli.decode",
        "--model",
        root / "model",
        *outputs,
        "--batch-seconds",
        "20",
        "--mode",
        "ctc-greedy",
        *more,
        "many",
    ]
    heed = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731 - a job in the background doesn't
    return subprocess.Popen(
        list(map(str, command)), cwd=root, stderr=subprocess.PIPE, text=True, preexec_fn=heed
    )


def finished(root: Path, output: str) -> int:
    """Count the whole results in the journal of an output."""
    path = root / f".{output}.journal"
    return max(0, path.read_bytes().count(b"\n") - 1) if path.exists() else 0


def outputs(root: Path, out: str) -> tuple[str, list]:
    """The text, and the JSON lines with scores rounded: batches differ, and with them the last bits."""
    lines = (root / f"{out}.json").read_text(encoding="utf-8").splitlines()
    rounded = [
        json.loads(SCORES.sub(lambda number: f"{float(number[0]):.3f}", line)) for line in lines
    ]
    return (root / f"{out}.txt").read_text(encoding="utf-8"), rounded


def stop_once(root: Path, number: int, moment: float) -> tuple[int, float, float] | None:
    """Stop a decoding after some seconds and continue; files finished, the second and the first run's seconds.

    returns   None if it was done before that
    """
    begun = time.monotonic()
    process = start(root, "stopped")
    time.sleep(moment)
    process.send_signal(number)
    said = process.communicate()[1]
    first = time.monotonic() - begun
    if process.returncode == 0:
        return None  # it was done before
    if process.returncode not in (0, -number, 128 + number) or "Traceback" in said:
        sys.exit(
            f"soak_decode: the stopped decoding ended with status {process.returncode}:\n{said}"
        )
    kept, begun = finished(root, "stopped.txt"), time.monotonic()
    process = start(root, "stopped")
    said = process.communicate()[1]
    if process.returncode:
        sys.exit(f"soak_decode: going on ended with status {process.returncode}:\n{said}")
    going = re.search(r"going on: (\d+) recordings", said)
    if (int(going[1]) if going else 0) != kept:
        sys.exit(f"soak_decode: {kept} files were finished, and the second run says:\n{said}")
    return kept, time.monotonic() - begun, first


def stop_often(root: Path, args, draw: random.Random, whole: float, expected) -> None:
    """Stop decodings of `whole` seconds, go on, and compare."""
    rates: list[tuple[int, float]] = []
    while len(rates) < args.stops:
        for path in root.glob("*stopped*"):  # hidden ones, too
            path.unlink()
        number, moment = draw.choice(SIGNALS), draw.uniform(0, whole)
        if (stopped := stop_once(root, number, moment)) is None:
            continue
        kept, second, first = stopped
        compare(root, "stopped", expected)
        left = {path.name for path in root.iterdir() if "stopped" in path.name}
        names = [f"stopped.{kind}" for kind in ("txt", "json")]
        if left - {*names, *(f".{name}.stamp.json" for name in names)}:
            sys.exit(f"soak_decode: something stays behind: {sorted(left)}")
        rates.append((kept, second))
        name = signal.Signals(number).name
        print(
            f"stop {len(rates):2d}: {name:7s} at {moment:5.1f} s, {kept:4d} files finished, "
            f"stopped run {first:5.1f} s, second run {second:5.1f} s",
            flush=True,
        )
    print(
        f"{args.stops} stops: the same output as undisturbed each time, nothing finished was searched again"
    )
    early = [second for kept, second in rates if not kept]
    late = [second for kept, second in rates if kept > args.files / 2]
    for what, seconds in (("none", early), ("more than half", late)):
        if seconds:
            print(
                f"second run where {what} was finished: {statistics.median(seconds):.1f} s (median of {len(seconds)})"
            )


def kill_often(root: Path, args, draw: random.Random, kills: int, processes: int) -> None:
    """Decode by some processes, kill one of several or else the command again and again, and compare the bytes."""
    worker = processes > 1
    marks = [args.files * n // (kills + 1) for n in range(1, kills + 1)]  # files finished by then
    how = "--batch-seconds", SHORT if worker else "20", "--processes"
    start(root, "one", *how, "1").communicate()
    how = *how, str(processes)
    begun, process = time.monotonic(), start(root, "killed", *how)
    while process.poll() is None:
        if marks and finished(root, "killed.txt") >= marks[0]:
            marks.pop(0)
            os.kill(draw.choice(workers(process.pid)) if worker else process.pid, signal.SIGKILL)
            if not worker:
                process.communicate()  # until its workers have ended, too
                process = start(root, "killed", *how)
        time.sleep(0.05)
    if process.returncode or marks:
        sys.exit(f"soak_decode: {len(marks)} kills left:\n{process.communicate()[1]}")
    for kind in ("txt", "json"):
        killed, whole = ((root / f"{out}.{kind}").read_bytes() for out in ("killed", "one"))
        if killed != whole:
            shutil.copytree(root, "soak_decode.differs")
            sys.exit("soak_decode: the bytes differ; all is in soak_decode.differs")
    print(
        f"{processes} processes, {kills} {'of them' if worker else 'times the command'} killed: "
        f"the bytes of an undisturbed one, {time.monotonic() - begun:.0f} s",
        flush=True,
    )
    for path in (*root.glob("*killed*"), *root.glob("*one*")):
        path.unlink()


def workers(process: int) -> list[int]:
    """The processes that a decoding has started to search."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split()
    return [int(n) for n in children if b"spawn_main" in Path(f"/proc/{n}/cmdline").read_bytes()]


def decode_parts(root: Path, args, draw: random.Random, expected) -> None:
    """Decode in parts, some at a time, of which some are killed and run again; join, and compare."""
    begun, done, running, kills = time.monotonic(), 0, dict[int, subprocess.Popen](), 0
    waiting, fatal = (
        list(range(args.parts, 0, -1)),
        {*draw.sample(range(1, args.parts + 1), args.kills)},
    )
    while waiting or running:
        while waiting and len(running) < args.processes:
            number = waiting.pop()
            part = "--part", f"{number}/{args.parts}", "--batch-seconds", SHORT
            running[number] = start(root, "parts", *part)
        for number, process in list(running.items()):
            kept = finished(root, f"parts.txt.part-{number}-of-{args.parts}")
            if number in fatal and 0 < kept < args.files // args.parts:
                process.kill()  # in the middle: some of its files are finished
                kills += 1
                fatal.remove(number)
                waiting.append(number)
            elif process.poll() is None:
                continue
            elif process.returncode:
                sys.exit(f"soak_decode: part {number} failed:\n{process.communicate()[1]}")
            else:
                done += 1
                if number in fatal:  # it was done too soon
                    others = sorted({*waiting} - fatal) or sys.exit("soak_decode: none to kill")
                    fatal ^= {number, draw.choice(others)}
            process.communicate()
            del running[number]
        time.sleep(0.01)
    said = start(root, "parts", "--join", str(args.parts)).communicate()[1]
    compare(root, "parts", expected)
    print(
        f"{done} parts on {args.processes} processes, {kills} killed of them and run again, joined: the same "
        f"output as undivided, {time.monotonic() - begun:.0f} s ({said.strip().splitlines()[-1]})"
    )


def compare(root: Path, out: str, expected) -> None:
    """End if outputs aren't as expected."""
    if outputs(root, out) != expected:
        shutil.copytree(root, "soak_decode.differs")
        sys.exit("soak_decode: the outputs differ; all is in soak_decode.differs")


def main() -> None:
    """Stop, go on, compare."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = {"files": 1000, "stops": 20, "parts": 0, "processes": 4, "kills": 3, "seed": 1}
    numbers |= {"worker-kills": 0, "command-kills": 0}
    for name, default in numbers.items():
        args.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    args = args.parse_args()
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        prepare(root, args.files)
        begun = time.monotonic()
        process = start(root, "whole")
        if process.communicate()[1] and process.returncode:
            sys.exit("soak_decode: the undisturbed decoding has failed")
        whole, expected = time.monotonic() - begun, outputs(root, "whole")
        print(f"undisturbed: {whole:.1f} s", flush=True)
        stop_often(root, args, draw, whole, expected)
        for kills, processes in ((args.worker_kills, args.processes), (args.command_kills, 1)):
            if kills:
                kill_often(root, args, draw, kills, processes)
        if args.parts:
            decode_parts(root, args, draw, expected)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
