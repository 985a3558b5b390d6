"""Say what a recipe's steps would do, how long and with how much disk: recipes/.../run.sh --dry-run. Runs nothing.

    python -m scripts.plan FILE      FILE: the steps as `step` of scripts/recipe.sh has noted them

Every command asks its stamp before it does anything. Here that question ends it, and its answer is
printed: `done`, or `to do`, or `depends`: a step before it is to do; if that comes out as before,
this one is done. Times and sizes are estimates: what the step took when it was last done here, and
else what is said below or in the head of the YAML, with the hardware it is for.
"""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from asr import stamp
from asr.cli.command import command
from asr.data import shar
from asr.errors import UserError
from asr.logging import logger
from asr.stamp import Planned, planning

# hours of audio in what is decoded; dev and test are AISHELL's
HOURS = {
    "dev-clean": 5.4,
    "dev-other": 5.3,
    "test-clean": 5.4,
    "test-other": 5.1,
    "dev": 18.1,
    "test": 10.0,
}
RTF = 0.012, "two cores of a Xeon with AMX, 31 M parameters, joint beam 10; with a GPU not measured"
KNOWN = {  # time, disk of what needs neither a GPU nor long
    "asr-prepare": (
        "a few minutes for 100,000 recordings on a local disk",
        "20 MB for 100,000 recordings",
    ),
    "asr-tokenizer": ("1 to 3 min", "1 MB"),
}


@dataclass(frozen=True)
class Step:
    """One step of a recipe.

    words:    its command line
    output:   what it makes
    reads:    files and folders that it depends on
    current:  whether it is done
    """

    words: tuple[str, ...]
    output: str
    reads: tuple[str, ...]
    current: bool


def read(path: str) -> list[list[str]]:
    """Read the steps: for each the number of its words, then these, each ended by NUL."""
    words, steps = Path(path).read_text(encoding="utf-8").split("\0")[:-1], []
    while words:
        count = int(words[0]) + 1
        steps.append(words[1:count])
        words = words[count:]
    return steps


def ask(words: list[str]) -> Step:
    """Ask a command whether its work is done.

    raises   SystemExit where the command refuses its arguments, as it would when it runs
    """
    main = importlib.import_module(f"asr.cli.{words[0].removeprefix('asr-')}").main
    try:
        with planning():
            main(words[1:])
    except Planned as asked:
        stamp, current = asked.stamp, asked.current
        source = stamp.facts["arguments"].get("source", "")  # of asr-prepare
        if "--shar" in words:
            current &= all(
                shar.paths(stamp.output, name)[0].is_file()
                for name in stamp.facts["arguments"]["splits"]
            )
        return Step(
            tuple(words),
            str(stamp.output),
            (*stamp.facts["inputs"], *([source] if source else [])),
            current,
        )
    raise UserError(f"{' '.join(words)}: asks no stamp, so it can't be planned")


def lies_in(path: str, folder: str) -> bool:
    """Whether a path is a folder, or below it."""
    path, folder = os.path.abspath(path), os.path.abspath(folder)
    return path == folder or path.startswith(folder + os.sep)


def plan(steps: list[list[str]]) -> Iterator[tuple[Step, str]]:
    """Ask each step, and see which depend on others that are to do."""
    changing: list[str] = []
    for words in steps:
        if words[0] == "asr-download":
            needed = disk_of_download(words)
            yield Step(tuple(words), words[2], (), not needed), "to do" if needed else "done"
            changing += [words[2]] if needed else []
        elif words[0] == "asr-prepare" and any(lies_in(words[2], output) for output in changing):
            changing.append(words[3])
            yield Step(tuple(words), words[3], (words[2],), False), "depends"
        else:
            step = ask(words)
            follows = any(lies_in(path, output) for path in step.reads for output in changing)
            state = "depends" if follows else "done" if step.current else "to do"
            if state != "done":
                changing.append(step.output)
            yield step, state


def disk_of_download(words: Sequence[str]) -> str:
    """What a download says of the disk it takes; empty if all is there.

    raises   UserError if it refuses its arguments, or isn't there
    """
    asked = [sys.executable, "-m", "asr.cli.download", *words[1:], "--dry-run"]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode:
        raise UserError(done.stderr.strip().splitlines()[-1])
    said = [
        line.removeprefix("disk: ")
        for line in done.stderr.splitlines()
        if line.startswith("disk: ")
    ]
    return said[0] if said else ""


def estimate(step: Step) -> tuple[str, str]:
    """Say time and disk."""
    name = step.words[0]
    if name == "asr-download":
        return "as your line allows", disk_of_download(step.words)
    try:
        made = stamp.read(step.output)["made"]
        return (
            f"took {clock(made['seconds'])} last time, on {made.get('hardware', 'what is not recorded')}",
            "",
        )
    except UserError:
        pass
    if name == "asr-train":
        return head(step.words, "time"), head(step.words, "disk")
    if name == "asr-decode":
        hours = sum(HOURS.get(Path(path).name.removesuffix(".jsonl.gz"), 0) for path in step.reads)
        return (f"{clock(3600 * hours * RTF[0])} ({RTF[1]})" if hours else "unknown"), "1 MB"
    return KNOWN.get(name, ("unknown", "unknown"))


def head(words: tuple[str, ...], what: str) -> str:
    """What the head of the YAML of asr-train says, `# time: ...`."""
    lines = Path(words[words.index("--config") + 1]).read_text(encoding="utf-8").splitlines()
    said = [
        line.removeprefix(f"# {what}:").strip() for line in lines if line.startswith(f"# {what}:")
    ]
    return said[0] if said else "unknown; asr-train --check estimates it"


def clock(seconds: float) -> str:
    """Say a time in the unit that suits it.

    >>> clock(40), clock(300), clock(9000)
    ('40 s', '5 min', '2.5 h')
    """
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


@command
def main(argv: list[str]) -> None:
    """Print the plan, one line per step."""
    count = 0
    for step, state in plan(read(argv[0])):
        time, disk = ("", "") if state == "done" else estimate(step)
        count += state != "done"
        details = "".join(
            f"; {name}: {said}" for name, said in (("time", time), ("disk", disk)) if said
        )
        print(f"{state:<8}{step.words[0]} → {step.output}{details}", flush=True)
    logger.info(f"{count} steps to do; times and sizes are estimates" if count else "nothing to do")


if __name__ == "__main__":
    main(sys.argv[1:])
