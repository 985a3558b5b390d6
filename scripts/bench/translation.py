"""A translation recipe by ours and by JoeyNMT: the same texts, tokens, sizes, minutes and cores, each in its own way.

    bash scripts/bench/environments.sh joeynmt
    python -m scripts.bench.translation multi30k --test data/multi30k/test_2016_flickr.lc.norm.tok.en

The texts of conf/NAME.yaml and its tokenizer are needed, which the recipe makes. Ours trains as that
configuration and the given settings say, anew; JoeyNMT then trains for as many seconds, on as many
cores. Start and validations count in both. Each translates the test sets. Told are target tokens and
sentences a second in training (validation aside, medians of what both log), sentences a second of
search, and BLEU and chrF with intervals; ours is compared with JoeyNMT's by the paired bootstrap. All
goes to exp/NAME/joeynmt; what is finished is passed over by the same command: for other settings
remove that folder first. A training that was stopped begins anew, so that its seconds stay whole.

JoeyNMT's own are: post-norm and sinusoids, initialization, Adam, learning rate with decay on plateaus,
batches of 4096 tokens, label smoothing, dropout, the best model by dev BLEU, and its search (beam 5,
length penalty 1), all as in its configuration for IWSLT14
(configs/transformer_iwslt14_deen_bpe.yaml); tied embeddings are that configuration's and ours. Of our
recipe are: the texts and tokens, d_model, layers, heads and ff. It validates every 1000 steps; in fewer
minutes than those take, its last weights translate.
"""

import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import yaml

from asr import config
from asr.cli.command import command, count, parser
from asr.data.texts import tokenize
from asr.errors import UserError
from asr.files import replacing, write_text
from asr.scoring.translation import score_translations
from asr.stamp import read as read_stamp
from asr.tasks import Experiment
from asr.text import tokenizer
from scripts.bench import report

PYTHON = Path(".bench/joeynmt/bin/python")
BATCH = 4096  # tokens
JOEYNMT = """
from joeynmt import builders
plateau = builders.ReduceLROnPlateau
builders.ReduceLROnPlateau = lambda verbose, **how: plateau(**how)  # newer PyTorch has no verbose
from joeynmt.__main__ import main
main()
"""
SEARCH = ["--beam", "5", "--length-norm", "1.4"]  # ours; the recipe's


def settings(ours: Experiment, out: Path) -> dict:
    """JoeyNMT's configuration, with the sizes of a recipe of ours."""
    encoder, decoder = ours.model.encoder, ours.model.decoder
    bpe = {"tokenizer_type": "sentencepiece", "level": "bpe", "voc_file": str(out / "vocabulary")}
    bpe["tokenizer_cfg"] = {"model_file": str(Path(ours.tokenizer) / "bpe.model")}
    training = {"optimizer": "adam", "adam_betas": [0.9, 0.999], "learning_rate": 3e-4}
    training |= {"scheduling": "plateau", "patience": 5, "decrease_factor": 0.7}
    training |= {"learning_rate_min": 1e-8, "normalization": "tokens", "label_smoothing": 0.1}
    training |= {"batch_size": BATCH, "batch_type": "token", "epochs": 100_000}
    training |= {"early_stopping_metric": "bleu", "validation_freq": 1000, "logging_freq": 100}
    model = {"initializer": "xavier_uniform", "embed_initializer": "xavier_uniform"}
    model |= {"bias_initializer": "zeros", "tied_embeddings": True, "tied_softmax": True}
    return {
        "name": "joeynmt",
        "joeynmt_version": "2.3.0",
        "model_dir": str(out / "model"),
        "use_cuda": False,
        "random_seed": ours.seed,
        "data": {
            "dataset_type": "plain",
            **{split: prefix(getattr(ours.data, split)) for split in ("train", "dev")},
            **{
                name: {"lang": language, **bpe}
                for name, language in zip(("src", "trg"), languages(ours), strict=True)
            },
        },
        "training": training | {"print_valid_sents": []},
        "testing": {
            "beam_size": 5,
            "beam_alpha": 1.0,
            "batch_size": BATCH,
            "batch_type": "token",
            "max_output_length": 100,
            "eval_metrics": ["bleu"],
            "sacrebleu_cfg": {"tokenize": "none"},
        },
        "model": model | {"encoder": stack(encoder), "decoder": stack(decoder)},
    }


