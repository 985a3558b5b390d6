"""The recipes of LibriSpeech and AISHELL, whole, on miniatures.py; their plans, their tables, their configurations.

What a second run, a changed setting and a plan must do follows from which step reads what. Models of a few weights
train within seconds; how well they hear is not the point here.
"""

import json
import os
import re
import signal
import subprocess
import time

import miniatures
import pytest
import torch
from checkouts import ROOT, bash, copy, needs_commands, write_program
from partly import partly
from small import each, slow
from small import rows as rows_of

from asr import stamp
from asr.config import load
from asr.models.hybrid import Hybrid
from asr.models.lm import TransformerLM
from asr.scoring.report import score
from asr.tasks import Experiment

CONFIG = """# An experiment for tests.
# time: a second
# disk: 1 MB
out: unused
seed: 1
tokenizer: unused
data: {train: unused, dev: unused, batch_seconds: 10, workers: 0}
features:
  fbank: {sample_rate: 16000, mels: 16}
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


class House:
    """A copy of the recipes and scripts, whose data/ and exp/ are its own."""

    def __init__(self, root):
        self.root = copy(root, "recipes", "scripts")
        for name, text in {"tiny": CONFIG, "x960": CONFIG, "lm": LM}.items():
            (root / f"{name}.yaml").write_text(text)

    def run(self, command, status=0):
        """Run a command; its stdout and stderr."""
        found, out, err = bash(self.root, "-c", command)
        assert found == status, out + err
        return out, err

    def plan(self, command):
        """Output → state, as a plan shows them, which makes nothing; and all that it says."""
        before = self.times()
        out, err = self.run(f"{command} --dry-run")
        assert self.times() == before
        found = re.findall(r"(?m)^(done|to do|depends) +asr-\w+ → ([^;\n]+)", out)
        return {output: state for state, output in found}, out + err

    def times(self):
        """Each file of data/ and exp/ with its time of change."""
        found = [*self.root.glob("data/**/*"), *self.root.glob("exp/**/*")]
        files = [path for path in found if path.is_file() and path.name != ".lock"]
        return {str(path.relative_to(self.root)): path.stat().st_mtime_ns for path in files}


def rows(path):
    """The cells of a table's rows, without its head."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


