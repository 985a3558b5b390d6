"""Refuse a pretrained encoder that can't be trained, before the corpus is prepared.

    python recipes/own/source.py SOURCE [key.path=value ...]

SOURCE is a folder in transformers' format, or a name on the Hugging Face Hub, from which what isn't here is downloaded.
It must suit the settings of conf/pretrained.yaml with these changes.
"""

import json
from pathlib import Path

from asr import config
from asr.cli.command import command, parser
from asr.logging import logger
from asr.tasks import Experiment

CONF = Path(__file__).parents[2] / "conf/pretrained.yaml"


@command
def main(argv):
    """Read the source's descriptions, and look for its weights."""
    args = parser("source.py", "Check the source of a pretrained encoder.", __doc__)
    args.add_argument("source", metavar="SOURCE")
    args.add_argument("overrides", nargs="*", metavar="key.path=value")
    args = args.parse_args(argv)
    named = f"model.encoder.source={json.dumps(args.source, ensure_ascii=False)}"  # quoted, whatever it is
    experiment = config.load(Experiment, CONF, [named, *args.overrides])
    encoder = experiment.resolved().model.encoder
    encoder.find().parts()
    made = encoder.architecture
    logger.info(
        f"{args.source}: {made.model_type}, {made.num_hidden_layers} layers of {made.hidden_size}"
    )


if __name__ == "__main__":
    main()
