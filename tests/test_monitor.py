"""Prove what a person sees of a training: the files of constructed steps, their averages by hand; a run that is stopped
and continued writes what the uninterrupted one writes, its times apart; the curves that are drawn are the figures'.
"""

import json
import math
import os
import re
import subprocess
import sys

import matplotlib.image
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from asr import optional
from asr.errors import UserError
from asr.training import metrics as shown_metrics
from asr.training import plots
from asr.training.metrics import TIMES, MetricsFile
from asr.training.monitor import MOST_SKIPPED, Monitor

SUMS = ("ctc", "attention", "correct", "tokens")
DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "


def build(out, log_every=2, **more):
    return Monitor(out, SUMS, "s", log_every, **more)


def take(monitor, step, ctc=3.0, tokens=10, norm=1.0, seconds=0.5):
    """One step of an epoch of four: half of the tokens are right, 20 s of audio, a tenth of the time is waiting."""
    sums = {"ctc": ctc, "attention": 2 * ctc, "correct": tokens / 2, "tokens": tokens}
    monitor.step(sums, norm, 1e-3 / step, step, step / 4, 20.0, seconds / 10, seconds)


def lines(out, kind=None):
    return [
        line for line in MetricsFile(out / "metrics.jsonl").read() if kind in (None, line["kind"])
    ]


def untimed(out):
    return [{name: fact for name, fact in line.items() if name not in TIMES} for line in lines(out)]


def scalars(out, tag):
    board = EventAccumulator(str(out / "tensorboard")).Reload()
    return [(event.step, pytest.approx(event.value, rel=1e-6)) for event in board.Scalars(tag)]


def test_lines_are_means_since_the_line_before(tmp_path):
    monitor = build(tmp_path)
    for step, (ctc, tokens, norm) in enumerate(
        [(6.0, 10, 1.0), (3.0, 20, 2.0), (5.0, 10, 4.0), (5.0, 40, 6.0)], 1
    ):
        take(monitor, step, ctc, tokens, norm)
    first, second = lines(tmp_path)
    assert list(first) == [
        *("kind", "date", "step", "epoch", "ctc", "attention", "accuracy", "gradient_norm", "lr"),
        *("s_per_second", "wait"),
    ]
    assert (first["kind"], first["step"], first["epoch"], first["lr"]) == ("train", 2, 0.5, 5e-4)
    assert (first["ctc"], first["attention"]) == (pytest.approx(9 / 30), pytest.approx(18 / 30))
    assert (first["accuracy"], first["gradient_norm"]) == (0.5, 1.5)
    assert (first["s_per_second"], first["wait"]) == (pytest.approx(40.0), pytest.approx(0.1))
    assert (second["step"], second["ctc"], second["gradient_norm"]) == (
        4,
        pytest.approx(10 / 50),
        5.0,
    )
    assert second["lr"] == 1e-3 / 4
    log = (tmp_path / "train.log").read_text().splitlines()
    shown = r"ctc 0\.300 att 0\.600 acc 50\.0% \| norm 1\.50 lr 5\.00e-04 \| 40 s/s wait 10%"
    assert len(log) == 2 and re.fullmatch(rf"{DATE}epoch   0\.50 step      2 \| {shown}", log[0])
    monitor.close()
    assert scalars(tmp_path, "train/ctc") == [(2, 0.3), (4, 0.2)]
    for name in ("attention", "accuracy", "gradient_norm", "lr", "s_per_second", "wait"):
        assert scalars(tmp_path, f"train/{name}") == [(2, first[name]), (4, second[name])]