LIBRISPEECH = (
    "bash recipes/librispeech/run.sh --corpus corpus --name tiny --config tiny.yaml --tokens '--kind characters' "
    "--modes ctc-greedy"
)
STEPS = ["data/tiny", "exp/tiny/tokenizer", "exp/tiny/model", "exp/tiny/test-clean.ctc-greedy.txt"]
AISHELL = (
    "bash recipes/aishell/run.sh --corpus corpus --name tiny --config tiny.yaml --test test --lm lm.yaml --modes joint "
    "--decode '--ctc-weight 0.4 --beam 2'"
)
MISTAKES = """
    --train 460 | corpus has no train-clean-360/; add it, or choose others with --train and --dev
    --name new --dry-run trainng.epochs=3 | trainng: no such setting; did you mean 'training'?
    --name new --modes 'joint jiont' | run.sh: --mode: got 'jiont', expected one of joint, attention
    --name new --lm lm.yaml --decode-lm --lm-weight=-1 | run.sh: --lm-weight: got -1.0
    --name new trainng.epochs=3 | trainng: no such setting; did you mean 'training'?
    --name new --modes joint --decode '--beam 0' | run.sh: --beam: got 0, expected 1
    --config x960.yaml | corpus has no train-clean-360/
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """A house with a corpus, which lacks test-other."""
    house = House(tmp_path_factory.mktemp("librispeech"))
    sizes = {"train-clean-100": 6, "dev-clean": 2, "test-clean": 4, "dev-other": 2}
    miniatures.librispeech(house.root / "corpus/LibriSpeech", sizes)
    return house


@pytest.fixture(scope="module")
def said(house):
    """What the recipe says that has run in it."""
    return house.run(LIBRISPEECH)


@needs_commands
@slow
def test_librispeech_from_corpus_to_table(house, said):
    out, err = said
    assert "corpus has no test-other/, so that set isn't decoded" in err
    pattern = r"result recipe=tiny set=test-clean mode=ctc-greedy wer=[\d.]+ lo=[\d.]+ hi=[\d.]+ words=\d+ rtf=[\d.]+ "
    assert re.search(pattern + r"seconds=\d+\n", out), out
    prepared = [path.name for path in sorted((house.root / "data/tiny").glob("*.gz"))]
    assert " ".join(prepared) == "dev-clean.jsonl.gz test-clean.jsonl.gz train-clean-100.jsonl.gz"
    [row] = rows(house.root / "exp/tiny/results.md")
    assert row[:3] == ["test-clean", "ctc greedy", ""]


@needs_commands
@slow
def test_the_second_run_does_nothing_and_a_plan_says_so(house, said):
    before = house.times()
    planned, text = house.plan(LIBRISPEECH)
    assert planned == dict.fromkeys(STEPS, "done") and "nothing to do" in text
    house.run(LIBRISPEECH)
    assert house.times() == before


@needs_commands
@slow
def test_a_changed_setting_redoes_what_depends_on_it_as_the_plan_says(house, said):
    before, changed = house.times(), f"{LIBRISPEECH} training.epochs=2"
    planned, text = house.plan(changed)
    assert list(planned.items()) == [*zip(STEPS, ["done", "done", "to do", "depends"], strict=True)]
    assert "2 steps to do" in text
    assert re.search(r"exp/tiny/model; time: took \d+ s last time, on \d+ × ", text)
    house.run(changed)
    touched = {path for path, _ in house.times().items() - before.items()}
    touched = {path for path in touched if not path.startswith("exp/tiny/model")}
    table = "exp/tiny/results.md"  # which stays, to the byte, where its rates happen to be the same
    assert touched | {table} == {STEPS[3], "exp/tiny/.test-clean.ctc-greedy.txt.stamp.json", table}
    assert house.plan(changed)[0] == dict.fromkeys(STEPS, "done")


@needs_commands
@slow
def test_a_plan_before_anything_is_made_names_every_step_and_the_heads_of_the_yaml(house):
    planned, text = house.plan(f"{LIBRISPEECH} --name new --lm lm.yaml --lm-text corpus")
    later = "tokenizer", "lm", "model", "test-clean.ctc-greedy.txt", "test-clean.joint+lm.txt"
    depends = [(f"exp/new/{name}", "depends") for name in later]
    assert list(planned.items()) == [("data/new", "to do"), *depends]
    assert "exp/new/model; time: a second; disk: 1 MB\n" in text
    assert "exp/new/lm; time: unknown; asr-train --check estimates it; disk: unknown" in text


@needs_commands
@slow
def test_an_n_gram_model_is_decoded_with_and_shards_of_manifests_are_trained_on(house, said):
    """Training reads shards; tokens, the language model and decoding need none."""
    states = ["to do", "depends", "depends", "depends"]
    assert [*house.plan(f"{LIBRISPEECH} --shar")[0].values()] == states
    command = f"{LIBRISPEECH} --shar --name grams --ngram 2 --decode-lm '--lm-weight 0.4'"
    later = "tokenizer lm.arpa.gz model test-clean.ctc-greedy.txt test-clean.joint+lm.txt"
    assert list(house.plan(command)[0])[1:] == [f"exp/grams/{name}" for name in later.split()]
    out, _ = house.run(command)
    assert "result recipe=grams set=test-clean mode=joint+lm wer=" in out
    [fused, plain] = rows(house.root / "exp/grams/results.md")
    assert (fused[2], plain[2]) == ("lm.arpa.gz 0.4", "")
    shards = "data/grams/train-clean-100.shar"
    assert f"train: {shards}.jsonl.gz" in (house.root / "exp/grams/model/config.yaml").read_text()
    assert (house.root / f"{shards}.jsonl.gz").is_file() and (house.root / shards).is_dir()
    assert {*house.plan(command)[0].values()} == {"done"}


@needs_commands
@slow
def test_aishell_with_a_language_model_has_a_table_of_mixed_errors(tmp_path):
    """The table's numbers are those of the score and the stamps; the seconds of a result count the language model."""
    miniatures.aishell(tmp_path / "corpus/data_aishell", {"train": 6, "dev": 2, "test": 3})
    out, _ = House(tmp_path).run(AISHELL)
    exp = tmp_path / "exp/tiny"
    plain, fused = rows(exp / "results.md")
    assert plain[:3] == ["test", "joint 2, CTC 0.4", ""]
    hyp = exp / "test.joint+lm.txt"
    found = score(tmp_path / "data/tiny/test.jsonl.gz", hyp, unit="mixed").scores["mixed"]
    total, made = found.total, stamp.read(hyp)["made"]
    assert fused == [
        *("test", "joint 2, CTC 0.4", "lm 0.3", f"{100 * total.rate:.2f}"),
        f"{100 * found.low:.2f} – {100 * found.high:.2f}",
        *map(str, (total.substitutions, total.deletions, total.insertions)),
        *(f"{made['rtf']:.4f}", made["hardware"], made["commit"], f"{made['seconds']:.0f}"),
    ]
    trained, text = stamp.read(exp / "model")["made"], (exp / "results.md").read_text()
    where = f"on {trained['hardware']}, commit {trained['commit']}."
    assert f"trained for {trained['seconds']:.0f} s {where}" in text and "| MER % |" in text
    assert text.count("trained for") == 2
    assert "exp/tiny/lm/model.safetensors" in stamp.read(hyp)["inputs"]
    for mode, more in {"joint": [], "joint+lm": ["lm"]}.items():
        paths = [exp / name for name in ("tokenizer", "model", *more, f"test.{mode}.txt")]
        taken = [stamp.read(path)["made"]["seconds"] for path in (tmp_path / "data/tiny", *paths)]
        result = rf"tiny set=test mode={re.escape(mode)} mer=[\d.]+ .* units=\d+ rtf=.*"
        assert re.search(f"result recipe={result} seconds={sum(taken):.0f}\n", out), (taken, out)


