"""How each command of the documentation is tried: the one table of what isn't run as it is written, and why.

The commands themselves are taken from the pages (test_documentation.py), which are tried in this order, each in the
order of its text. A command that stands in no page, or in none of this table, fails the test.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import miniatures


@dataclass(frozen=True)
class Way:
    """How a command is tried.

    more:     words put at its end
    replace:  what is written → what is tried
    why:      why it isn't tried as it is written
    status:   its exit status
    says:     what its output must hold, as a regular expression
    how:      run: it is; options: it is asked for --help, which must have all its options; not: it isn't
    whole:    the way to try it where all that takes long is asked for, too (ASR_DOCUMENTATION=whole)
    """

    more: str = ""
    replace: Mapping[str, str] = field(default_factory=dict)
    why: str = ""
    status: int = 0
    says: str = ""
    how: str = "run"
    whole: "Way | None" = None


def as_written(says: str = "", status: int = 0) -> Way:
    """As it is written."""
    return Way(says=says, status=status)


def changed(
    why: str, more: str = "", replace: Mapping[str, str] | None = None, says: str = "", **rest
) -> Way:
    """With other words, for a reason."""
    return Way(more, replace or {}, why, says=says, **rest)


def options(why: str, whole: Way | None = None) -> Way:
    """Its options are compared with those of --help."""
    return Way(how="options", why=why, whole=whole)


def not_run(why: str) -> Way:
    """Not at all."""
    return Way(how="not", why=why)


FEWER = "a corpus of a minute, a small model, one epoch"
SHORT = (  # fp32: bf16 takes ten times as long on a CPU without instructions for it
    "training.epochs=1 training.average=1 training.validate_every=1 training.processes=1 training.device=cpu "
    "training.precision=fp32"
)
SMALL = f"{SHORT} model.encoder.layers=1 model.decoder.layers=1 model.intermediate_ctc=null"
UNMASKED = f"{SMALL} features.specaugment.from_epoch=0"
PRINT = "needs GPUs and days: it prints the effective settings, which training would take"
OFFLINE = "asks servers elsewhere for gigabytes: it says what it would do"
PLAN = "downloads gigabytes and wants a GPU; its --dry-run stands above it"
COPY = "wants the whole corpus and a GPU: its plan"
SLURM = "a scheduler's cluster: a stand-in for sbatch runs the job's script, up to the plan of its recipe"
ESPNET = "trains ESPnet for two hours, in an environment of its own"
MEASURES = "measures for minutes, on a quiet machine, beside peers in environments of their own"
NODES = {
    "HOST:29500": "127.0.0.1:0",
    "--nnodes 2": "--nnodes 1",
    "--nproc-per-node 4": "--nproc-per-node 2",
}
STEPS = (
    "trains and decodes for minutes: the steps before are taken, training is asked for its settings"
)

PAGES: dict[str, dict[str, Way]] = {
    "README.md": {
        "bash recipes/mini/run.sh": changed(
            FEWER, SMALL, says=r"result recipe=mini set=test-mini mode=joint\+lm wer="
        ),
        "bash scripts/test.sh": changed(
            "it would run itself",
            "--collect-only -q tests/test_masks.py",
            says=r"All checks passed!\s+tests/test_masks\.py: \d+",
        ),
        "bash recipes/own/run.sh mine/recordings.tsv --name mine --normalize plain": changed(
            FEWER, SMALL, says="result recipe=mine set=test mode=joint wer="
        ),
        "source .venv/bin/activate": not_run("the test has an environment of its own"),
        "asr-decode --model exp/mine/model new.wav folder/": as_written(r"(?m)^new.wav\t"),
        "pip install .[mini]": changed(
            "installs: it looks whether it would",
            "--dry-run --no-deps --no-build-isolation",
            says="Would install asr",
        ),
    },
    "recipes/own/README.md": {
        "mkdir -p mine": as_written(),
        r"printf 'id\tpath\ttext\tspeaker\n' >mine/recordings.tsv": as_written(),
        r"printf 'a1\ta1.wav\tHELLO WORLD\tanna\n' >>mine/recordings.tsv": changed(
            "and so on, a line a recording", r"&& tail -n +2 more.tsv >>mine/recordings.tsv"
        ),
        "bash recipes/own/run.sh mine/recordings.tsv --name mine --normalize plain": changed(
            FEWER, SMALL, says="result recipe=mine set=test mode=joint wer="
        ),
    },
    "recipes/mini/README.md": {
        "bash recipes/mini/run.sh": changed(
            f"{STEPS}; README.md has the whole",
            replace={"bash": "ASR_TRIAL=1 bash"},
            status=2,  # for it has no results then
            says="evaluated mini test-mini",
            whole=changed(
                FEWER, SMALL, says=r"result recipe=mini set=test-mini mode=joint\+lm wer="
            ),
        ),
    },
    "recipes/an4/README.md": {
        "bash recipes/an4/run.sh an4/": changed(
            STEPS,
            replace={"bash": "ASR_TRIAL=1 bash"},
            says="evaluated an4 test",
            whole=changed(FEWER, SMALL, says=r"result recipe=an4 set=test mode=joint\+lm wer="),
        ),
        'python -m scripts.seeds an4 test --seeds 1 2 3 --decode "--ctc-weight 0.7 --length-bonus 1"': options(
            "trains for hours",
            changed(
                FEWER + ", one seed, which the recipe has trained",
                replace={"--seeds 1 2 3": f"{SMALL} --seeds 1"},
                says="of 1 seeds: mean",
            ),
        ),
        "asr-decode --tune": options("names an option"),
    },
    "recipes/yesno/README.md": {
        "bash recipes/yesno/run.sh waves_yesno/": changed(
            FEWER, SMALL, says="result recipe=yesno set=test mode=joint wer="
        ),
        "python -m scripts.seeds yesno test --seeds 1 2 3": changed(
            FEWER + ", one seed, which the recipe has trained",
            replace={"--seeds 1 2 3": f"{SMALL} --seeds 1"},
            says="of 1 seeds: mean",
        ),
    },
    "recipes/english/README.md": {
        "bash recipes/english/run.sh SPEECHOCEAN_DIR COMMON_VOICE_DIR AN4_DIR": changed(
            STEPS,
            replace={
                "bash": "ASR_TRIAL=1 bash",
                "SPEECHOCEAN_DIR": "speechocean",
                "COMMON_VOICE_DIR": "cv-corpus/en",
            }
            | {"AN4_DIR": "an4"},
            says="evaluated english test",
            whole=changed(
                FEWER,
                UNMASKED,
                {
                    "SPEECHOCEAN_DIR": "speechocean",
                    "COMMON_VOICE_DIR": "cv-corpus/en",
                    "AN4_DIR": "an4",
                },
                says="result recipe=english set=test mode=joint wer=",
            ),
        ),
        "python -m scripts.bench.recipe_espnet english test --minutes 111": options(ESPNET),
        "asr-prepare --normalize english": options("names an option"),
    },
    "recipes/mandarin/README.md": {
        "bash recipes/mandarin/run.sh COMMON_VOICE_DIR": changed(
            STEPS,
            replace={"bash": "ASR_TRIAL=1 bash", "COMMON_VOICE_DIR": "cv-corpus/zh"},
            says="evaluated mandarin test",
            whole=changed(
                FEWER,
                UNMASKED,
                {"COMMON_VOICE_DIR": "cv-corpus/zh"},
                says="result recipe=mandarin set=test mode=joint mer=",
            ),
        ),
        "python -m scripts.bench.recipe_espnet mandarin test --minutes 134": options(ESPNET),
        "asr-prepare --normalize plain": options("names an option"),
    },
    "recipes/aishell/mini.md": {
        "bash recipes/aishell/mini.sh": changed(
            STEPS,
            replace={"bash": "ASR_TRIAL=1 bash"},
            status=2,
            says="evaluated aishell-mini dev test",
            whole=changed(FEWER, SMALL, says="result recipe=aishell-mini set=test mode=joint mer="),
        ),
        "bash recipes/aishell/mini.sh training.processes=1": changed(
            STEPS,
            replace={"bash": "ASR_TRIAL=1 bash"},
            status=2,
            says="evaluated aishell-mini dev test",
            whole=changed("the same again", SMALL, says="up to date"),
        ),
    },
    "recipes/aishell/README.md": {
        "bash recipes/aishell/run.sh --dry-run": as_written("exp/aishell-conformer/model; time: "),
        "bash recipes/aishell/run.sh": not_run(PLAN),
        "bash recipes/aishell/run.sh --corpus DIR": changed(
            COPY, "--dry-run", {"DIR": "aishell"}, says="exp/aishell-conformer/test.joint.txt"
        ),
        "sbatch --export ALL,RECIPE=recipes/aishell/run.sh recipes/librispeech/slurm.sbatch --corpus DIR": changed(
            SLURM, replace={"DIR": "aishell"}, says="exp/aishell-conformer/test.joint.txt"
        ),
        "asr-score --unit char": changed(
            "its files aren't named", "text.txt text.txt", says="CER 0.00"
        ),
        "python -m scripts.results recipes/aishell/README.md aishell-conformer --unit mixed": changed(
            "nothing has been trained: it says so",
            status=2,
            says="exp/aishell-conformer: no text of asr-decode",
        ),
    },
    "recipes/librispeech/README.md": {
        "bash recipes/librispeech/run.sh --dry-run": as_written("exp/librispeech100/model; time: "),
        "bash recipes/librispeech/run.sh": not_run(PLAN),
        "bash recipes/librispeech/run.sh --corpus DIR": changed(
            COPY,
            "--dry-run",
            {"DIR": "librispeech"},
            says="exp/librispeech100/test-clean.joint.txt",
        ),
        "sbatch recipes/librispeech/slurm.sbatch --corpus DIR": changed(
            SLURM, replace={"DIR": "librispeech"}, says="exp/librispeech100/test-clean.joint.txt"
        ),
        "sbatch --nodes 2 recipes/librispeech/slurm.sbatch --corpus DIR --config conf/librispeech960-conformer.yaml": (
            changed(
                SLURM,
                replace={"DIR": "librispeech"},
                says="exp/librispeech960-conformer/test-clean.joint.txt",
            )
        ),
        "python -m scripts.results recipes/librispeech/README.md librispeech100": changed(
            "nothing has been trained: it says so",
            status=2,
            says="exp/librispeech100: no text of asr-decode",
        ),
    },
    "docs/accuracy.md": {
        "asr-prepare an4 AN4_DIR data/an4": changed(
            "the name of a folder", replace={"AN4_DIR": "an4"}
        ),
        "asr-tokenizer data/an4/train.jsonl.gz exp/an4/tokenizer --kind bpe --size 110": as_written(),
        "python -m scripts.ablation exp/ablation --minutes 10": options(
            "trains 22 models for four hours",
            whole=changed(
                FEWER + ", two settings",
                "--setting base --setting wsd",
                {"--minutes 10": "--minutes 0.2"},
                says="wsd",
            ),
        ),
        "asr-decode --model exp/ablation/NAME/model --manifest data/an4/train.jsonl.gz --mode joint --ctc-weight 0.7 "
        "--length-bonus 1 --out TEXT": options("needs one of these models"),
    },
    "CONTRIBUTING.md": {
        "bash scripts/test.sh": not_run("README.md tries it"),
        "source .venv/bin/activate": not_run("the test has an environment of its own"),
        "pip install pre-commit": not_run("installs"),
        "pre-commit install": not_run("changes the repository's hooks"),
        "bash scripts/test.sh tests/test_search.py -k exhaustive": changed(
            "runs for minutes", "--collect-only", says="exhaustive"
        ),
        "ruff check . && ruff format .": changed("rewrites files", "--diff"),
    },
    "docs/README.md": {},
    "docs/guide.md": {
        'pip install -e ".[mini]"': changed(
            "installs: it looks whether it would",
            "--dry-run --no-deps --no-build-isolation",
            says="Would install asr",
        ),
        'pip install -e ".[mini,test]"': changed(
            "installs: it looks whether it would",
            "--dry-run --no-deps --no-build-isolation",
            says="Would install asr",
        ),
        "tensorboard --logdir exp": changed(
            "a server: it looks for events", "--inspect", says="dev/loss|train/loss"
        ),
        "asr-prepare tsv mine/recordings.tsv data/mine --dev 0.05 --test 0.1 --normalize plain": as_written(
            "written: "
        ),
        "python recipes/own/scaled.py data/mine exp/mine": as_written("--kind bpe --size"),
        "asr-tokenizer data/mine/train.jsonl.gz data/mine/dev.jsonl.gz exp/mine/tokenizer --kind bpe --size 300": (
            changed("the texts are few", replace={"--size 300": "--size 150"})
        ),
        "asr-train --config exp/mine/config.yaml": changed(FEWER, SMALL),
        "asr-decode --model exp/mine/model new.wav folder/": as_written(r"(?m)^new.wav\t"),
        "asr-info PATH": changed(
            "the name of a model", replace={"PATH": "exp/mine/model"}, says="parameters"
        ),
        "asr-info --accept DIR": changed(
            "that model", replace={"DIR": "exp/mine/model"}, says="accepted"
        ),
        "asr-prepare kaldi DIR data/mine": changed(
            "the name of a folder, and another's place",
            replace={"DIR": "kaldi", "data/mine": "data/kaldi"},
        ),
        "asr-prepare common_voice cv-corpus/en data/cv --normalize english": as_written(
            "data/cv/train.jsonl.gz"
        ),
        "asr-download musan corpora": changed(
            OFFLINE, "--dry-run", {"corpora": "other"}, says="musan.tar.gz"
        ),
        "asr-prepare folder corpora/musan/noise data/noise": as_written(
            "data/noise/recordings.jsonl.gz"
        ),
        "asr-prepare folder corpora/RIRS_NOISES/simulated_rirs data/rirs": as_written(
            "data/rirs/recordings.jsonl.gz"
        ),
        "asr-prepare ... --shar": changed(
            "stands for any other",
            replace={"...": "kaldi kaldi data/kaldi"},
            says=r"data/kaldi/kaldi\.shar\.jsonl\.gz",
        ),
        "asr-train --check": changed(
            "named apart",
            "--config exp/mine/config.yaml --test data/mine/test.jsonl.gz training.device=cpu training.precision=fp32",
            says="memory",
        ),
        "python recipes/own/scaled.py data/mine exp/tuned --init-from exp/mini/model": changed(
            "the model that this page has trained",
            replace={"exp/mini": "exp/mine"},
            says="--kind bpe --size",
        ),
        "asr-train --config exp/tuned/config.yaml tokenizer=exp/mine/tokenizer optimizer.lr=1e-3 "
        "model.flat_start_epochs=0 "
        """freeze='["model.encoder.subsampling.*", "model.encoder.layers.[0-3].*"]'""": changed(
            FEWER, SHORT, says="transfer.tsv"
        ),
        "asr-train --config conf/librispeech100.yaml --gpus 4": changed(
            PRINT, "--print-config", says="processes: 4"
        ),
        "torchrun --nnodes 2 --nproc-per-node 4 --rdzv-backend c10d --rdzv-endpoint HOST:29500 "
        "-m asr.cli.train --config conf/librispeech100.yaml": changed(
            PRINT, "--print-config", NODES, says="librispeech100"
        ),
        "asr-ngram data/mine/train.jsonl.gz exp/mine/tokenizer exp/mine/lm.arpa.gz --order 4": as_written(),
        "asr-train --config conf/lm.yaml data.train=train.txt data.dev=dev.txt tokenizer=exp/mine/tokenizer "
        "out=exp/mine/lm": changed(FEWER, SHORT),
        "asr-decode --model exp/mine/model --manifest data/mine/dev.jsonl.gz --lm exp/mine/lm.arpa.gz "
        "--tune lm-weight=0,0.3 --tune ctc-weight=0.3,0.5": as_written("best: "),
        "asr-decode --model exp/mine/model --manifest data/mine/test.jsonl.gz --lm exp/mine/lm --hotwords names.txt "
        "--out exp/mine/test.txt": as_written("RTF"),
        "asr-score data/mine/test.jsonl.gz exp/mine/test.txt": as_written("WER .*\nCER "),
        "bash recipes/librispeech/run.sh --dry-run": as_written("exp/librispeech100/model; time: "),
        "asr-download librispeech corpora --parts train-clean-100 dev-clean test-clean": changed(
            OFFLINE, "--dry-run", says="(?s)train-clean-100.tar.gz.*dev-clean.*test-clean"
        ),
        "asr-download aishell corpora --dry-run": as_written("data_aishell.tgz"),
        "asr-train --schema > experiment.schema.json": as_written(),
    },
    "docs/architecture.md": {},
    "docs/data.md": {
        "asr-prepare --shar": options("names an option"),
        "asr-prepare folder": options("names a corpus"),
    },
    "docs/training.md": {"asr-train --check": options("names an option")},
    "docs/search.md": {},
    "docs/reliability.md": {"asr-info --accept FOLDER": options("names an option")},
    "scripts/bench/README.md": {
        "bash scripts/bench/environments.sh": changed(
            "installs gigabytes: a peer that it doesn't know is refused",
            "kaldi",
            status=2,
            says="espnet or speechbrain",
        ),
        "python -m scripts.bench.decode --threads 1 --out exp/decode-1.json": options(MEASURES),
        "python -m scripts.bench.train --threads 1 --out exp/train-1.json": options(MEASURES),
        "python -m scripts.bench.features --threads 1 --out exp/features-1.json": options(
            MEASURES,
            changed("peers are elsewhere", "--peers '' --repeats 1 --busy 99", says="ours"),
        ),
        "python -m scripts.bench.summation --parameters 10 --processes 1 2 4": options(MEASURES),
        "python -m scripts.bench.search_parts --out exp/parts": options(MEASURES),
        "python -m scripts.bench.precision exp/mini/model data/mini/test-mini.jsonl.gz": options(
            MEASURES
        ),
        "python -m scripts.bench.recipe_espnet english test --minutes 120": options(ESPNET),
        "python -m scripts.bench.decode --threads 2 --workload eight": options(MEASURES),
        "python -m scripts.bench.train --threads N --peers espnet": options(MEASURES),
        "asr-train --config conf/mini.yaml out=exp/mini/bf16-1 training.precision=bf16 seed=1 training.epochs=5 "
        "training.validate_every=1": changed(
            "trains for minutes", "--print-config", says="precision: bf16"
        ),
        "python -m scripts.bench.train --device cuda --workload many --precision bf16 --peer-precision fp32,bf16 "
        "--peak-tflops 989": options(MEASURES),
        "python -m scripts.bench.features --threads N": options(MEASURES),
        "python -m scripts.bench.augment": changed(
            "fewer recordings", "--utterances 2 --seconds 1 --repeats 1", says="reverberation"
        ),
        "python -m scripts.bench.scale --workers 8 --lhotse-batches 17000 --out exp/scale.json": options(
            MEASURES
        ),
        "python -m scripts.rehearsal": options(
            MEASURES, changed("a hundredth", "--scale 0.01", says="prepare")
        ),
        "asr-tokenizer --kind bpe --size 5000": options("its files aren't named"),
    },
}


# what a page's commands need besides


def mini(root: Path) -> None:
    """The corpus of recipes/mini, complete to its recipe's eyes."""
    corpus = root / "data/mini-corpus"
    miniatures.librispeech(
        corpus / "LibriSpeech", {"train-mini": 60, "dev-mini": 6, "test-mini": 6}
    )
    miniatures.finished(corpus, "mini-1", seed=1, hours=3.5, **{"dev-mini": 200, "test-mini": 444})


