"""The work of soak_resume.sh: python3 -m scripts.soak_resume FOLDER KILLS SEED [key=value ...]"""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(
    0, str(Path(__file__).resolve().parent.parent / "tests")
)  # the constructed corpus lives there

# a step takes milliseconds, writing the state of 1.6 M parameters tens of them
SETTINGS = [
    "training.epochs=40",
    "training.save_steps=1",
    "training.ema=0.99",
    "model.encoder.ff=12000",
]


def start(root: Path, out: Path, overrides: list[str], log) -> subprocess.Popen:
    """Begin a run, or continue it."""
    command = [
        sys.executable,
        "-m",
        "asr.cli.train",
        "--config",
        root / "x.yaml",
        f"out={out}",
        *SETTINGS,
        *overrides,
    ]
    return subprocess.Popen(list(map(str, command)), stderr=log, start_new_session=True)


def states(out: Path) -> list[Path]:
    """The training states, newest first."""
    return sorted((out / "checkpoints").glob("state-*"), reverse=True)


def soak(root: Path, kills: int, seed: int, overrides: list[str], log) -> tuple[int, int]:
    """Kill runs until `kills` are done; how many kills there were, and how many fell into the writing of a state."""
    out, draw, writing, done = root / "killed", random.Random(seed), 0, 0
    while done < kills:
        process = start(root, out, overrides, log)
        before = states(out)[:1]
        while process.poll() is None and states(out)[:1] == before:  # it has begun to train
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.4))
        if process.poll() is not None:
            break
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done += 1
        left = list((out / "checkpoints").glob(".partial-*"))
        writing += bool(left)
        print(
            f"kill {done:3d}: {states(out)[0].name if states(out) else 'no state'}{', writing' * bool(left)}",
            flush=True,
        )
    if process.poll() is None or process.returncode < 0:
        process = start(root, out, overrides, log)
    if process.wait():
        sys.exit(
            f"soak_resume: the continued run ended with status {process.returncode}; the end of {log.name} says why"
        )
    return done, writing


def main() -> None:
    """Run both, and compare."""
    from runs import make_root

    root, kills, seed, overrides = (
        Path(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4:],
    )
    make_root(root)
    with open(root / "log", "w") as log:
        if start(root, root / "whole", overrides, log).wait():
            sys.exit(
                f"soak_resume: the uninterrupted run has failed:\n{(root / 'log').read_text()[-2000:]}"
            )
        done, writing = soak(root, kills, seed, overrides, log)
    whole, killed = (
        (root / name / "model.safetensors").read_bytes() for name in ("whole", "killed")
    )
    print(
        f"{done} kills, {writing} of them while a state was being written; weights {len(whole)} bytes: ",
        end="",
    )
    print(
        "equal to the uninterrupted run's"
        if whole == killed
        else "NOT EQUAL to the uninterrupted run's"
    )
    if whole != killed or done < kills:
        sys.exit(1)


if __name__ == "__main__":
    main()
