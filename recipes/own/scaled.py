"""Settings for somebody's own corpus, scaled by its hours: a complete YAML, and what its tokens should be.

    python recipes/own/scaled.py DATA EXP [--init-from MODEL | --pretrained SOURCE]

Reads DATA/train.jsonl.gz and DATA/dev.jsonl.gz, writes EXP/config.yaml, and prints the options of asr-tokenizer for
EXP/tokenizer, which is made of the texts of both. The settings are those of the file in conf/ that was made for about
as much speech (TIERS); epochs, and what is counted in epochs or steps, are scaled so that the model sees about as much
speech in all as it does there. With --init-from the features and the model are those of that model's folder, so that
all its weights fit, and the training begins with them. With --pretrained the settings are those of
conf/pretrained.yaml, with this source; steps and masks are those with which wav2vec 2.0 was fine-tuned on about as much
speech (FINE_TUNING).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from pathlib import Path

from asr import yaml_tree
from asr.cli.command import command, parser
from asr.data import manifest
from asr.data.statistics import Statistics
from asr.errors import UserError
from asr.files import make_folder, write_text
from asr.hub import find_model
from asr.logging import logger
from asr.model_files import kind_of
from asr.text.normalize import normalize
from asr.text.units import mostly_spaceless

CONF = Path(__file__).parents[2] / "conf"
MOST_TOKENS = 5000
FEWER, MORE = 1 / 3, 2  # epochs, of those in conf/


@dataclass(frozen=True)
class Tier:
    """Corpora of up to `below` hours of training speech, the configuration for them, and the hours it was made for."""

    below: float
    name: str
    hours: float


FLAT = "flat_start_epochs"
TIERS = (
    Tier(2, "an4", 0.63),
    Tier(25, "english", 6.40),
    Tier(300, "librispeech100-e_branchformer", 100.6),
    Tier(inf, "librispeech960-e_branchformer", 960.9),
)


@dataclass(frozen=True)
class FineTuning:
    """Corpora of up to `below` hours: how wav2vec 2.0 was fine-tuned on `hours`.

    steps          of the optimizer
    time_ratio     of an utterance's frames that masks would cover, if none overlapped
    feature_ratio  of the features, likewise
    """

    below: float
    hours: str
    steps: int
    time_ratio: float
    feature_ratio: float


# Baevski et al. 2020, appendix B, table 6: updates, and the probabilities that a mask begins, times its width (10 and
# 64). The encoder is frozen in the first 10,000. Limits lie between its hours, by their ratios.
FINE_TUNING = (
    FineTuning(0.4, "ten minutes", 12_000, 0.75, 0.51),
    FineTuning(3, "one hour", 13_000, 0.75, 0.26),
    FineTuning(30, "ten hours", 20_000, 0.65, 0.26),
    FineTuning(inf, "a hundred hours", 50_000, 0.5, 0.51),
)
WARMUP = 0.1  # share of all steps
VALIDATIONS = 40


def fine_tuning_of(hours: float) -> FineTuning:
    """The fine-tuning for a corpus."""
    return next(one for one in FINE_TUNING if hours < one.below)


def tier_of(hours: float) -> Tier:
    """The tier of a corpus."""
    return next(tier for tier in TIERS if hours < tier.below)


def settings(hours: float, data: str, exp: str) -> dict:
    """Make the plain tree of settings for some hours of training speech; data and exp: folders."""
    tier = tier_of(hours)
    made = placed(tier.name, data, exp)
    training, schedule, masks, joined = (
        made["training"],
        made["schedule"],
        made["features"]["specaugment"] or {},
        made["data"].get("concatenate") or {},
    )
    share = min(max(tier.hours / hours, FEWER), MORE)
    steps = min(1.0, share * hours / tier.hours)
    counted = (
        (training, "epochs"),
        (training, "validate_every"),
        (masks, "from_epoch"),
        (joined, "from_epoch"),
        (made["model"], FLAT),
    )
    for part, name in counted:
        if part.get(name):
            part[name] = max(1, round(share * part[name]))
    schedule["warmup"] = max(1, round(steps * schedule["warmup"]))
    return made


def pretrained(hours: float, source: str, data: str, exp: str) -> dict:
    """Make the plain tree of settings for a pretrained encoder; source: folder, or name on the hub.

    The number of steps is given, and that of epochs follows. Their audio is that of the file, not the paper's.
    """
    tuning, made = fine_tuning_of(hours), placed("pretrained", data, exp)
    training, encoder = made["training"], made["model"]["encoder"]
    step = made["data"]["batch_seconds"] * training["accumulate"]  # seconds of audio
    per_epoch = ceil(3600 * hours / step)
    training["epochs"] = ceil(tuning.steps / per_epoch)
    training["validate_every"] = max(1, training["epochs"] // VALIDATIONS)
    made["schedule"]["warmup"] = round(WARMUP * tuning.steps)
    encoder["source"] = source
    encoder["mask"] |= {"time_ratio": tuning.time_ratio, "feature_ratio": tuning.feature_ratio}
    return made


def placed(name: str, data: str, exp: str) -> dict:
    """Read a file of conf/, with the folders of a corpus and of a training."""
    made, _ = yaml_tree.read_tree(CONF / f"{name}.yaml")
    made |= {"out": f"{exp}/model", "tokenizer": f"{exp}/tokenizer"}
    made["data"] |= {"train": f"{data}/train.jsonl.gz", "dev": f"{data}/dev.jsonl.gz"}
    return made


def tokens(texts: Sequence[str], others: Sequence[str] = ()) -> tuple[str, int | None]:
    """Kind and size of the tokens of training texts, and of other texts that are to be written in them, too.

    Characters for scripts without spaces between words, else BPE. The size grows with the root of the number of words
    of training, so that AN4 has 110, LibriSpeech's 960 h 5000; it is bounded by the characters and words there are.
    """
    if mostly_spaceless(texts):
        return "characters", None
    words = [word for text in texts for word in normalize(text).split()]
    kinds = {*words, *(word for text in others for word in normalize(text).split())}
    least = len(set("".join(kinds))) + 3  # the space, the blank, and the start and end symbol
    most = least + sum(word.isalpha() for word in kinds)  # each of them can become a token
    return "bpe", min(
        max(_two_digits(1.8 * sqrt(len(words))), least), most, max(least, MOST_TOKENS)
    )


def _two_digits(x: float) -> int:
    """Round to two significant digits."""
    return int(float(f"{x:.1e}"))


def origin(hours: float, pretrained: bool) -> tuple[str, str]:
    """The file in conf/ that the settings are based on, and what it was made for."""
    if pretrained:
        return "pretrained", f"as wav2vec 2.0 was fine-tuned on {fine_tuning_of(hours).hours}"
    tier = tier_of(hours)
    return tier.name, f"for {tier.hours:g} h"


def header(hours: float, name: str, made_for: str, config: str) -> str:
    """The comment that opens the YAML."""
    return f"""# {hours:.2f} h of training speech: conf/{name}.yaml, {made_for}, with epochs,
