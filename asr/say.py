"""Words to the person at the terminal; results go to stdout, these to stderr."""

import sys


def say(message: str) -> None:
    """Say something above any progress bar."""
    from tqdm import tqdm

    tqdm.write(message, file=sys.stderr)
