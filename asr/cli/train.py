"""asr-train: a configuration → a trained model folder."""

from asr.cli.command import command, parser, say

EXAMPLES = """The same command again continues a run that was stopped, and does nothing when the run is finished. With
other settings or inputs it begins anew and keeps the old folder beside the new one.

examples:
  asr-train --config conf/an4.yaml out=exp/an4
  asr-train --config conf/an4.yaml out=exp/wide model.encoder.d_model=384 training.device=cuda
  asr-train --config conf/an4.yaml --print-config
  asr-train --config conf/lm.yaml data.train=train.txt data.dev=dev.txt tokenizer=exp/an4/tokenizer out=exp/an4/lm
"""

# settings that change how a run is computed, not what comes out
IMMATERIAL = [("data", "workers"), ("training", "device"), ("training", "processes"), ("training", "save_minutes")]


def arguments():
    """Describe the command's arguments."""
    args = parser("asr-train", "Train a model as a YAML file describes it.", EXAMPLES)
    args.add_argument("--config", metavar="YAML", help="the experiment, complete")
    args.add_argument("--print-config", action="store_true", help="print the effective settings as YAML and stop")
    args.add_argument(
        "--schema", action="store_true", help="print the JSON schema of the settings, for editors, and stop"
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
    if args.print_config:
        from asr import config, experiment

        return print(config.dump(config.load(experiment.Experiment, args.config, args.overrides)), end="")
    stamp = identity(args.config, args.overrides)
    if stamp.is_current():
        return say(f"{stamp.output} is up to date")
    from asr import config, experiment

    experiment.train(config.load(experiment.Experiment, args.config, args.overrides), stamp)


def identity(path, overrides):
    """Make the stamp of a run: its settings and the content of what it reads; torch is not needed for that."""
    import os

    from asr.stamp import Stamp
    from asr.tree import read_tree

    tree, _ = read_tree(path, overrides)
    data = tree.get("data") if isinstance(tree.get("data"), dict) else {}
    tokenizer = str(tree.get("tokenizer"))
    inputs = [
        data.get("train"),
        data.get("dev"),
        *(os.path.join(tokenizer, n) for n in ("tokenizer.json", "bpe.model")),
    ]
    facts = {k: dict(v) if isinstance(v, dict) else v for k, v in tree.items() if k != "out"}
    for section, key in IMMATERIAL:
        if isinstance(facts.get(section), dict):
            facts[section].pop(key, None)
    return Stamp(str(tree.get("out", "")) or ".", "asr-train", {"settings": facts}, [str(i) for i in inputs])


if __name__ == "__main__":
    main()
