"""Let the mini model transcribe three test recordings, and show them beside their references."""

import subprocess
import sys

from asr.cli.command import command
from asr.data import manifest

CAUTION = """
This model has heard espeak-ng's voices and a grammar of under 800 words, nothing else. It knows no other word, no
human voice, no far microphone: your recordings need a model trained on human speech (recipes/librispeech, or your own).
"""


@command
def main(argv):
    """Decode as anybody would; what asr-decode says is shown where it fails."""
    utterances = list(manifest.read("data/mini/test-mini.jsonl.gz"))
    utterances = utterances[:: max(len(utterances) // 3, 1)][:3]
    asked = [
        "asr-decode",
        "--model",
        "exp/mini/model",
        "--device",
        "cpu",
        *(str(u.path) for u in utterances),
    ]
    done = subprocess.run(asked, capture_output=True, encoding="utf-8")
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)
    heard = dict(line.split("\t") for line in done.stdout.splitlines())
    for u in utterances:
        print(f"\n{u.path}\n  said:  {u.text}\n  heard: {heard[str(u.path)]}")
    print(CAUTION, end="")


if __name__ == "__main__":
    main()