def aishell_mini(root: Path) -> None:
    """The corpus of recipes/aishell/mini.sh, complete to its recipe's eyes."""
    corpus = root / "data/aishell-mini-corpus"
    miniatures.aishell(corpus / "data_aishell", {"train": 60, "dev": 6, "test": 6})
    miniatures.finished(corpus, "aishell-mini-1", seed=1, hours=1.2, dev=120, test=240)


def own(root: Path) -> None:
    """What somebody has who reads the README: recordings, texts, and the corpora that it names."""
    miniatures.table(root / "mine/recordings.tsv", miniatures.english(80))
    miniatures.speak(root / "new.wav", "HELLO WORLD")
    miniatures.speak(root / "a.wav", "HELLO AGAIN")
    miniatures.speak(root / "folder/b.ogg", "GOOD MORNING")
    miniatures.kaldi(root / "kaldi", 8)
    miniatures.common_voice(root / "cv-corpus/en", {"train": 8, "dev": 2, "test": 2})
    for name in ("musan/noise/wind", "RIRS_NOISES/simulated_rirs/room"):
        miniatures.speak(root / f"corpora/{name}.wav", "HUSH")
    for name, seed in (("train.txt", 5), ("dev.txt", 6)):
        (root / name).write_text("".join(f"{text}\n" for text in miniatures.english(40, seed)))
    (root / "names.txt").write_text("NORWAY\nFOXTROT\t1.5\n")