def stack(part) -> dict:
    """The sizes of an encoder or a decoder."""
    return {
        "type": "transformer",
        "num_layers": part.layers,
        "num_heads": part.heads,
        "embeddings": {"embedding_dim": part.d_model, "scale": True, "dropout": 0.0},
        "hidden_size": part.d_model,
        "ff_size": part.ff,
        "dropout": 0.3,
    }


def prefix(paths: Sequence[str]) -> str:
    """What the two files of a split begin with, before the language."""
    return str(Path(paths[0]).with_suffix(""))


def languages(ours: Experiment) -> list[str]:
    """The languages, as the files' names end.

    raises   UserError if a split isn't two files whose names differ in that alone
    """
    for paths in (ours.data.train, ours.data.dev):
        if isinstance(paths, str) or len({Path(path).with_suffix("") for path in paths}) != 1:
            raise UserError(f"{paths}: expected two files whose names differ in their suffix alone")
    return [Path(path).suffix[1:] for path in ours.data.train]


def run(log: Path, *words: object, seconds: float | None = None, stdin=None, stdout=None) -> float:
    """Run a command, with its messages in a file; return the seconds that it took.

    seconds  after which it is interrupted; then JoeyNMT saves its weights
    raises   UserError with the log's last lines if it fails
    """
    begun = time.perf_counter()
    # what a shell's background job ignores, its processes would ignore as well
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with open(log, "w") as said:
        how = {"stdin": stdin, "stdout": stdout or said, "stderr": said}
        with subprocess.Popen([*map(str, words)], env=environment(), **how) as process:
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)
                status = 0
    if status:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise UserError(f"{log}: ended with status {status}:\n{tail}")
    return time.perf_counter() - begun


def environment() -> dict[str, str]:
    """That of all processes: as many threads as cores."""
    return os.environ | {"OMP_NUM_THREADS": str(len(os.sched_getaffinity(0)))}


def train_ours(name: str, out: Path, overrides: Sequence[str]) -> float:
    """Train ours; return the seconds."""
    done = out / "ours.seconds"
    if not done.exists():
        shutil.rmtree(out / "ours", ignore_errors=True)
        how = ["--config", f"conf/{name}.yaml", f"out={out / 'ours'}", *overrides]
        seconds = run(out / "ours.log", sys.executable, "-m", "asr.cli.train", *how)
        write_text(done, f"{seconds:.1f}\n")
    return float(done.read_text())


def train_joeynmt(out: Path, seconds: float) -> None:
    """Train JoeyNMT for the given seconds."""
    if (out / "joeynmt.done").exists():
        return
    shutil.rmtree(out / "model", ignore_errors=True)
    how = "train", out / "config.yaml", "--skip-test"
    took = run(out / "joeynmt.log", PYTHON, "-c", JOEYNMT, *how, seconds=seconds)
    best, latest = (out / f"model/{name}.ckpt" for name in ("best", "latest"))
    if not latest.exists() or not logged_speeds(out):
        raise UserError(
            f"{out / 'joeynmt.log'}: JoeyNMT took less than 100 steps in {took:.0f} s; train ours longer"
        )
    if not best.exists():  # it hasn't validated
        best.symlink_to(latest.name)
    write_text(out / "joeynmt.done", f"{took:.1f}\n")


def decode_ours(out: Path, source: Path) -> tuple[Path, float]:
    """Translate by ours; return the file, and the seconds of the search."""
    found = out / f"{source.name}.ours"
    how = ["-m", "asr.cli.decode", "--model", out / "ours", source, "--out", found, *SEARCH]
    run(out / "decode.log", sys.executable, *how)
    return found, read_stamp(found)["made"]["wall_seconds"]


