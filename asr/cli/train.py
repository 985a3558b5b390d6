"""asr-train: a configuration → a trained model folder."""

import atexit
import contextlib
import gc
import os
import signal
import sys
import time

from asr.cli.command import MISTAKE, command, emit, parser, place
from asr.errors import UserError
from asr.logging import logger

WAIT = 30.0  # seconds in which torchrun ends the processes after the first that failed
SPEAKS = os.environ.get("LOCAL_RANK", "0") == "0"  # of torchrun's processes, the first of a machine

EXAMPLES = """Run the same command again to continue an interrupted run; if the run is finished, it does nothing. With
other settings or inputs it starts a new run and keeps the old folder next to the new one.

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


def arguments():
    """Describe the command's arguments."""
    args = parser("asr-train", "Train the model that a YAML file describes.", EXAMPLES)
    args.add_argument(
        "--config", type=place, metavar="YAML", help="the complete settings of the experiment"
    )
    args.add_argument(
        "--gpus",
        metavar="N",
        help="train on N GPUs: training.device=cuda training.processes=N; all: on all GPUs, or on the "
        "CPU if there are none",
    )
    args.add_argument(
        "--print-config", action="store_true", help="print the effective settings as YAML and stop"
    )
    args.add_argument(
        "--schema",
        action="store_true",
        help="print the JSON schema of the settings, for editors, and stop",
    )
    args.add_argument(
        "--check",
        action="store_true",
        help="list all problems in the data, estimate time and memory, and write nothing (a pretrained encoder on "
        "the hub is downloaded into its cache, though)",
    )
    args.add_argument(
        "--test",
        type=place,
        action="append",
        default=[],
        metavar="FILE",
        help="with --check: test data, which must not overlap with train",
    )
    args.add_argument("overrides", nargs="*", metavar="key.path=value", help="settings to change")
    return args


@command
def main(argv):
    """Train, unless the model is finished already."""
    if not SPEAKS:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # ends without a word until training begins
    args = parsed(argv)
    if args.schema:
        from asr import config
        from asr.tasks import Experiment

        return emit(config.schema(Experiment), end="")
    if args.print_config and not args.check:
        from asr import config

        return emit(config.dump(load(args)), end="")
    from asr.training.identity import located

    with reported_once():
        args.overrides = located(args.config, args.overrides)
    if args.check:
        return check(args)
    if due := planned(args):
        from asr.training import run

        # or the interpreter's end looks through all that PyTorch is made of, for seconds
        atexit.register(gc.freeze)
        with ended_with_the_others():
            run.train(*due)


def parsed(argv):
    """Parse and check the arguments."""
    parser_ = arguments()
    args = parser_.parse_intermixed_args(argv)
    if args.schema:
        return args
    if not args.config:
        parser_.error("--config is required")
    if args.gpus not in (None, "all") and not (args.gpus.isdecimal() and int(args.gpus)):
        parser_.error(f"--gpus {args.gpus}: expected a number from 1 on, or all")
    if args.test and not args.check:
        parser_.error("--test needs --check")
    return args


def planned(args):
    """The experiment to train, and its stamp; None if the run's folder is up to date."""
    from asr.training.identity import check_files, stamp_of

    with reported_once():
        stamp = stamp_of(args.config, args.overrides)
    if stamp.is_current():
        return logger.info(f"{stamp.output} is up to date")
    with reported_once():
        check_files(args.config, args.overrides)
        experiment = load(args)
    from asr.training.signals import pass_over_saving

    pass_over_saving()  # there is nothing yet
    return experiment, stamp


@contextlib.contextmanager
def ended_with_the_others():
    """Exit where another process of the training has failed, or tells what is wrong or who stopped it."""
    from asr.training.distributed.group import RaisedElsewhere
    from asr.training.distributed.launch import ProcessFailed

    try:
        yield
    except RaisedElsewhere:
        sys.exit(MISTAKE)
    except ProcessFailed as failed:
        sys.exit(str(failed))
    except KeyboardInterrupt as stopped:
        if SPEAKS:
            raise
        sys.exit(getattr(stopped, "status", 130))


@contextlib.contextmanager
def reported_once():
    """Leave a mistake that all processes of torchrun meet to the first of each machine, at whose end torchrun ends all.

    One that only the others meet is reported after WAIT seconds.
    """
    try:
        yield
    except UserError:
        if not SPEAKS:
            time.sleep(WAIT)
        raise


def load(args):
    """Read the settings, and have them employ the GPUs of --gpus: all are no more than have a batch of a step."""
    from asr import config
    from asr.tasks import Experiment

    def read(*more):
        return config.load(Experiment, args.config, [*args.overrides, *more])

    count = args.gpus
    if count == "all":
        from asr.training.distributed import launch

        count = launch.employable(read().training)
    return read("training.device=cuda", f"training.processes={count}") if count else read()


def check(args):
    """Print what is wrong and what the training will take; exit with status 2 if training would refuse."""
    from asr.preflight import check

    report = check.check(load(args), args.test, progress=True)
    emit(report.text(), end="")
    return MISTAKE if report.refused else 0


if __name__ == "__main__":
    main()
