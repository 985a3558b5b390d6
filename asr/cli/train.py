"""asr-train: a configuration → a trained model folder."""

from asr.cli.command import command, parser, say

EXAMPLES = """The same command again continues a run that was stopped, and does nothing when the run is finished. With
other settings or inputs it begins anew and keeps the old folder beside the new one.

examples:
  asr-train --config conf/an4.yaml out=exp/an4
  asr-train --config conf/an4.yaml out=exp/wide model.encoder.d_model=384 training.device=cuda
  asr-train --config conf/librispeech100.yaml --gpus 4 training.accumulate=4
  torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \\
      -m asr.cli.train --config conf/librispeech100.yaml training.accumulate=16
  asr-train --config conf/an4.yaml --print-config
  asr-train --config conf/an4.yaml --check --test data/an4/test.jsonl.gz
  asr-train --config conf/lm.yaml data.train=train.txt data.dev=dev.txt tokenizer=exp/an4/tokenizer out=exp/an4/lm
"""

# settings that change how a run is computed, not what comes out
HOW = "device processes shard activation_checkpointing compile keep save_minutes save_steps log_every"
IMMATERIAL = [("data", "workers"), ("data", "tokens"), *(("training", key) for key in HOW.split())]


def arguments():
    """Describe the command's arguments."""
    args = parser("asr-train", "Train a model as a YAML file describes it.", EXAMPLES)
    args.add_argument("--config", metavar="YAML", help="the experiment, complete")
    args.add_argument(
        "--gpus",
        metavar="N",
        help="train on N GPUs: training.device=cuda training.processes=N; all: on those there are, or else on the CPU",
    )
    args.add_argument("--print-config", action="store_true", help="print the effective settings as YAML and stop")
    args.add_argument(
        "--schema", action="store_true", help="print the JSON schema of the settings, for editors, and stop"
    )
    args.add_argument(
        "--check", action="store_true", help="list all problems of the data, tell time and memory, and write nothing"
    )
    args.add_argument(
        "--test", action="append", default=[], metavar="FILE", help="with --check: data that train must not share"
    )
    args.add_argument("overrides", nargs="*", metavar="key.path=value", help="settings to change")
    return args


@command
def main(argv):
    """Train, unless the model is finished already."""
    parser_ = arguments()
    args = parser_.parse_intermixed_args(argv)
    if args.schema:
        from asr import config, experiment

        return print(config.schema(experiment.Experiment), end="")
    if not args.config:
        parser_.error("--config is required")
    if args.gpus not in (None, "all") and not (args.gpus.isdecimal() and int(args.gpus)):
        parser_.error(f"--gpus {args.gpus}: expected a number from 1 on, or all")
    if args.test and not args.check:
        parser_.error("--test needs --check")
    if args.check:
        return check(args)
    if args.print_config:
        from asr import config

        return print(config.dump(load(args)), end="")
    stamp = identity(args.config, args.overrides)
    if stamp.is_current():
        return say(f"{stamp.output} is up to date")
    from asr.training.signals import pass_over_saving

    pass_over_saving()  # there is nothing yet
    from asr import run

    run.train(load(args), stamp)


def load(args):
    """Read the settings, and have them employ the GPUs of --gpus: all are no more than have a batch of a step."""
    from asr import config, experiment

    def read(*more):
        return config.load(experiment.Experiment, args.config, [*args.overrides, *more])

    count = args.gpus
    if count == "all":
        from asr.training import processes

        count = processes.employable(read().training)
    return read("training.device=cuda", f"training.processes={count}") if count else read()


def check(args):
    """Print what is wrong and what the training will take; exit with status 2 if training would refuse."""
    import sys

    from asr.preflight import check

    report = check.check(load(args), args.test, progress=True)
    print(report.text(), end="")
    if report.refused:
        sys.exit(2)


def identity(path, overrides):
    """Make the stamp of a run: its settings and the content of what it reads; torch is not needed for that."""
    import os

    from asr.stamp import Stamp
    from asr.tree import read_tree

    tree, _ = read_tree(path, overrides)
    data = tree.get("data") if isinstance(tree.get("data"), dict) else {}
    tokenizer = str(tree.get("tokenizer"))
    names = ("tokenizer.json", "bpe.model")
    inputs = [*manifests(data), *(os.path.join(tokenizer, n) for n in names)]
    if tree.get("init_from"):
        inputs += [os.path.join(str(tree["init_from"]), n) for n in ("model.safetensors", *names)]
    facts = {k: dict(v) if isinstance(v, dict) else v for k, v in tree.items() if k != "out"}
    for section, key in IMMATERIAL:
        if isinstance(facts.get(section), dict):
            facts[section].pop(key, None)
    return Stamp(str(tree.get("out", "")) or ".", "asr-train", {"settings": facts}, [str(i) for i in inputs])


def manifests(data):
    """List what the settings of the data name: train, dev, and the recordings of augmentation."""
    augment = data.get("augment")
    effects = augment.values() if isinstance(augment, dict) else []
    drawn = [effect["manifest"] for effect in effects if isinstance(effect, dict) and "manifest" in effect]
    train = data.get("train")
    return [*(train if isinstance(train, list) else [train]), data.get("dev"), *drawn]


if __name__ == "__main__":
    main()