def test_a_validation_is_said_logged_and_recorded_and_begins_new_means(tmp_path, capsys):
    monitor = build(tmp_path, log_every=100)
    take(monitor, 1, ctc=4.0)
    take(monitor, 2, ctc=2.0)
    assert monitor.line() == "ctc 0.300 att 0.600 acc 50.0% | 40 s/s wait 10%"
    monitor.validated(
        {"loss": 1.5, "accuracy": 0.75, "wer": 0.25, "made_up": 2 / 3}, 1, 2, best=True
    )
    take(monitor, 3, ctc=5.0)
    assert monitor.line().startswith("ctc 0.500 ")
    monitor.validated({"loss": math.inf, "wer": math.nan}, 2, 3, best=False)
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "epoch   1 step      2 | train ctc 0.300 att 0.600 acc 50.0% | 40 s/s wait 10% "
        "| dev loss 1.500 acc 75.0% wer 25.00% made_up 0.6667 *",
        "epoch   2 step      3 | train ctc 0.500 att 1.000 acc 50.0% | 40 s/s wait 10% | dev loss inf wer nan%",
    ]
    log = (tmp_path / "train.log").read_text().splitlines()
    assert [re.sub(f"^{DATE}", "", line) for line in log] == said and all(
        re.match(DATE, line) for line in log
    )
    first, second = untimed(tmp_path)
    figures = {"loss": 1.5, "accuracy": 0.75, "wer": 0.25, "made_up": 2 / 3}
    assert first == {"kind": "dev", "epoch": 1, "step": 2, **figures}
    assert second == {
        "kind": "dev",
        "epoch": 2,
        "step": 3,
        "loss": None,
        "wer": None,
    }  # JSON knows no NaN
    assert scalars(tmp_path, "dev/wer")[0] == (2, 0.25)


def test_what_is_not_finite_is_left_out_of_the_means(tmp_path):
    monitor = build(tmp_path, log_every=3)
    take(monitor, 1, ctc=3.0, norm=2.0)
    take(
        monitor, 2, ctc=5.0, norm=math.nan
    )  # a gradient that overflowed: the loss counts, the norm doesn't
    take(monitor, 3, ctc=math.inf, norm=math.nan)
    (line,) = lines(tmp_path)
    assert (line["ctc"], line["gradient_norm"]) == (pytest.approx(8 / 20), 2.0)
    for step in (4, 5, 6):
        take(monitor, step, norm=math.nan)
    assert lines(tmp_path)[1]["gradient_norm"] is None


