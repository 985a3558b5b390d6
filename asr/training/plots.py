"""Plots of a run, drawn without a display and not too often: its curves, and what the decoder attends to."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from asr import imports
from asr.errors import UserError
from asr.files import replacing
from asr.training.metrics import TIMES, label, value

PAUSE = 30.0  # seconds between two drawings of a plot, which take some tenths of one
LOSS, ACCURACY, ERRORS, PERPLEXITY, RATE = PANELS = (
    "loss per token",
    "token accuracy [%]",
    "error rate on dev [%]",
    "perplexity on dev",
    "learning rate",
)
COLORS = {
    "train": ("#8ab6d6", "#1f6f9f", "#7a9a5f", "#b07aa1", "#a08060"),
    "dev": ("#d1495b", "#edae49", "#6a4c93", "#2e4057"),
}
SOFTWARE = "asr-toolkit"
RUNS = ("#1f6f9f", "#d1495b", "#7a9a5f", "#edae49", "#6a4c93", "#2e4057")
UNDRAWN = {"kind", "step", "epoch", "gradient_norm", *TIMES}
WARM_UP = (
    0.1  # share of a run whose metrics may leave the panel, for they would press the rest flat
)


class Plots:
    """Draw plots as a run goes on: each at most once in PAUSE seconds, and what is left over at the end.

    log:  called once, if matplotlib can't be imported or a file can't be written; nothing more is
          drawn then
    """

    def __init__(self, log: Callable[[str], None]):
        self.log, self.able = log, True
        self.began = time.monotonic()
        self.drawn_at: dict[str, float] = {}
        self.pending: dict[str, Callable[[], None]] = {}

    def offer(self, name: str, draw: Callable[[], None]) -> None:
        """Call draw now, or later, unless a newer plot of the name comes before."""
        self.pending[name] = draw
        if time.monotonic() - self.drawn_at.get(name, self.began) >= PAUSE:
            self._draw(name)

    def finish(self) -> None:
        """Draw all that is pending."""
        for name in list(self.pending):
            self._draw(name)

    def _draw(self, name: str) -> None:
        draw = self.pending.pop(name)
        self.drawn_at[name] = time.monotonic()
        try:
            if self.able:
                draw()
        except UserError as error:  # a plot is no reason to end a training
            self.able = False
            self.log(f"no plots are drawn: {error}")


def pixels(figure: Any) -> np.ndarray:
    """Draw a Figure of matplotlib: (height, width, 3) uint8."""
    canvas = imports.matplotlib("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()


def save(image: np.ndarray, path: Path) -> None:
    """Write pixels as a PNG file, whole or not at all; it names the toolkit."""
    with replacing(path) as temporary:
        imports.matplotlib("matplotlib.image").imsave(
            temporary, image, format="png", metadata={"Software": SOFTWARE}
        )


def is_plot(path: Path) -> bool:
    """Whether a file is a PNG that `save` wrote."""
    try:
        with open(path, "rb") as file:
            head = file.read(200)  # the name stands before the pixels
    except OSError:
        return False
    return head.startswith(b"\x89PNG\r\n") and SOFTWARE.encode() in head


def alignment(id: str, weights: Tensor) -> Any:
    """Draw an alignment: labels (U) downwards, encoder frames (T') to the right; matplotlib's Figure.

    raises   UserError if matplotlib can't be imported
    """
    figure = imports.matplotlib("matplotlib.figure").Figure((8, 4), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(
        weights.numpy(), aspect="auto", cmap="Blues", vmin=0, interpolation="nearest"
    )
    axes.set_title(id, fontsize=11, loc="left", parse_math=False)
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    axes.set_xlabel("encoder frame")
    axes.set_ylabel("label")
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_locator().set_params(integer=True)
    figure.colorbar(image, ax=axes, label="attention weight", pad=0.02)
    return figure


@dataclass(frozen=True)
class Curve:
    """One line of a panel: its legend, looks, and points (epoch, number)."""

    text: str
    color: str
    points: Sequence[tuple[float, float]]
    bold: bool = True


def curves(metrics: Sequence[dict]) -> Any:
    """Draw the lines of metrics.jsonl over epochs: a panel a kind of figure, as many as have something to show.

    A dev line's legend names its best value. Figures of another meaning than the panels' (`panel`)
    are not drawn.
    returns  matplotlib's Figure
    raises   UserError if matplotlib can't be imported
    """
    by_panel: dict[str, list[Curve]] = {name: [] for name in PANELS}
    colors = {(place, kind): _cycle(few) for place in PANELS for kind, few in COLORS.items()}
    for (kind, name), points in _series(metrics).items():
        place = panel(kind, name) or ""
        text = _legend(kind, name, place, [number for _, number in points])
        by_panel[place].append(Curve(text, next(colors[place, kind]), points, kind == "dev"))
    return _figure({name: (name, lines) for name, lines in by_panel.items() if lines})


def compared(runs: Mapping[str, Sequence[dict]]) -> Any:
    """Draw the metrics.jsonl of several runs: a panel per metric, a line per run.

    A line's legend names the run, and of dev its best value.
    runs     name → lines of its metrics.jsonl
    returns  matplotlib's Figure
    raises   UserError if matplotlib can't be imported
    """
    panels: dict[str, tuple[str, list[Curve]]] = {}
    colors = dict(zip(runs, _cycle(RUNS), strict=False))
    for run, metrics in runs.items():
        for (kind, name), points in _series(metrics).items():
            place = panel(kind, name) or ""
            best = _legend(kind, name, place, [number for _, number in points]).partition(", ")
            title = place if place == RATE else f"{best[0]}: {place}"
            line = Curve(f"{run}{best[1]}{best[2]}", colors[run], points, kind == "dev")
            panels.setdefault(title, (place, []))[1].append(line)
    return _figure(dict(sorted(panels.items(), key=lambda item: PANELS.index(item[1][0]))))


def _series(metrics: Sequence[dict]) -> dict[tuple[str, str], list[tuple[float, float]]]:
    """Points (epoch, number) of each (kind, name) that has a panel."""
    found = {}
    for kind in ("train", "dev"):
        lines = [line for line in metrics if line["kind"] == kind]
        for name in dict.fromkeys(name for line in lines for name in line if name not in UNDRAWN):
            if place := panel(kind, name):
                found[kind, name] = [
                    (line["epoch"], _number(line.get(name), place)) for line in lines
                ]
    return found


def _figure(panels: Mapping[str, tuple[str, Sequence[Curve]]]) -> Any:
    """Draw panels, two a row: title → what it is of PANELS, and its lines."""
    rows = max(1, math.ceil(len(panels) / 2))
    figure = imports.matplotlib("matplotlib.figure").Figure(
        (11, 3.7 * rows), dpi=110, layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.1)
    for n, (title, (place, lines)) in enumerate(panels.items(), 1):
        _draw(figure.add_subplot(rows, 2, n), title, place, lines)
    return figure


def panel(kind: str, name: str) -> str | None:
    """The panel of a figure, by its name; None for one that none is made for.

    >>> panel("dev", "ctc_wer"), panel("train", "ctc"), panel("dev", "seconds")
    ('error rate on dev [%]', 'loss per token', None)
    """
    if name == "lr":
        return RATE
    if name.endswith("accuracy"):
        return ACCURACY
    if name.endswith("perplexity"):
        return PERPLEXITY
    if name.endswith(("wer", "cer")):
        return ERRORS
    return LOSS if kind == "train" or name.endswith(("loss", "ctc", "attention")) else None


def _number(number: float | None, place: str) -> float:
    percent = 100 if place in (ACCURACY, ERRORS) else 1
    return math.nan if number is None else percent * number


def _draw(axes: Any, title: str, place: str, lines: Sequence[Curve]) -> None:
    for line in lines:
        epochs, numbers = zip(*line.points, strict=True)
        few = line.bold and len(numbers) <= 40 or len(numbers) == 1
        looks: dict[str, Any] = {"marker": "o" if few else None, "ms": 3.5}
        looks |= {"lw": 1.8 if line.bold else 1.4, "color": line.color, "label": line.text}
        axes.plot(epochs, numbers, **looks)
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel("epoch")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    _limit(axes, place, lines)
    axes.yaxis.set_major_formatter(lambda number, _: f"{number:.6g}")
    if place != RATE or len(lines) > 1:
        axes.legend(frameon=False, fontsize=9)


def _legend(kind: str, figure: str, place: str, numbers: Sequence[float]) -> str:
    finite = [number for number in numbers if math.isfinite(number)]
    if kind == "train" or not finite:
        return f"{kind} {label(figure)}"
    best = max(finite) if place == ACCURACY else min(finite)
    percent = 100 if place in (ACCURACY, ERRORS) else 1
    return f"{kind} {label(figure)}, best {value(figure, best / percent)}"


def _limit(axes: Any, name: str, lines: Sequence[Curve]) -> None:
    """Let the axis show what comes after the warm-up; of a learning rate all, and that and error rates from 0 on."""
    points = [point for line in lines for point in line.points]
    end = max(epoch for epoch, _ in points)
    begin = 0 if name == RATE else WARM_UP * end
    numbers = [number for epoch, number in points if epoch >= begin and math.isfinite(number)]
    bottom, top = min(numbers, default=0.0), max(numbers, default=1.0)
    room = 0.05 * (top - bottom) or 0.05 * abs(top) or 1.0
    axes.set_ylim(0 if name in (RATE, ERRORS) else max(0.0, bottom - room), top + room)
    axes.set_xlim(0, end or 1)


def _cycle(colors: Sequence[str]) -> Iterator[str]:
    while True:
        yield from colors