def decode_joeynmt(out: Path, source: Path) -> tuple[Path, float]:
    """Translate by JoeyNMT; return the file, and the seconds of the search."""
    found, log = out / f"{source.name}.joeynmt", out / f"{source.name}.log"
    if not found.exists():
        how = "-c", JOEYNMT, "translate", out / "config.yaml"
        with replacing(found) as temporary, open(source) as lines, open(temporary, "w") as printed:
            run(log, PYTHON, *how, stdin=lines, stdout=printed)
    return found, float(re.findall(r"Generation took ([\d.]+)", log.read_text())[-1])


def logged_speeds(out: Path) -> list[float]:
    """What JoeyNMT logs every 100 steps: target tokens a second."""
    return [
        float(n) for n in re.findall(r"Tokens per Sec: +(\d+)", (out / "joeynmt.log").read_text())
    ]


def speeds(out: Path) -> list[float]:
    """Target tokens a second in training, ours and JoeyNMT's: medians of what both log."""
    lines = map(json.loads, (out / "ours/metrics.jsonl").read_text().splitlines())
    ours = [line["tokens_per_second"] for line in lines if line["kind"] == "train"]
    return [statistics.median(found) for found in (ours, logged_speeds(out))]


@command
def main(argv):
    """Train both, translate by both, score."""
    args = parser("translation.py", "Train ours and JoeyNMT's Transformer on a recipe.", __doc__)
    args.add_argument("name", metavar="NAME", help="of a recipe: conf/NAME.yaml, exp/NAME")
    args.add_argument("--threads", type=count, default=2, help="cores (default: 2)")
    args.add_argument("--test", action="append", required=True, metavar="FILE", help="a source")
    args.add_argument("overrides", nargs="*", metavar="key.path=value", help="settings of ours")
    args = args.parse_intermixed_args(argv)
    if not PYTHON.exists():
        raise UserError(
            f"{PYTHON}: no JoeyNMT here; bash scripts/bench/environments.sh joeynmt makes it"
        )
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    ours, out = (
        config.load(Experiment, Path(f"conf/{args.name}.yaml"), args.overrides),
        folder(args),
    )
    target = languages(ours)[1]
    tokens = tokenizer.load(ours.tokenizer)
    texts = tokenize(ours.data.train[1], tokens)
    write_text(out / "vocabulary", "\n".join(tokens.symbols()[1:-1]) + "\n")
    amount = int(texts.lens.sum()) + len(texts)  # target tokens and ends
    write_text(out / "config.yaml", yaml.safe_dump(settings(ours, out)))
    train_joeynmt(out, train_ours(args.name, out, args.overrides))
    print(report.heading(report.circumstances("cpu"), args.threads), end="\n\n")
    print(f"trained for {float((out / 'ours.seconds').read_text()) / 60:.1f} minutes")
    for name, speed in zip(("ours", "JoeyNMT"), speeds(out), strict=True):
        print(f"{name}: {speed:.0f} target tokens/s, {speed * len(texts) / amount:.0f} sentences/s")
    for test in map(Path, args.test):
        (found, seconds), (other, theirs) = decode_ours(out, test), decode_joeynmt(out, test)
        references = test.with_suffix(f".{target}")
        scores = score_translations(references, found, other, tokenize="none")
        print(
            f"\n{test}: {scores.count / seconds:.1f} sentences/s, JoeyNMT {scores.count / theirs:.1f}"
        )
        peer = score_translations(references, other, tokenize="none")
        print(*scores.lines(), *(f"JoeyNMT: {line}" for line in peer.lines()), sep="\n")


def folder(args) -> Path:
    """Where all goes."""
    out = Path(f"exp/{args.name}/joeynmt")
    out.mkdir(parents=True, exist_ok=True)
    return out


if __name__ == "__main__":
    main()
