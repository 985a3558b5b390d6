"""Commands with faults, by which tests/test_bad_inputs.py shows that it finds them."""

import sys
import time
from pathlib import Path


def main():
    fault = sys.argv[0].removeprefix("planted-")
    print("x.txt: bad; choose another", file=sys.stderr)
    if fault == "traceback":
        raise ValueError("x.txt")
    if fault == "overwriting":
        Path("x.txt").write_text("other")
    if fault == "removing":
        Path("x.txt").unlink()
    if fault == "leaving":
        Path(".partial-12-out").write_text("half")
    if fault == "hanging":
        time.sleep(100)
    if fault == "eating":
        print(len(bytearray(8 << 30)))
    if fault == "succeeding":
        return
    if fault == "opening":
        open("closed.txt").close()
    if fault == "filling":
        Path("out").write_text("x" * 1000)
    sys.exit(2)