def run(monitor, steps, stop=None):
    """Steps of four an epoch, each epoch validated; `stop` ends it after the step, before its epoch's validation."""
    for step in steps:
        take(monitor, step, ctc=1 / (step + 2), norm=math.nan if step == 5 else math.sqrt(step))
        if step == stop:
            return
        if step % 4 == 0:
            monitor.validated({"loss": 1 / (step + 1)}, step // 4, step, best=True)


@pytest.mark.parametrize("saved_at, stop", [(3, 3), (3, 7), (5, 9), (6, 6), (8, 12), (7, 13)])
def test_continued_equals_uninterrupted(tmp_path, saved_at, stop):
    """The state of step saved_at goes on, after a kill at step stop; validation metrics stand between them or not."""
    run(build(tmp_path / "whole", log_every=3), range(1, 14))
    killed = build(tmp_path / "killed", log_every=3)
    run(killed, range(1, saved_at + 1))
    state = json.dumps(killed.state)
    run(killed, range(saved_at + 1, stop + 1))
    with open(tmp_path / "killed/metrics.jsonl", "a") as file:
        file.write('{"kind": "dev", "st')
    continued = build(tmp_path / "killed", log_every=3)
    continued.state = json.loads(state)
    continued.rewind(saved_at)
    run(continued, range(saved_at + 1, 14))
    assert untimed(tmp_path / "killed") == untimed(tmp_path / "whole")
    assert len(untimed(tmp_path / "whole")) == 4 + 3
    continued.close()
    for tag in ("train/ctc", "dev/loss"):
        assert [step for step, _ in scalars(tmp_path / "killed", tag)] == {
            "train/ctc": [3, 6, 9, 12],
            "dev/loss": [4, 8, 12],
        }[tag]


def test_a_validation_that_a_kill_came_after_is_not_written_twice(tmp_path):
    """Saved at an epoch's last step, before its validation: the step is the same, but the validation comes again."""
    monitor = build(tmp_path)
    run(monitor, range(1, 9), stop=8)
    state = monitor.state
    monitor.validated({"loss": 0.5}, 2, 8, best=True)
    monitor.chosen("ema", {"ema": {"loss": 0.5}}, 2, 8)
    monitor.state = state
    monitor.rewind(8)
    assert [line["step"] for line in lines(tmp_path, "dev")] == [4]
    monitor.validated({"loss": 0.5}, 2, 8, best=True)
    monitor.rewind(8)
    assert [line["step"] for line in lines(tmp_path, "dev")] == [4, 8]
    assert [line["step"] for line in lines(tmp_path, "train")] == [2, 4, 6, 8]
    assert not lines(tmp_path, "candidate")


def test_the_log_is_never_rewound(tmp_path):
    monitor = build(tmp_path)
    run(monitor, range(1, 5))
    before = (tmp_path / "train.log").read_text()
    monitor.rewind(0)
    monitor.log("continuing at epoch 1, batch 1")
    assert lines(tmp_path) == []
    assert re.fullmatch(
        re.escape(before) + DATE + "continuing at epoch 1, batch 1\n",
        (tmp_path / "train.log").read_text(),
    )


def test_a_rewind_that_fails_leaves_the_file_whole(tmp_path, monkeypatch):
    monitor = build(tmp_path)
    run(monitor, range(1, 5))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    monkeypatch.setattr(os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        monitor.rewind(2)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_skipped_steps_are_said_and_too_many_in_a_row_end_the_training(tmp_path, capsys):
    monitor = build(tmp_path)
    for n in range(1, MOST_SKIPPED):
        monitor.skipped("utterances a, b", n, "its loss isn't finite")
        take(monitor, n, norm=math.nan)
    assert (
        capsys.readouterr().err.splitlines()[0]
        == "step 1 left out: its loss isn't finite; utterances a, b"
    )
    monitor.state = json.loads(json.dumps(monitor.state))
    take(monitor, 10)  # a good one: the count begins anew
    for n in range(1, MOST_SKIPPED):
        monitor.skipped("a", n, "its loss isn't finite")
    other = build(
        tmp_path, speaks=False
    )  # another process counts as this one does, and so does a continued one
    other.state = monitor.state
    message = (
        "training: 10 steps in a row were left out, the last because its gradient isn't finite; "
        "lower optimizer.lr or training.clip, or use training.precision=fp32"
    )
    for each in (monitor, other):
        with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
            each.skipped("a", 20, "its gradient isn't finite")
    assert (tmp_path / "train.log").read_text().endswith(f" {message}\n")


def test_the_candidates_are_shown_as_a_table(tmp_path, capsys):
    monitor = build(tmp_path)
    candidates = {
        "average of the best 3": {"loss": 0.5, "wer": 0.0831},
        "ema": {"loss": 12.25, "wer": 0.1},
        "best": {"loss": 2},
    }
    monitor.chosen("ema", candidates, 4, 40)
    assert capsys.readouterr().err.splitlines() == [
        "the model is: ema",
        "                           loss     wer",
        "  average of the best 3   0.500   8.31%",
        "  ema                    12.250  10.00%  <- the model",
        "  best                    2.000       -",
    ]
    assert untimed(tmp_path)[1] == {
        **{"kind": "candidate", "epoch": 4, "step": 40, "name": "ema", "chosen": True},
        **{"loss": 12.25, "wer": 0.1},
    }
    assert [line["chosen"] for line in lines(tmp_path)] == [False, True, False]
    monitor.chosen("last", {}, 4, 40)
    assert capsys.readouterr().err == "the model is: last\n"


def test_other_processes_write_nothing_and_keep_the_same_state(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plots, "PAUSE", 0.0)
    leader, other = build(tmp_path / "leader"), build(tmp_path / "other", speaks=False)
    for monitor in (leader, other):
        run(monitor, range(1, 8))
        monitor.chosen("x", {"x": {"loss": 1.0}}, 1, 7)
        monitor.rewind(7)
        monitor.log("something")
    assert other.state == leader.state and not (tmp_path / "other").exists()
    capsys.readouterr()
    other.log("something")
    other.alignments({"a": torch.eye(2)}, 7)
    other.close()
    assert capsys.readouterr() == ("", "") and not (tmp_path / "other").exists()


def test_the_bar_is_silent_without_a_terminal_and_counts_for_the_loop(tmp_path, capsys):
    monitor = build(tmp_path)
    with monitor.bar(total=8, done=2, epoch=1, epochs=3) as bar:
        assert bar.disable
        take(monitor, 1)
        bar.update(1)
    assert capsys.readouterr().err == ""


def test_the_bar_shows_the_means_and_the_time_left(tmp_path, monkeypatch):
    monitor, clock = build(tmp_path, log_every=100), iter([0.0, 60.0])
    bar = monitor.bar(total=8, done=2, epoch=1, epochs=3)
    posts = []
    monkeypatch.setattr(bar, "set_postfix_str", lambda text, refresh: posts.append(text))
    monkeypatch.setattr("asr.training.monitor.time.monotonic", lambda: next(clock))
    take(monitor, 4)  # epoch 1.0
    take(monitor, 6)  # epoch 1.5, a minute later: three minutes to epoch 3
    shown = "ctc 0.300 att 0.600 acc 50.0% | 40 s/s wait 10%"
    assert posts == [shown, f"in all 03:00 | {shown}"]


# ---- pictures


def record(kind, epoch, **facts):
    return {"kind": kind, "date": "2026-01-01", "step": round(10 * epoch), "epoch": epoch, **facts}


SPEECH = [
    record(
        "train",
        0.5,
        ctc=30.0,
        attention=6.0,
        accuracy=0.1,
        gradient_norm=3.0,
        lr=1e-4,
        s_per_second=9.0,
        wait=0.0,
    ),
    record("dev", 1, loss=5.0, accuracy=0.3, wer=1.0, ctc_wer=0.9, seconds=17.0),
    record(
        "train",
        5.5,
        ctc=2.0,
        attention=1.0,
        accuracy=0.8,
        gradient_norm=2.0,
        lr=1e-3,
        s_per_second=9.0,
        wait=0.0,
    ),
    record("dev", 10, loss=1.5, accuracy=0.7, wer=0.25, ctc_wer=None, seconds=18.0),
    record("candidate", 10, name="ema", chosen=True, loss=1.25),
]


def drawn(figure):
    """Panel → legend → its points."""
    panels = {}
    for axes in figure.axes:
        series = panels[axes.get_title(loc="left")] = {}
        for line in axes.get_lines():
            series[line.get_label()] = list(zip(*map(list, line.get_data()), strict=True))
    return panels


def test_the_curves_are_the_figures():
    figure = plots.curves(SPEECH)
    panels = drawn(figure)
    assert list(panels) == [
        "loss per token",
        "token accuracy [%]",
        "error rate on dev [%]",
        "learning rate",
    ]
    assert panels["loss per token"] == {
        "train ctc": [(0.5, 30.0), (5.5, 2.0)],
        "train att": [(0.5, 6.0), (5.5, 1.0)],
        "dev loss, best 1.500": [(1, 5.0), (10, 1.5)],
    }
    assert panels["token accuracy [%]"] == {
        "train acc": [(0.5, 10.0), (5.5, 80.0)],
        "dev acc, best 70.0%": [(1, 30.0), (10, 70.0)],
    }
    rates = panels["error rate on dev [%]"]
    assert rates["dev wer, best 25.00%"] == [(1, 100.0), (10, 25.0)]
    assert rates["dev ctc-wer, best 90.00%"] == [
        (1, 90.0),
        (10, pytest.approx(math.nan, nan_ok=True)),
    ]
    assert panels["learning rate"] == {"train lr": [(0.5, 1e-4), (5.5, 1e-3)]}
    loss = figure.axes[0]  # what comes before a tenth of the run doesn't press the rest flat
    assert loss.get_ylim()[1] < 6.0 and loss.get_xlim() == (0, 10) and loss.get_xlabel() == "epoch"
    assert [text.get_text() for text in loss.get_legend().get_texts()] == list(
        panels["loss per token"]
    )


def test_the_curves_of_a_language_model_show_perplexities():
    panels = drawn(
        plots.curves(
            [record("train", 1, nll=2.0, lr=1e-3), record("dev", 1, loss=2.1, perplexity=8.2)]
        )
    )
    assert list(panels) == ["loss per token", "perplexity on dev", "learning rate"]
    assert panels["perplexity on dev"] == {"dev ppl, best 8.20": [(1, 8.2)]}


@pytest.mark.parametrize(
    "metrics", [[], SPEECH[:1], SPEECH[1:2], [record("dev", 1, loss=None, wer=None)]]
)
def test_curves_of_little_can_be_drawn(metrics):
    assert plots.pixels(plots.curves(metrics)).std() >= 0


def test_pictures_are_drawn_at_the_end_and_not_too_often_before(tmp_path, monkeypatch):
    monitor = build(tmp_path)
    run(monitor, range(1, 5))
    maps = {"a/b $x": torch.eye(3, 5), "c": torch.eye(2, 4), "é" * 100: torch.eye(2, 4)}
    monitor.alignments(maps, 4)
    assert (
        not (tmp_path / "curves.png").exists() and not (tmp_path / "alignments").exists()
    )  # seconds into the run
    monkeypatch.setattr(plots, "PAUSE", 0.0)
    run(monitor, range(5, 9))
    assert matplotlib.image.imread(tmp_path / "curves.png").std() > 0.01
    (tmp_path / "curves.png").unlink()
    monkeypatch.undo()
    monitor.alignments(maps, 8)
    monitor.close()
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG\r\n")
    names = {path.name for path in (tmp_path / "alignments").iterdir()}
    assert names >= {"a_b__x.png", "c.png"} and {
        name[:40] for name in names - {"a_b__x.png", "c.png"}
    } == {"é" * 40}
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [image.step for image in board.Images("alignment/c")] == [8]
    assert board.Images("alignment/c")[0].encoded_image_string.startswith(b"\x89PNG\r\n")


def test_without_matplotlib_it_is_said_once_and_training_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(plots, "PAUSE", 0.0)
    monitor = build(tmp_path)
    run(monitor, range(1, 13))
    monitor.close()
    said = [line for line in capsys.readouterr().err.splitlines() if "matplotlib" in line]
    reason = "import of matplotlib.figure halted; None in sys.modules"
    assert said == [
        f"no plots are drawn: matplotlib can't be imported ({reason}); pip install 'matplotlib>=3.8'"
    ]
    assert len(lines(tmp_path, "dev")) == 3 and not (tmp_path / "curves.png").exists()
    with pytest.raises(UserError, match="^matplotlib can't be imported"):
        optional.matplotlib("matplotlib.figure")


def test_drawing_needs_no_display_and_importing_no_matplotlib(tmp_path):
    code = """
import sys
from pathlib import Path
from asr.training.monitor import Monitor
heavy = {"matplotlib", "tensorboard", "torch.utils.tensorboard"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
monitor = Monitor(Path(sys.argv[1]), ("ctc", "correct", "tokens"), "s", 1)
monitor.step({"ctc": 3.0, "correct": 1.0, "tokens": 2.0}, 1.0, 1e-3, 1, 0.5, 9.0, 0.1, 1.0)
monitor.close()
assert "matplotlib.pyplot" not in sys.modules
"""
    unset = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DISPLAY", "WAYLAND_DISPLAY")
    }
    environment = {**unset, "MPLBACKEND": "tkagg"}  # which would ask for a display
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "curves.png").exists()


def test_figures_are_shown_by_one_table():
    shown = {
        "ctc": 1.0,
        "wer": 0.5,
        "tokens_per_second": 5213.4,
        "s_per_second": 1.26,
        "new": 1 / 3,
        "whole": 3,
    }
    assert (
        shown_metrics.line(shown) == "ctc 1.000 wer 50.00% 5213 tokens/s 1.3 s/s new 0.3333 whole 3"
    )
