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
from pytest import approx
from refusals import refused
from runs import history
from small import each, options, rows, slow
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from asr import imports
from asr.training import metrics as shown_metrics
from asr.training import plots
from asr.training.metrics import MetricsFile
from asr.training.monitor import MOST_SKIPPED, Monitor

DATE = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
SHOWN = "ctc 0.300 att 0.600 acc 50.0% | 40 s/s wait 10%"


def build(out, log_every=2, **more):
    return Monitor(out, ("ctc", "attention", "correct", "tokens"), "s", log_every, **more)


def take(monitor, step, ctc=3.0, tokens=10, norm=1.0, seconds=0.5):
    """One step of an epoch of four: half of the tokens are right, 20 s of audio, a tenth of the time is waiting."""
    sums = {"ctc": ctc, "attention": 2 * ctc, "correct": tokens / 2, "tokens": tokens}
    monitor.step(sums, norm, 1e-3 / step, step, step / 4, 20.0, seconds / 10, seconds)


def steps(out, kind):
    return [line["step"] for line in history(out) if line["kind"] == kind]


def board(out):
    return EventAccumulator(str(out / "tensorboard")).Reload()


def scalars(out, tag):
    return {event.step: approx(event.value, rel=1e-6) for event in board(out).Scalars(tag)}


TWO = options("""step: 2, epoch: 0.5, ctc: 0.3, attention: 0.6, accuracy: 0.5,
    gradient_norm: 1.5, lr: 5.0e-4, s_per_second: 40, wait: 0.1""")
FOUR = options("""step: 4, epoch: 1, ctc: 0.2, attention: 0.4, accuracy: 0.5,
    gradient_norm: 5, lr: 2.5e-4, s_per_second: 40, wait: 0.1""")


def test_lines_are_means_since_the_line_before(tmp_path):
    monitor = build(tmp_path)
    for step, sums in enumerate([(6.0, 10, 1), (3.0, 20, 2), (5.0, 10, 4), (5.0, 40, 6)], 1):
        take(monitor, step, *sums)
    monitor.close()
    lines = MetricsFile(tmp_path / "metrics.jsonl").read()
    for line, expected in zip(lines, (TWO, FOUR), strict=True):
        assert list(line) == ["kind", "date", *expected]
        assert line == approx({"kind": "train", "date": line["date"]} | expected)
    for name in [*TWO][2:]:
        assert scalars(tmp_path, f"train/{name}") == {2: TWO[name], 4: FOUR[name]}
    log = (tmp_path / "train.log").read_text().splitlines()
    shown = r"ctc 0\.300 att 0\.600 acc 50\.0% \| norm 1\.50 lr 5\.00e-04 \| 40 s/s wait 10%"
    assert len(log) == 2 and re.fullmatch(rf"{DATE}epoch   0\.50 step      2 \| {shown}", log[0])


def test_a_validation_is_said_logged_and_recorded_and_begins_new_means(tmp_path, stderr):
    monitor = build(tmp_path, log_every=100)
    figures = options("loss: 1.5, accuracy: 0.75, wer: 0.25, made_up: 0.66666667")
    take(monitor, 1, ctc=4.0)
    take(monitor, 2, ctc=2.0)
    assert monitor.line() == SHOWN
    monitor.validated(figures, 1, 2, best=True)
    take(monitor, 3, ctc=5.0)
    monitor.validated({"loss": math.inf, "wer": math.nan}, 2, 3, best=False)
    expected = f"""\
epoch   1 step      2 | train {SHOWN} | dev loss 1.500 acc 75.0% wer 25.00% made_up 0.6667 *
epoch   2 step      3 | train ctc 0.500 att 1.000 acc 50.0% | 40 s/s wait 10% | dev loss inf wer nan%
"""
    assert stderr() == expected
    log = (tmp_path / "train.log").read_text()
    assert re.sub(f"^{DATE}", "", log, flags=re.M) == expected != log
    unknown = options("kind: dev, epoch: 2, step: 3, loss: null, wer: null")  # JSON knows no NaN
    assert history(tmp_path) == [options("kind: dev, epoch: 1, step: 2") | figures, unknown]
    assert scalars(tmp_path, "dev/wer")[2] == 0.25


