"""Transcribe a folder of sound files on a Ray cluster; lines of JSON as asr-decode --json writes them.

    pip install "asr-toolkit[cluster]"
    python -m scripts.ray_decode exp/mine/model recordings/ out.json --actors 8 [--gpus 1] [--mode ctc-greedy]

Every machine needs the toolkit, and the model and the recordings under the same paths. A recording
that can't be transcribed is listed in OUT.failed.tsv.
"""

import argparse
import json
from pathlib import Path

import ray

from asr import failures, load
from asr.audio import containers
from asr.audio import load as audio
from asr.failures import Failure
from asr.files import write_text
from asr.transcription import SearchOptions
from asr.transcription.pipeline import finished
from asr.transcription.recordings import find_readable


class Transcriber:
    """An actor: loads the model once, then transcribes batches of paths."""

    def __init__(self, model: str, mode: str):
        self.recognizer, self.options = load(model), SearchOptions(mode=mode)

    def __call__(self, batch: dict) -> dict:
        """Return a line for each path: a transcript, or {"failed": [id, path, reason]}."""
        with containers.decoding():
            recordings, lost = find_readable(list(batch["path"]))
            results = finished(self.recognizer, recordings, self.options, times=True)
            found = {recording.id: result for recording, result in results}
        found |= {failure.id: failure for failure in lost}
        return {"line": [line(found[path]) for path in batch["path"]]}


def line(result) -> str:
    """Write a transcript or a failure as JSON."""
    failed = isinstance(result, Failure)
    values = {"failed": [result.id, result.path, result.reason]} if failed else result.as_json()
    return json.dumps(values, ensure_ascii=False)


def main() -> None:
    """Transcribe, in the order of the paths."""
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "recordings", "out"):
        args.add_argument(name)
    args.add_argument("--actors", type=int, default=1)
    args.add_argument("--gpus", type=float, default=0, help="of an actor")
    args.add_argument("--mode", default="joint")
    args.add_argument(
        "--batch", type=int, default=256, help="recordings that an actor takes at once"
    )
    args = args.parse_args()
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    paths = [{"path": str(path)} for path in audio.find(Path(args.recordings).absolute())]
    rows = ray.data.from_items(paths).map_batches(
        Transcriber,
        fn_constructor_args=(str(Path(args.model).absolute()), args.mode),
        batch_size=args.batch,
        concurrency=args.actors,
        num_gpus=args.gpus,
    )
    lines = [row["line"] for row in rows.iter_rows()]
    lost = [json.loads(one)["failed"] for one in lines if one.startswith('{"failed"')]
    write_text(args.out, "".join(f"{one}\n" for one in lines if not one.startswith('{"failed"')))
    failures.write(Path(f"{args.out}.failed.tsv"), [Failure(*facts) for facts in lost])


if __name__ == "__main__":
    main()