def recordings(root: Path) -> None:
    """The recordings that a table of one's own names."""
    miniatures.table(root / "mine/more.tsv", miniatures.english(40))
    (root / "mine/more.tsv").rename(root / "more.tsv")
    miniatures.speak(root / "mine/a1.wav", "HELLO WORLD")


def an4(root: Path) -> None:
    """AN4, with utterances enough for its dev set and its tokens."""
    miniatures.an4(root / "an4", {"train": 180, "test": 6})


def real_english(root: Path) -> None:
    """The three corpora of recipes/english."""
    miniatures.table(root / "speechocean/train.tsv", miniatures.english(200, 7), speakers=20)
    miniatures.table(root / "speechocean/test.tsv", miniatures.english(6, 8))
    miniatures.common_voice(root / "cv-corpus/en", {"train": 120, "test": 2})
    an4(root)


def real_mandarin(root: Path) -> None:
    """A release's folder, in Mandarin."""
    miniatures.common_voice(root / "cv-corpus/zh", {"train": 260, "test": 6}, miniatures.chinese)


def aishell(root: Path) -> None:
    """A corner of AISHELL-1, and a text."""
    miniatures.aishell(root / "aishell/data_aishell", {"train": 4, "dev": 2, "test": 2})
    (root / "text.txt").write_text("a\t我们\n", encoding="utf-8")


SETUPS: dict[str, tuple[Callable[[Path], None], ...]] = {
    "README.md": (mini, own),
    "docs/guide.md": (own,),
    "recipes/own/README.md": (recordings,),
    "recipes/mini/README.md": (mini,),
    "recipes/an4/README.md": (an4,),
    "recipes/yesno/README.md": (lambda root: miniatures.yesno(root / "waves_yesno"),),
    "recipes/english/README.md": (real_english,),
    "recipes/mandarin/README.md": (real_mandarin,),
    "recipes/aishell/mini.md": (aishell_mini,),
    "recipes/aishell/README.md": (aishell,),
    "recipes/librispeech/README.md": (
        lambda root: miniatures.librispeech(root / "librispeech", dict.fromkeys(LIBRISPEECH, 2)),
    ),
    "docs/accuracy.md": (an4,),
}
LIBRISPEECH = (
    "train-clean-100",
    "train-clean-360",
    "train-other-500",
    "dev-clean",
    "test-clean",
    "test-other",
)
