"""Where a benchmark writes its figures."""

import argparse
from pathlib import Path

from asr.errors import UserError
from asr.files import make_folder


def output(path: str) -> str:
    """Read an argument that names a file to write; its folder is made before anything is measured, not after.

    raises   argparse.ArgumentTypeError if that can't be, which names the reason
    """
    try:
        make_folder(Path(path).parent)
    except UserError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path