def test_what_is_not_finite_is_left_out_of_the_means(tmp_path):
    """A gradient that overflowed: the loss counts, the norm doesn't."""
    monitor = build(tmp_path, log_every=3)
    for step, ctc, norm in ((1, 3.0, 2.0), (2, 5.0, math.nan), (3, math.inf, math.nan)):
        take(monitor, step, ctc, norm=norm)
    for step in (4, 5, 6):
        take(monitor, step, norm=math.nan)
    first, second = history(tmp_path)
    assert (first["ctc"], first["gradient_norm"]) == (approx(8 / 20), 2.0)
    assert second["gradient_norm"] is None


def run(monitor, first, last, validate=True):
    """Steps of four an epoch, each epoch validated; or not the one of the last step."""
    for step in range(first, last + 1):
        take(monitor, step, ctc=1 / (step + 2), norm=math.nan if step == 5 else math.sqrt(step))
        if step % 4 == 0 and (validate or step < last):
            monitor.validated({"loss": 1 / (step + 1)}, step // 4, step, best=True)


@each("saved_at, stop", [(3, 3), (3, 7), (5, 9), (6, 6), (8, 12), (7, 13)])
def test_continued_equals_uninterrupted(tmp_path, saved_at, stop):
    """The state of step saved_at goes on, after a kill at step stop; validation metrics stand between them or not."""
    whole, out = tmp_path / "whole", tmp_path / "killed"
    run(build(whole, log_every=3), 1, 13)
    killed = build(out, log_every=3)
    run(killed, 1, saved_at)
    state = json.dumps(killed.state)
    run(killed, saved_at + 1, stop, validate=False)
    with open(out / "metrics.jsonl", "a") as file:
        file.write('{"kind": "dev", "st')
    continued = build(out, log_every=3)
    continued.state = json.loads(state)
    continued.rewind(saved_at)
    run(continued, saved_at + 1, 13)
    assert history(out) == history(whole)
    continued.close()
    assert steps(out, "train") == [3, 6, 9, 12] == [*scalars(out, "train/ctc")]
    assert steps(out, "dev") == [4, 8, 12] == [*scalars(out, "dev/loss")]


def test_a_validation_that_a_kill_came_after_is_not_written_twice(tmp_path):
    """Saved at an epoch's last step, before its validation: the step is the same, but the validation comes again."""
    monitor = build(tmp_path)
    run(monitor, 1, 8, validate=False)
    state, validate = monitor.state, lambda: monitor.validated({"loss": 0.5}, 2, 8, best=True)
    validate()
    monitor.chosen("ema", {"ema": {"loss": 0.5}}, 2, 8)
    monitor.state = state
    monitor.rewind(8)
    assert steps(tmp_path, "dev") == [4]
    validate()
    monitor.rewind(8)
    assert (steps(tmp_path, "dev"), steps(tmp_path, "candidate")) == ([4, 8], [])
    assert steps(tmp_path, "train") == [2, 4, 6, 8]


def test_a_rewind_leaves_the_log_and_if_it_fails_the_metrics_too(tmp_path, monkeypatch):
    monitor, log = build(tmp_path), tmp_path / "train.log"
    run(monitor, 1, 4)
    before, metrics = log.read_text(), history(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(os, "replace", lambda *_: 1 / 0)
        monitor.rewind(2)
    assert (before, metrics) == (log.read_text(), history(tmp_path))
    monitor.rewind(0)
    monitor.log("continuing at epoch 1, batch 1")
    assert not history(tmp_path)
    added = log.read_text().removeprefix(before)
    assert re.fullmatch(DATE + "continuing at epoch 1, batch 1\n", added)


def test_skipped_steps_are_said_and_too_many_in_a_row_end_the_training(tmp_path, stderr):
    monitor, other = build(tmp_path), build(tmp_path, speaks=False)
    for _ in range(2):  # with a good step between them, the count begins anew
        for n in range(1, MOST_SKIPPED):
            monitor.skipped("utterances a, b", n, "its loss isn't finite")
            take(monitor, n, norm=math.nan)  # is none
        last = json.dumps(monitor.state)
        take(monitor, 10)
    log = stderr()
    assert log.startswith("step 1 left out: its loss isn't finite; utterances a, b\n")
    message = "10 steps in a row .* its gradient isn't finite; .*optimizer.lr.*precision=fp32$"
    for counts in (monitor, other):  # another process counts alike, and a continued one
        counts.state = json.loads(last)
        skip = counts.skipped, "a", 20, "its gradient isn't finite"
        said = refused(f"^training: {message}", *skip)
    assert (tmp_path / "train.log").read_text().endswith(f" {said}\n")


TABLE = """\
the model is: ema
                           loss     wer
  average of the best 3   0.500   8.31%
  ema                    12.250  10.00%  <- the model
  best                    2.000       -
the model is: last
"""


def test_the_candidates_are_shown_as_a_table(tmp_path, stderr):
    monitor = build(tmp_path)
    figures = "average of the best 3: {loss: 0.5, wer: 0.0831}, ema: {loss: 12.25, wer: 0.1}"
    monitor.chosen("ema", options(f"{figures}, best: {{loss: 2}}"), 4, 40)
    monitor.chosen("last", {}, 4, 40)
    assert stderr() == TABLE
    _, chosen, last = history(tmp_path)
    ema = "kind: candidate, epoch: 4, step: 40, name: ema, chosen: true, loss: 12.25, wer: 0.1"
    assert chosen == options(ema) and not last["chosen"]


def test_other_processes_write_nothing_and_keep_the_same_state(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(plots, "PAUSE", 0.0)
    leader, other = build(tmp_path / "leader"), build(tmp_path / "other", speaks=False)
    for monitor in (leader, other):
        capsys.readouterr()
        run(monitor, 1, 7)
        monitor.chosen("x", {"x": {"loss": 1.0}}, 1, 7)
        monitor.rewind(7)
        monitor.log("something")
        monitor.alignments({"a": torch.eye(2)}, 7)
    assert other.state == leader.state
    other.close()
    assert capsys.readouterr() == ("", "") and not (tmp_path / "other").exists()


def test_the_bar_is_silent_without_a_terminal_and_shows_the_means_and_the_time_left(
    tmp_path, monkeypatch, stderr
):
    monitor, clock, posts = build(tmp_path, log_every=100), iter([0.0, 60.0]), []
    with monitor.bar(total=8, done=2, epoch=1, epochs=3) as bar:
        assert bar.disable
        monkeypatch.setattr(bar, "set_postfix_str", lambda text, refresh: posts.append(text))
        monkeypatch.setattr("asr.training.monitor.time.monotonic", lambda: next(clock))
        take(monitor, 4)  # epoch 1.0
        take(monitor, 6)  # epoch 1.5, a minute later: three minutes to epoch 3
        bar.update(1)
    assert posts == [SHOWN, f"in all 03:00 | {SHOWN}"]
    assert stderr() == ""


# ---- pictures

TRAIN = "kind: train, accuracy: {}, gradient_norm: 3.0, s_per_second: 9.0, wait: 0.0, epoch: {}"
SPEECH = [
    options(f"date: 2026-01-01, step: 1, {line}")
    for line in (
        TRAIN.format(0.1, 0.5) + ", ctc: 30.0, attention: 6.0, lr: 1.0e-4",
        "kind: dev, epoch: 1, loss: 5.0, accuracy: 0.3, wer: 1.0, ctc_wer: 0.9, seconds: 17.0",
        TRAIN.format(0.8, 5.5) + ", ctc: 2.0, attention: 1.0, lr: 1.0e-3",
        "kind: dev, epoch: 10, loss: 1.5, accuracy: 0.7, wer: 0.25, ctc_wer: null, seconds: 18.0",
        "kind: candidate, epoch: 10, name: ema, chosen: true, loss: 1.25",
    )
]
CURVES = """\
loss per token | train ctc | [[0.5, 30.0], [5.5, 2.0]]
loss per token | train att | [[0.5, 6.0], [5.5, 1.0]]
loss per token | dev loss, best 1.500 | [[1.0, 5.0], [10.0, 1.5]]
token accuracy [%] | train acc | [[0.5, 10.0], [5.5, 80.0]]
token accuracy [%] | dev acc, best 70.0% | [[1.0, 30.0], [10.0, 70.0]]
error rate on dev [%] | dev wer, best 25.00% | [[1.0, 100.0], [10.0, 25.0]]
error rate on dev [%] | dev ctc-wer, best 90.00% | [[1.0, 90.0], [10.0, nan]]
learning rate | train lr | [[0.5, 0.0001], [5.5, 0.001]]
"""


def curves(metrics):
    """What is drawn, a line each: the panel, the legend and the points; and the figure."""
    figure, drawn = plots.curves(metrics), ""
    for axes in figure.axes:
        title = axes.get_title(loc="left")
        for line in axes.lines:
            drawn += f"{title} | {line.get_label()} | {line.get_xydata().tolist()}\n"
    return drawn, figure


def test_the_curves_are_the_figures():
    drawn, figure = curves(SPEECH)
    assert drawn == CURVES
    loss = figure.axes[0]  # what comes before a tenth of the run doesn't press the rest flat
    assert loss.get_ylim()[1] < 6.0 and loss.get_xlim() == (0, 10) and loss.get_xlabel() == "epoch"
    legend = [text.get_text() for text in loss.get_legend().get_texts()]
    assert legend == [name for _, name, _ in rows(CURVES)[:3]]


def test_the_curves_of_a_language_model_show_perplexities():
    line = options("kind: dev, step: 1, epoch: 1, loss: 2.1, perplexity: 8.2")
    assert "perplexity on dev | dev ppl, best 8.20 | [[1.0, 8.2]]\n" in curves([line])[0]


@each("metrics", [[], SPEECH[:1], SPEECH[1:2], [SPEECH[3] | options("loss: null, wer: null")]])
def test_curves_of_little_can_be_drawn(metrics):
    assert plots.pixels(plots.curves(metrics)).std() >= 0


def test_pictures_are_drawn_at_the_end_and_not_too_often_before(tmp_path, monkeypatch):
    monitor, curves, folder = build(tmp_path), tmp_path / "curves.png", tmp_path / "alignments"
    run(monitor, 1, 4)
    maps = {"a/b $x": torch.eye(3, 5), "c": torch.eye(2, 4), "é" * 100: torch.eye(2, 4)}
    monitor.alignments(maps, 4)
    assert not curves.exists() and not folder.exists()  # seconds into the run
    with monkeypatch.context() as patched:
        patched.setattr(plots, "PAUSE", 0.0)
        run(monitor, 5, 8)
    assert matplotlib.image.imread(curves).std() > 0.01
    curves.unlink()
    monitor.alignments(maps, 8)
    monitor.close()
    assert curves.read_bytes().startswith(b"\x89PNG\r\n")
    *plain, long = sorted(path.name for path in folder.iterdir())
    assert plain == ["a_b__x.png", "c.png"] and long[:40] == "é" * 40
    [image] = board(tmp_path).Images("alignment/c")
    assert image.step == 8 and image.encoded_image_string.startswith(b"\x89PNG\r\n")


def test_without_matplotlib_it_is_said_once_and_training_goes_on(tmp_path, monkeypatch, stderr):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(plots, "PAUSE", 0.0)
    monitor = build(tmp_path)
    run(monitor, 1, 12)
    monitor.close()
    [reason] = re.findall(r"(?m)^no plots .*matplotlib.*$", stderr())
    assert re.search(r"\(.*None in sys.modules\); pip install 'matplotlib>=3.8'", reason)
    assert len(steps(tmp_path, "dev")) == 3 and not (tmp_path / "curves.png").exists()
    refused("^matplotlib can't be imported", imports.matplotlib, "matplotlib.figure")


@slow
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
    screens = {name: "" for name in os.environ if name.endswith("DISPLAY")}
    environment = os.environ | screens | {"MPLBACKEND": "tkagg"}  # which would ask for a display
    subprocess.run([sys.executable, "-c", code, tmp_path], env=environment, check=True)
    assert (tmp_path / "curves.png").exists()


def test_figures_are_shown_by_one_table():
    text = "ctc: 1.0, wer: 0.5, tokens_per_second: 5213.4, s_per_second: 1.26, new: 0.33333, all: 3"
    expected = "ctc 1.000 wer 50.00% 5213 tokens/s 1.3 s/s new 0.3333 all 3"
    assert shown_metrics.line(options(text)) == expected
