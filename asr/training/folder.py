"""A run's folder: whose it is, whether the run goes on from it, and what it says of the run's sessions."""

import json
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO

from asr import __version__
from asr.errors import UserError
from asr.files import lock, make_folder, write_text
from asr.logging import logger
from asr.models.folder import VERSIONS
from asr.stamp import Stamp
from asr.training.checkpoint import Checkpoints
from asr.training.session import STATES

RUN = "run.json"  # which run a folder is of
# files that are nobody's work
IGNORED = (
    ".lock",
    ".held",
    ".partial-",
    ".DS_Store",
    ".gitkeep",
    ".gitignore",
    ".nfs",
)
LOGS = (".log", ".out", ".err")  # which a shell or a scheduler may write there


def has_checkpoint(out: Path) -> bool:
    """Whether a run's folder holds a state to continue from."""
    return bool(Checkpoints(out / STATES, 1, logger.info).paths())


def continues(out: Path, stamp: Stamp) -> bool:
    """Whether the run goes on from a checkpoint, and doesn't begin anew."""
    record = record_of(out)
    return (
        record.exists()
        and record.read_text(encoding="utf-8") == facts_of(stamp)
        and has_checkpoint(out)
    )


def record_of(out: Path) -> Path:
    """The file that tells which run a folder is of; earlier versions named it otherwise."""
    earlier = out / "begun.json"
    return earlier if earlier.is_file() and not (out / RUN).exists() else out / RUN


def facts_of(stamp: Stamp) -> str:
    """What a run's folder is known by."""
    return json.dumps(stamp.facts, indent=1) + "\n"


def check_folder(out: Path) -> None:
    """Refuse a folder with files that are no training's.

    What systems leave there (IGNORED), and logs, don't count.

    raises   UserError if it holds files and no `run.json`
    """
    record = record_of(out)
    try:
        names = sorted(
            name
            for name in os.listdir(out)
            if not (name.startswith(IGNORED) or name.endswith(LOGS))
        )
        if record.is_file() or not names:
            return
    except (FileNotFoundError, NotADirectoryError):  # making it tells
        return
    except OSError as error:
        raise UserError(
            f"out: {out}: can't be read ({error.strerror}); choose another out="
        ) from None
    found = record if RUN in names else out / names[0]
    raise UserError(
        f"out: {out}: is no training's folder, for it holds {found}; choose another out=, or an empty one"
    )


def open_folder(out: Path, stamp: Stamp) -> tuple[Path, IO]:
    """Open the run's folder: a new one, the same run's, or a new one after moving another run's aside.

    returns  the folder, and its lock, which lasts as long as this file is open
    raises   UserError if the folder can't be written, or another process is training in it
    """
    locked, facts = lock(make_folder(out)), facts_of(stamp)
    record = record_of(out)
    if record.exists() and record.read_text(encoding="utf-8") != facts:
        aside = next(
            p
            for n in range(1, 10_000)
            if not (p := out.with_name(f"{out.name}.before-{n}")).exists()
        )
        try:
            out.rename(aside)
        except OSError as error:
            raise UserError(
                f"{out}: holds another run, and can't be renamed ({error.strerror}); choose another out="
            ) from None
        logger.info(f"{out} holds a run with other settings or inputs: it is kept as {aside}")
        locked = lock(make_folder(out))
    write_text(record_of(out), facts)
    return out, locked


def added(out: Path, name: str, now: str) -> str:
    """Add a fact of this session to those that `versions.json` has of a run's earlier ones."""
    try:
        before = json.loads((out / VERSIONS).read_text(encoding="utf-8"))[name].split("; ")
    except (OSError, ValueError, KeyError, AttributeError):
        before = []
    return "; ".join(dict.fromkeys([*before, now]))


def versions(device: str, seed: int) -> dict:
    """What the run was computed with."""
    installed = {}
    for name in ("torch", "soundfile", "soxr", "sentencepiece", "numpy"):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            installed[name] = "unknown"
    return {
        "asr": __version__,
        "python": platform.python_version(),
        **installed,
        "device": device,
        "seed": seed,
    }