# and what counts in epochs and steps, scaled. Written anew each time by recipes/own/scaled.py: change a copy, or give
# key.path=value.
#   asr-train --config {config}
"""


@command
def main(argv):
    """Write the YAML, print the tokenizer's options."""
    args = parser("scaled.py", "Scale a training's settings by the hours of its corpus.", __doc__)
    args.add_argument("data", metavar="DATA")
    args.add_argument("exp", metavar="EXP")
    begin = args.add_mutually_exclusive_group()
    begin.add_argument(
        "--init-from",
        metavar="MODEL",
        help="model whose weights to begin with: a folder, or owner/name on the Hugging Face Hub",
    )
    begin.add_argument(
        "--pretrained",
        metavar="SOURCE",
        help="encoder that others have trained: a folder, or owner/name on the Hugging Face Hub",
    )
    args = args.parse_args(argv)
    utterances = list(manifest.read(Path(args.data) / "train.jsonl.gz"))
    counts, config = Statistics.of(utterances), Path(args.exp) / "config.yaml"
    made = settings(counts.hours, args.data, args.exp)
    if args.pretrained:
        made = pretrained(counts.hours, args.pretrained, args.data, args.exp)
    if args.init_from:
        folder = find_model(args.init_from)
        theirs, _ = yaml_tree.read_tree(Path(folder) / "config.yaml")
        if kind_of(folder) != "hybrid":
            raise UserError(f"--init-from {args.init_from}: is no recognizer; give one")
        flat, masks = made["model"].get(FLAT, 0), made["features"]["specaugment"] or {}
        made |= {name: theirs[name] for name in ("features", "model")} | {
            "init_from": args.init_from
        }
        made["model"][FLAT] = flat  # the schedule is this training's own
        if tuning := made["model"].get("fine_tuning"):
            tuning["freeze_steps"] = 0  # nothing of the model is new
        if made["features"]["specaugment"]:
            made["features"]["specaugment"]["from_epoch"] = masks.get("from_epoch", 0)
    dev = Path(args.data) / "dev.jsonl.gz"
    others = [utterance.text for utterance in manifest.read(dev)] if dev.exists() else []
    kind, size = tokens([utterance.text for utterance in utterances], others)
    make_folder(args.exp)
    name, made_for = origin(counts.hours, bool(args.pretrained))
    write_text(config, header(counts.hours, name, made_for, str(config)) + yaml_tree.write(made))
    epochs = made["training"]["epochs"]
    logger.info(
        f"{config}: for {counts.hours:.2f} h of speech, after conf/{name}.yaml, {epochs} epochs"
    )
    print(f"--kind {kind}" + (f" --size {size}" if size else ""))


if __name__ == "__main__":
    main()
