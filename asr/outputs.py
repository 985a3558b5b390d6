"""What a command may write over: nothing but earlier work of its own.

An output never replaces an input, whatever the person says; it replaces somebody else's file only
if they say so. A file is a command's own if its stamp names the command, or if it is of a kind that
nothing else makes.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from asr.audio import archive
from asr.errors import UserError
from asr.files import check_file
from asr.stamp import maker

STDOUT = "-"
# beside outputs
OWN_MARKS = re.compile(
    r"\..*\.(stamp\.json|journal|begun)|\.stamp\.json|\.lock|\.held|\.partial-.*"
)


def check_output(
    option: str,
    path: str | os.PathLike,
    command: str,
    inputs: Iterable[str | os.PathLike] = (),
    force: bool = False,
    ours: Callable[[Path], bool] = lambda path: False,
) -> None:
    """See that a command may write a file.

    option    what the person calls it, for the message
    command   that writes it: what its stamp names is its own
    inputs    files and folders that the command reads
    force     whether the person lets it replace a file that isn't the command's own
    ours      tells the command's own files that have no stamp
    raises    UserError if the path is a folder or a device, an input, or somebody else's file
    """
    check_file(path)
    if OWN_MARKS.fullmatch(os.path.basename(path)):
        raise UserError(
            f"{option} {os.fspath(path)}: is the name of a mark of this toolkit's; choose another name"
        )
    if not os.path.exists(path):
        return
    own, state = maker(path) == command or ours(Path(path)), os.stat(path)
    for given in inputs:
        if is_same(state, given) or (not own and lies_in(path, given)):
            raise UserError(
                f"{option} {os.fspath(path)}: is an input ({given}); choose another name"
            )
    if not own and not force:
        raise UserError(
            f"{option} {os.fspath(path)}: is there already, and {command} did not make it; choose another name, or "
            "add --force to replace it"
        )


def check_plain(option: str, path: str) -> None:
    """See that the name of an output doesn't promise a packed file.

    raises   UserError
    """
    if path.endswith(".gz"):
        raise UserError(f"{option}: {path} would be plain text, not packed; leave out .gz")


def check_folder(
    option: str,
    folder: str | os.PathLike,
    files: Iterable[str],
    command: str,
    inputs: Iterable[str | os.PathLike] = (),
    force: bool = False,
) -> None:
    """See that a command may write files of these names into a folder; as `check_output`, whose stamp is the folder's.

    raises    UserError if one of them is an input, or somebody else's file
    """
    if not os.fspath(folder) or "\0" in os.fspath(folder):
        raise UserError(f"{option}: got {os.fspath(folder)!r}, expected the name of a folder")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UserError(
            f"{option} {folder}: is a file; expected a folder, or the name of one to make"
        )
    made = maker(folder) if os.path.isdir(folder) else None
    for name in files:
        check_output(
            option, os.path.join(folder, name), command, inputs, force, lambda path: made == command
        )


def check_inputs(paths: Iterable[str | os.PathLike]) -> None:
    """See that files or folders to read are there, before anything heavy is imported.

    raises    UserError that names the first that isn't
    """
    for path in paths:
        if not os.fspath(path) or "\0" in os.fspath(path):
            raise UserError(f"got {os.fspath(path)!r}, expected the name of a file to read")
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            raise UserError(
                f"{path}: {(error.strerror or 'not found').lower()}; expected a file to read"
            ) from None
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise UserError(f"{path}: is a device or a pipe; expected a file")


def is_same(state: os.stat_result, path: str | os.PathLike) -> bool:
    """Whether a path names the file of this state, by links too; of a part of an archive, the archive."""
    within = archive.place(path)
    try:
        return os.path.samestat(state, os.stat(within.archive if within else path))
    except (OSError, ValueError):
        return False


def lies_in(path: str | os.PathLike, folder: str | os.PathLike) -> bool:
    """Whether a path lies in a folder, at any depth."""
    if archive.place(folder) or not os.path.isdir(folder):
        return False
    inside, outside = os.path.realpath(path), os.path.realpath(folder)
    return os.path.commonpath([inside, outside]) == outside
