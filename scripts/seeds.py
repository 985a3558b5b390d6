"""How much of a result is luck: a recipe's training from several seeds, and the mean and spread of their error rates.

    python -m scripts.seeds NAME SET [key.path=value ...] --seeds 1 2 3 [--decode "--ctc-weight 0.7 ..."]

conf/NAME.yaml is trained on data/NAME with exp/NAME/tokenizer, which recipes/NAME/run.sh makes, and
decodes data/NAME/SET.jsonl.gz by joint search. The seed of the YAML is the recipe's own model,
exp/NAME/model; each other one has a folder of its own, exp/NAME/seed-N. The same command again
continues where it was stopped, and passes over what is finished. --decode: the options that the
recipe gives asr-decode. Settings that change the result move the recipe's own model aside
(model.before-1), and they or another --decode replace its SET.joint.txt.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from asr import config
from asr.cli.command import command, parser
from asr.scoring.report import UNITS, Score, percent, score
from asr.tasks import Experiment
from scripts import add_decode
from scripts.ablation import run


def one(
    manifest: Path, folder: Path, recipe: Path, options: Sequence[str], overrides: Sequence[str]
) -> Score:
    """Train a model in folder/model, decode the manifest and score, as far as that isn't done."""
    text = folder / f"{manifest.name.removesuffix('.jsonl.gz')}.joint.txt"
    run("train", "--config", recipe, *overrides, f"out={folder / 'model'}")
    run(
        "decode",
        "--model",
        folder / "model",
        "--manifest",
        manifest,
        "--mode",
        "joint",
        *options,
        "--out",
        text,
    )
    return next(iter(score(manifest, text).scores.values()))


def summary(rates: Sequence[float]) -> str:
    """Mean and sample standard deviation, in percent.

    >>> summary([0.10, 0.12, 0.11])
    'mean 11.00, standard deviation 1.00, 10.00 to 12.00'
    """
    spread = percent(statistics.stdev(rates)) if len(rates) > 1 else "-"
    return f"mean {percent(statistics.mean(rates))}, standard deviation {spread}, " + (
        f"{percent(min(rates))} to {percent(max(rates))}"
    )


@command
def main(argv):
    """Run the seeds one after the other, and tell each as it is done."""
    args = parser(
        "seeds.py",
        "Train a recipe from several seeds; tell the mean and spread of its error rates.",
        __doc__,
    )
    args.add_argument(
        "name", metavar="NAME", help="of a recipe: conf/NAME.yaml, data/NAME, exp/NAME"
    )
    args.add_argument("set", metavar="SET", help="of its test sets")
    args.add_argument("--seeds", type=int, nargs="+", required=True, metavar="N")
    add_decode(args)
    args.add_argument("overrides", nargs="*", metavar="key.path=value")
    args = args.parse_intermixed_args(argv)
    recipe, exp = Path(f"conf/{args.name}.yaml"), Path(f"exp/{args.name}")
    manifest, rates = Path(f"data/{args.name}/{args.set}.jsonl.gz"), []
    own = config.load(Experiment, recipe, args.overrides).seed
    for seed in args.seeds:
        folder = exp if seed == own else exp / f"seed-{seed}"
        found = one(manifest, folder, recipe, args.decode, [*args.overrides, f"seed={seed}"])
        rates.append(found.total.rate)
        print(f"seed {seed}: {found.line()}", flush=True)
    print(f"{UNITS[found.unit]} % of {len(rates)} seeds: {summary(rates)}")


if __name__ == "__main__":
    main()
