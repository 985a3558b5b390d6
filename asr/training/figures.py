"""How figures are shown to a person: one table of names and formats, a line, a table of several candidates."""

from collections.abc import Mapping

SHOWN = {  # figure → its short name and its format
    "ctc": ("ctc", "{:.3f}"),
    "inter": ("inter", "{:.3f}"),
    "cr": ("cr", "{:.3f}"),
    "attention": ("att", "{:.3f}"),
    "nll": ("loss", "{:.3f}"),
    "loss": ("loss", "{:.3f}"),
    "accuracy": ("acc", "{:.1%}"),
    "wer": ("wer", "{:.2%}"),
    "ctc_wer": ("ctc-wer", "{:.2%}"),
    "cer": ("cer", "{:.2%}"),
    "ctc_cer": ("ctc-cer", "{:.2%}"),
    "perplexity": ("ppl", "{:.2f}"),
    "word_perplexity": ("word-ppl", "{:.2f}"),
    "gradient_norm": ("norm", "{:.2f}"),
    "lr": ("lr", "{:.2e}"),
    "wait": ("wait", "{:.0%}"),
}


def label(name: str) -> str:
    """Short name of a figure; of one that isn't in SHOWN, its own."""
    return SHOWN[name][0] if name in SHOWN else name


def value(name: str, number: float) -> str:
    """A figure's number, as SHOWN has it or to four digits.

    >>> value("wer", 0.08312), value("s_per_second", 142.4), value("anything", 2 / 3)
    ('8.31%', '142', '0.6667')
    """
    if name.endswith("_per_second"):
        return f"{number:.0f}" if number >= 10 else f"{number:.1f}"
    return SHOWN[name][1].format(number) if name in SHOWN else f"{number:.4g}"


def line(figures: Mapping[str, float]) -> str:
    """Figures one after the other; throughput with its unit behind.

    >>> line({"accuracy": 0.913, "s_per_second": 142.4, "wait": 0.03})
    'acc 91.3% 142 s/s wait 3%'
    """
    return " ".join(_entry(name, number) for name, number in figures.items())


def table(rows: Mapping[str, Mapping[str, float]], marked: str, mark: str) -> str:
    """One line a row, `mark` behind the marked one; a column a figure that any row has, "-" where a row lacks it."""
    names = list(dict.fromkeys(name for figures in rows.values() for name in figures))
    cells = [["", *map(label, names)]]
    for row, figures in rows.items():
        cells.append([row, *(value(name, figures[name]) if name in figures else "-" for name in names)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    marks = ["", *(mark if row == marked else "" for row in rows)]
    lines = []
    for (row, *numbers), end in zip(cells, marks, strict=True):
        aligned = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([f"  {row.ljust(widths[0])}", *aligned, end]).rstrip())
    return "\n".join(lines)


def _entry(name: str, number: float) -> str:
    unit, throughput, _ = name.partition("_per_second")
    return f"{value(name, number)} {unit}/s" if throughput else f"{label(name)} {value(name, number)}"
