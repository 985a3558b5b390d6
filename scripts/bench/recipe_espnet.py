"""A recipe's corpus in ESPnet's hands: its Conformer in our size, trained for the given minutes on the same utterances.

    python -m scripts.bench.recipe_espnet NAME SET [--like librispeech_100] [--rate 0.002]
        [--warmup 1000] [--minutes 120] [--threads 2]

data/NAME and exp/NAME/tokenizer are needed, which recipes/NAME/run.sh makes, and .bench/espnet,
which environments.sh makes. All goes to exp/NAME/espnet: sound files at three speeds, ESPnet's
statistics, and in a folder of its own each training, with the texts of SET that its joint search
finds, which are scored. What is finished is passed over by the same command: for other data or
another configuration of ours remove exp/NAME/espnet first. A training that was stopped begins anew,
so that its minutes stay whole.

ESPnet's own are: features (its defaults, with global CMVN), dropout (but none of attention
weights), loss weights, optimizer and the mean of the ten models best by dev accuracy, and its
search (beam 10, CTC weight 0.3). --like says which of its recipes the rest comes from:

librispeech_100 (its conf/train_asr_conformer.yaml): SpecAugment, and a rate of 0.002 after a
warm-up, of 15000 steps there and of 1000 unless given here, since so few minutes have fewer.

an4 (its conf/train_asr_transformer.yaml), for small corpora: no SpecAugment, Xavier's uniform
initialization, and a rate that rises to the end, since its warm-up of 20000 steps outlasts the
4000 or so that it trains for, and reaches 0.001 there. So give --warmup the steps that fit into the
minutes, and --rate what is to be reached; for a rate that falls again, give fewer steps.

Of our recipe are: the utterances and tokens, d_model, layers, heads, widths and kernel, and how
many seconds make a step, which are a small part of those recipes'. The convolutions of its
subsampling have d_model channels, as `conv2d` always has. What it calls an epoch, after which it
validates and keeps a model, is cut to a tenth of a pass through the copies at three speeds: else
few would be kept to take the mean of, and much of the last would be lost.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import soundfile
import yaml
from tqdm import tqdm

from asr import config
from asr.audio import load as audio
from asr.cli.command import command, count, parser
from asr.data import manifest
from asr.errors import UserError
from asr.files import write_text
from asr.logging import logger
from asr.scoring.report import score
from asr.tasks import Experiment
from asr.text import tokenizer

PYTHON = Path(".bench/espnet/bin/python")
EPOCHS = 10  # of a pass through the training set
SPEEDS = {"train": (0.9, 1.0, 1.1)}  # of its speed perturbation: copies of the training set
DROPOUTS = {"dropout_rate": 0.1, "positional_dropout_rate": 0.1}
MASKS = {
    "apply_time_warp": True,
    "time_warp_window": 5,
    "time_warp_mode": "bicubic",
    "apply_freq_mask": True,
    "freq_mask_width_range": [0, 27],
    "num_freq_mask": 2,
    "apply_time_mask": True,
    "time_mask_width_ratio_range": [0.0, 0.05],
    "num_time_mask": 5,
}
RECIPES: dict[str, dict] = {  # of ESPnet, in egs2
    "librispeech_100": {
        "specaug": "specaug",
        "specaug_conf": MASKS,
        "optim_conf": {"weight_decay": 1e-6},
    },
    "an4": {"init": "xavier_uniform", "optim_conf": {}},
}


def settings(ours: Experiment, tokens: Path, like: str, rate: float, warmup: int) -> dict:
    """ESPnet's configuration, with the sizes of a recipe of ours.

    like: one of ESPnet's RECIPES; rate: the highest learning rate; warmup: steps until it is reached
    """
    encoder, decoder, samples = (
        ours.model.encoder,
        ours.model.decoder,
        ours.features.fbank.sample_rate,
    )
    symbols, bpe = tokenizer.load(ours.tokenizer).symbols(), Path(ours.tokenizer) / "bpe.model"
    sizes = {
        "output_size": encoder.d_model,
        "attention_heads": encoder.heads,
        "linear_units": encoder.ff,
    }
    shape = {"macaron_style": True, "use_cnn_module": True, "cnn_module_kernel": encoder.kernel}
    relative = {
        "rel_pos_type": "latest",
        "pos_enc_layer_type": "rel_pos",
        "selfattention_layer_type": "rel_selfattn",
    }
    if not bpe.exists():
        symbols = ["<space>" if symbol == "▁" else symbol for symbol in symbols]
    write_text(tokens, "\n".join(["<blank>", "<unk>", *symbols[1:-1], "<sos/eos>"]) + "\n")
    return {
        "token_list": str(tokens),
        **({"token_type": "bpe", "bpemodel": str(bpe)} if bpe.exists() else {"token_type": "char"}),
        "frontend_conf": {"fs": samples, "n_fft": 512, "win_length": samples // 40, "hop_length": samples // 100},
        **RECIPES[like],
        "encoder": "conformer",
        "encoder_conf": {
            **sizes, **shape, **relative, **DROPOUTS,
            "num_blocks": encoder.layers, "input_layer": "conv2d", "activation_type": "swish",
        },
        "decoder": "transformer",
        "decoder_conf": {
            **DROPOUTS,
            "attention_heads": decoder.heads, "linear_units": decoder.ff, "num_blocks": decoder.layers,
        },
        "model_conf": {"ctc_weight": 0.3, "lsm_weight": 0.1, "length_normalized_loss": False},
        "optim": "adam",
        "optim_conf": {"lr": rate, **RECIPES[like]["optim_conf"]},
        "scheduler": "warmuplr",
        "scheduler_conf": {"warmup_steps": warmup},
        "batch_type": "numel",
        "batch_bins": int(ours.data.batch_seconds * samples),
        "accum_grad": ours.training.accumulate,
        "best_model_criterion": [["valid", "acc", "max"]],
        "keep_nbest_models": 10,
        "num_att_plot": 0,
        "use_tensorboard": False,
        "use_matplotlib": False,
    }  # fmt: skip


def dump(source: Path, out: Path, rate: int, speeds: Sequence[float]) -> None:
    """Write an ESPnet data folder: sound files of our manifest at each speed, wav.scp, text."""
    if out.exists():
        return
    folder = out.with_name(f".partial-{out.name}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lines: dict[str, list[str]] = {"wav.scp": [], "text": []}
    for utterance in tqdm(
        list(manifest.read(source)), desc=f"sound files of {out.name}", disable=None
    ):
        waveform = audio.load(
            utterance.path, rate, utterance.start, utterance.duration, utterance.channel
        )
        for speed in speeds:
            name = f"sp{speed}-{utterance.id}"
            soundfile.write(
                folder / f"{name}.flac", audio.resample(waveform, rate * speed, rate), rate
            )
            lines["wav.scp"].append(f"{name} {out / name}.flac")
            lines["text"].append(f"{name} {utterance.text}")
    for name, rows in lines.items():
        write_text(folder / name, "\n".join(sorted(rows)) + "\n")
    folder.rename(out)


def espnet(
    tool: str, log: Path, threads: int, *arguments: object, seconds: float | None = None
) -> None:
    """Run one of ESPnet's tools, with its messages in a file, to its end or for the given seconds.

    raises   UserError with the log's last lines if it fails
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    call = [PYTHON, "-m", f"espnet2.bin.{tool}", "--ngpu", 0, *arguments]
    with open(log, "a") as said:
        try:
            done = subprocess.run(
                [*map(str, call)],
                env=environment | {"OMP_NUM_THREADS": str(threads)},
                stdout=said,
                stderr=said,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return
    if done.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
        raise UserError(f"{log}: ESPnet ended with status {done.returncode}:\n{tail}")


def configuration(run: Path) -> Path:
    """Where the configuration of a training is, beside the training's folder."""
    return run.with_name(f"{run.name}.yaml")


def data(run: Path, shapes: str) -> list[str]:
    """The options of a training that name its data; shapes: the files of lengths, with {split} and {folder} in it."""
    out = run.parent
    options = ["--config", f"{configuration(run)}", "--use_preprocessor", "true"]
    for split, folder in (("train", out / "train"), ("valid", out / "dev")):
        options += [f"--{split}_shape_file", shapes.format(split=split, folder=folder)]
        for file, facts in (("wav.scp", "speech,sound"), ("text", "text,text")):
            options += [f"--{split}_data_path_and_name_and_type", f"{folder / file},{facts}"]
    return options


def statistics(run: Path, threads: int) -> Path:
    """Have ESPnet measure lengths, and the features' mean and deviation, for all trainings."""
    stats = run.parent / "stats"
    if not all((stats / split / "feats_stats.npz").exists() for split in ("train", "valid")):
        how = [
            "--collect_stats",
            "true",
            "--batch_type",
            "unsorted",
            "--batch_size",
            16,
            "--output_dir",
            stats,
        ]
        log = stats.with_name("stats.log")
        espnet("asr_train", log, threads, *data(run, "{folder}/wav.scp"), *how)
    return stats


def batches(run: Path, stats: Path) -> int:
    """About how many batches the training set makes."""
    lengths = [
        int(line.split()[1]) for line in (stats / "train/speech_shape").read_text().splitlines()
    ]
    return sum(lengths) // yaml.safe_load(configuration(run).read_text())["batch_bins"]


def train(run: Path, minutes: float, threads: int) -> None:
    """Train until the time is over; then have ESPnet take the mean of its best models."""
    exp, log, done, stats = run / "exp", run / "train.log", run / "epochs", statistics(run, threads)
    if (exp / "valid.acc.ave.pth").exists():
        return
    how = data(run, f"{stats}/{{split}}/speech_shape")
    how += [
        "--normalize",
        "global_mvn",
        "--normalize_conf",
        f"stats_file={stats / 'train/feats_stats.npz'}",
    ]
    how += ["--num_workers", "0", "--resume", "true", "--output_dir", str(exp)]
    how += ["--num_iters_per_epoch", str(batches(run, stats) // EPOCHS), "--max_epoch"]
    if not done.exists():
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        espnet("asr_train", log, threads, *how, 100000, seconds=60 * minutes)
        epochs = max(
            map(int, re.findall(r"(\d+)epoch results", log.read_text(errors="replace"))), default=0
        )
        if not epochs:
            raise UserError(
                f"{log}: ESPnet hasn't finished an epoch in {minutes:g} minutes; give it more --minutes"
            )
        write_text(done, f"{epochs}\n")
    epochs = int(done.read_text())
    logger.info(f"{epochs} epochs in {minutes:g} minutes")
    espnet("asr_train", log, threads, *how, epochs)


def decode(run: Path, split: str, threads: int) -> Path:
    """Decode by joint search with one process per core, and write `id<TAB>text` lines."""
    text, scp, exp = run / f"{split}.txt", run.parent / split / "wav.scp", run / "exp"
    if text.exists():
        return text
    rows = scp.read_text(encoding="utf-8").splitlines()

    def part(n: int) -> list[str]:
        keys, folder = run / f"{split}.keys.{n}", run / f"{split}.decode.{n}"
        write_text(keys, "\n".join(rows[n::threads]) + "\n")
        how = [
            "--asr_train_config",
            exp / "config.yaml",
            "--asr_model_file",
            exp / "valid.acc.ave.pth",
        ]
        how += [
            "--beam_size",
            10,
            "--ctc_weight",
            0.3,
            "--lm_weight",
            0.0,
            "--num_workers",
            0,
            "--output_dir",
            folder,
        ]
        how += ["--data_path_and_name_and_type", f"{scp},speech,sound", "--key_file", keys]
        espnet("asr_inference", run / f"{split}.decode.{n}.log", 1, *how)
        return (folder / "1best_recog/text").read_text(encoding="utf-8").splitlines()

    with ThreadPoolExecutor(threads) as pool:
        found = [line.partition(" ") for lines in pool.map(part, range(threads)) for line in lines]
    write_text(
        text,
        "".join(f"{name.removeprefix('sp1.0-')}\t{words}\n" for name, _, words in sorted(found)),
    )
    return text


@command
def main(argv):
    """Prepare, train, decode, score."""
    args = parser("recipe_espnet.py", "Train ESPnet's Conformer on a recipe's corpus.", __doc__)
    args.add_argument(
        "name", metavar="NAME", help="of a recipe: conf/NAME.yaml, data/NAME, exp/NAME"
    )
    args.add_argument("set", metavar="SET", help="of its test sets")
    args.add_argument(
        "--like",
        choices=RECIPES,
        default="librispeech_100",
        help="whose settings (default: librispeech_100)",
    )
    args.add_argument(
        "--rate", type=float, help="highest learning rate (default: 0.002; an4 has none)"
    )
    args.add_argument("--warmup", type=count, help="steps until then (default: 1000; an4 has none)")
    args.add_argument("--minutes", type=float, default=120.0, help="of training (default: 120)")
    args.add_argument("--threads", type=int, default=2, help="cores (default: 2)")
    args = args.parse_args(argv)
    if args.like == "an4" and None in (args.rate, args.warmup):
        raise UserError(
            "--like an4: its own schedule is for other minutes; give --rate and --warmup"
        )
    rate, warmup = args.rate or 0.002, args.warmup or 1000
    if not PYTHON.exists():
        raise UserError(
            f"{PYTHON}: no ESPnet here; bash scripts/bench/environments.sh espnet makes it"
        )
    ours = config.load(Experiment, Path(f"conf/{args.name}.yaml"))
    if getattr(getattr(ours.model, "encoder", None), "kind", None) != "conformer":
        raise UserError(
            f"conf/{args.name}.yaml: its encoder is no Conformer, whose sizes ESPnet's would take"
        )
    out = Path(f"exp/{args.name}/espnet")
    run = out / f"{args.like}-{rate:g}-{warmup}-{args.minutes:g}-minutes"
    run.mkdir(parents=True, exist_ok=True)
    tokens = out / "tokens.txt"
    theirs = settings(ours, tokens, args.like, rate, warmup)
    write_text(configuration(run), yaml.safe_dump(theirs))
    for split in ("train", "dev", args.set):
        source = Path(f"data/{args.name}/{split}.jsonl.gz")
        dump(source, out / split, ours.features.fbank.sample_rate, SPEEDS.get(split, (1.0,)))
    train(run, args.minutes, args.threads)
    text = decode(run, args.set, args.threads)
    print(
        *(
            s.line()
            for s in score(Path(f"data/{args.name}/{args.set}.jsonl.gz"), text).scores.values()
        ),
        sep="\n",
    )


if __name__ == "__main__":
    main()