@needs_commands
@slow
def test_a_table_is_written_between_its_markers_and_nowhere_else(house, said, tmp_path):
    page, write = tmp_path / "README.md", f"python -m scripts.results {tmp_path}/README.md"
    before, after = "# Results\n\n<!-- results: other -->\n<!-- end -->\n", "\nThe end.\n"
    page.write_text(f"{before}<!-- results: tiny -->\nold\n<!-- end -->{after}")
    house.run(f"{write} tiny")
    text = page.read_text()
    assert text.startswith(before) and text.endswith(f"<!-- end -->{after}") and "old" not in text
    assert len(rows(page)) == 1
    assert "up to date" in house.run(f"{write} tiny")[1] and page.read_text() == text
    page.write_text(before.replace("other", "tiny").replace("<!-- end -->", ""))
    assert "<!-- results: tiny --> has no <!-- end -->" in house.run(f"{write} tiny", 2)[1]
    assert "exp/none: no text of asr-decode" in house.run(f"{write} none", 2)[1]


@needs_commands
@slow
def test_a_text_without_references_or_of_another_model_is_left_out_of_the_table(
    house, said, tmp_path
):
    text, mark = house.root / "exp/tiny/new.txt", house.root / "exp/tiny/.new.txt.stamp.json"
    made, model = stamp.read(house.root / STEPS[3]), "exp/tiny/model/model.safetensors"
    text.write_text("new\tHIGH\n")
    inputs = made["inputs"]
    unreferenced = {path: now for path, now in inputs.items() if ".jsonl" not in path}
    for reason, others in {
        "was decoded from 0 manifests, expected one": unreferenced,
        f"{model} isn't what it was decoded with": inputs | {model: "another"},
    }.items():
        mark.write_text(json.dumps(made | {"inputs": others}))
        _, err = house.run(f"python -m scripts.results {tmp_path}/README.md tiny")
        assert "exp/tiny/new.txt: left out, for " in err and reason in err
        assert len(rows(tmp_path / "README.md")) == 1
    text.unlink()
    mark.unlink()


@needs_commands
@each("words, message", partly(rows_of(MISTAKES), 8))
def test_mistakes_are_one_line_and_nothing_runs(house, words, message):
    before = house.times()
    _, err = house.run(f"{LIBRISPEECH} {words}", 2)
    assert message in err and len(err.splitlines()) == 1 and house.times() == before


def test_an_environment_whose_making_was_stopped_is_made_to_its_end(tmp_path):
    """With a Python that only makes folders, and one in the environment that pip isn't in yet."""
    copy(tmp_path, "scripts")
    (tmp_path / "pyproject.toml").touch()
    write_program(tmp_path / ".venv/bin/python", "#!/bin/sh\nexit 1\n")
    venv = '[ "$2" != venv ] || echo "#!/bin/sh" >.venv/bin/python'
    write_program(tmp_path / "python", f"#!/bin/sh\n{venv}\n")
    bare = {"VIRTUAL_ENV": "", "CONDA_PREFIX": "", "ASR_PYTHON": str(tmp_path / "python")}
    status, _, err = bash(tmp_path, "-e", "scripts/environment.sh", **bare)
    assert status == 0 and "ready after" in err, err


SLURM = {
    "srun": "exec sleep 60",
    "scontrol": 'echo "scontrol $*" >>said; [ "$1" != show ] || echo node1',
    "scancel": 'echo "scancel $*" >>said',
    "../stub.sh": 'echo "recipe $*; $ASR_LAUNCHER" >>said; sleep 2; echo finished >>said; exit 3',
}
JOB = """RECIPE=stub.sh SAVING_SECONDS=0 SLURM_JOB_NODELIST=node[1-2] SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2
SLURM_GPUS_ON_NODE=4"""
LAUNCHER = """recipe --name x; srun --nodes=2 --ntasks-per-node=1 bash scripts/node.sh --nnodes 2 --nproc-per-node 4
--rdzv-id 7 --rdzv-backend c10d --rdzv-endpoint node1:20007"""


def test_a_slurm_job_starts_training_on_all_nodes_and_saves_before_it_is_requeued(heeded, tmp_path):
    """With a recipe and a Slurm that only say what they are asked."""
    for name, body in SLURM.items():
        write_program(tmp_path / "bin" / name, f"#!/usr/bin/env bash\n{body}\n")
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"SLURM_SUBMIT_DIR": str(tmp_path), "PATH": path}
    environment |= dict(word.split("=") for word in JOB.split())
    command = ["bash", ROOT / "recipes/librispeech/slurm.sbatch", "--name", "x"]
    said = tmp_path / "said"
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as job:
        while not said.exists() or "recipe" not in said.read_text():
            assert job.poll() is None
            time.sleep(0.05)
        job.send_signal(signal.SIGUSR1)
        assert job.wait() == 3  # the recipe's own status, for the scheduler's log
    _, recipe, *signals = said.read_text().splitlines()
    assert recipe.split() == LAUNCHER.split()
    assert signals == ["scancel --signal=USR1 7", "scontrol requeue 7", "finished"]


@needs_commands
def test_a_step_of_training_goes_through_the_launcher_and_a_planned_one_nowhere(tmp_path):
    steps = ". scripts/recipe.sh\nstep asr-train --gpus all 'a b'\nstep echo 'c d'\n"
    words = copy(tmp_path, "scripts"), "-c", steps
    out = "launched -m asr.cli.train --gpus all a b\nc d\n"
    assert bash(*words, ASR_LAUNCHER="echo launched") == (0, out, "")
    assert bash(*words, ASR_LAUNCHER="echo launched", ASR_PLAN="plan") == (0, "", "")
    assert (tmp_path / "plan").read_text() == "4\0asr-train\0--gpus\0all\0a b\0" + "2\0echo\0c d\0"


CORPORA = ("librispeech", "aishell-[!m]", "lm")  # not those of a miniature
PUBLISHED = sorted(path for name in CORPORA for path in (ROOT / "conf").glob(f"{name}*.yaml"))


@each("path", PUBLISHED, ids=lambda path: path.stem)
def test_a_configuration_opens_with_command_time_disk_and_whose_error_rate(path):
    head = path.read_text().partition("out: ")[0]
    assert re.match(rf".*\n#   .*{path.relative_to(ROOT)}", head)
    assert len(re.findall("^# (?:time|disk): ", head, re.M)) == 2
    assert re.search("^# (WER|CER): ", head, re.M)
    assert path.stem == "lm" or ("ESPnet's" in head and "not yet run to" in head)
    disk = float(re.search(r"^# disk: ([\d.]+) GB", head, re.M)[1])
    assert disk == pytest.approx(gigabytes(path), rel=0.2)


def gigabytes(path):
    """Weights, the best and the last of `average` epochs, and `keep` training states and the one being written."""
    experiment = load(Experiment, path)
    sizes, settings = experiment.model, experiment.training
    speech = sizes.kind != "lm" and experiment.features
    with torch.device("meta"):
        model = Hybrid(sizes, speech.fbank.mels, 5000) if speech else TransformerLM(sizes, 5000)
    weights = 4 * sum(p.numel() for p in model.parameters())  # fp32
    states = 3 * (settings.keep + 1)  # a state has two moments of Adam, too
    return (1 + 2 * settings.average + states) * weights / 1e9
