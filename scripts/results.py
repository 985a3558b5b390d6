"""Write the table of finished work between its two markers in a Markdown file.

    python -m scripts.results recipes/librispeech/README.md librispeech100 ...

A row for each text that asr-decode has written below exp/NAME: its errors, counted anew, and what
its stamp says of its making. A text whose model, language model or test set isn't what it was
decoded with any more is left out, and one of recordings without references. The table stands
between `<!-- results: NAME -->` and `<!-- end -->`; a file without them gets both at its end, and
one that isn't there is begun. The same work gives the same file, byte for byte.
"""

import argparse
import os
from functools import cache
from pathlib import Path

from asr import stamp
from asr.cli.command import command
from asr.errors import UserError
from asr.files import write_text
from asr.logging import logger
from asr.scoring.report import UNITS, Score
from asr.transcription.options import MODES
from scripts.result import headline

COLUMNS = "test set, mode, LM, {} %, 95 %, S, D, I, RTF, hardware, commit, seconds"
END = "<!-- end -->"
fingerprint = cache(stamp.fingerprint)


def texts(name: str) -> dict[Path, dict]:
    """List a recipe's texts with their stamps, by test set, mode and language model; report outdated ones.

    raises   UserError if there are no others
    """
    stamps = {
        path: stamp.read(path)
        for path in sorted(Path("exp", name).glob("*.txt"))
        if stamp.is_stamped(path)
    }
    for path, stamped in list(stamps.items()):
        if len(manifests(stamped)) != 1:
            logger.info(
                f"{path}: left out, for it was decoded from {len(manifests(stamped))} manifests, expected one"
            )
            del stamps[path]
        elif changed := [
            name for name, before in stamped["inputs"].items() if fingerprint(Path(name)) != before
        ]:
            logger.info(f"{path}: left out, for {changed[0]} isn't what it was decoded with")
            del stamps[path]
    if not stamps:
        raise UserError(
            f"exp/{name}: no text of asr-decode --out is up to date; run the recipe with --name {name}"
        )
    return dict(sorted(stamps.items(), key=lambda item: rank(*item)))


def rank(path: Path, stamped: dict) -> tuple:
    """Sort key: the test sets by name, the modes from joint search down, those with a language model behind."""
    arguments = stamped["arguments"]
    return manifests(stamped)[0], MODES.index(arguments["mode"]), arguments["lm"] or "", path


def manifests(stamped: dict) -> list[str]:
    """The manifests that a text was decoded from; with one, it has the references."""
    return [name for name in stamped["inputs"] if name.endswith((".jsonl", ".jsonl.gz"))]


def search(arguments: dict) -> str:
    """Say a search's mode and weights."""
    parts = [arguments["mode"].replace("-", " ")]
    if not arguments["mode"].endswith("greedy"):
        parts[0] += f" {arguments['beam']}"
    if arguments["mode"] in ("joint", "rescoring"):
        parts.append(f"CTC {arguments['ctc_weight']:g}")
    parts += [f"bonus {arguments['length_bonus']:g}"] if arguments["length_bonus"] else []
    parts += ["hotwords"] if arguments["hotwords"] else []
    parts += [arguments["precision"]] if arguments["precision"] != "fp32" else []
    return ", ".join(parts)


def language_model(arguments: dict) -> str:
    """Say a search's language model and its weight."""
    return (
        f"{os.path.basename(arguments['lm'])} {arguments['lm_weight']:g}" if arguments["lm"] else ""
    )


def row(path: Path, stamped: dict, unit: str | None) -> tuple[Score, str]:
    """Score a text; its error rates, and its row of the table."""
    [manifest], made = manifests(stamped), stamped["made"]
    found = headline(manifest, str(path), unit)
    total = found.total
    cells = [
        Path(manifest).name.partition(".")[0],
        search(stamped["arguments"]),
        language_model(stamped["arguments"]),
        f"{100 * total.rate:.2f}",
        f"{100 * found.low:.2f} – {100 * found.high:.2f}",
        *map(str, (total.substitutions, total.deletions, total.insertions)),
        f"{made['rtf']:.4f}",
        *(made.get(name, "not recorded") for name in ("hardware", "commit")),
        f"{made['seconds']:.0f}",
    ]
    return found, line(cells)


def line(cells: list[str]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def making(output: Path) -> str:
    """Say how long the training of a model took, on what, and at which commit."""
    made = stamp.read(output)["made"]
    hardware, commit = (made.get(name, "not recorded") for name in ("hardware", "commit"))
    return f"`{output}`: trained for {made['seconds']:.0f} s on {hardware}, commit {commit}."


def table(name: str, unit: str | None) -> str:
    """The results of a recipe: a row a text, and how its models were made."""
    stamps = texts(name)
    scores, rows = zip(*(row(*item, unit) for item in stamps.items()), strict=True)
    head = COLUMNS.format(UNITS[scores[0].unit]).split(", ")
    used = {stamped["arguments"]["lm"] for stamped in stamps.values()} - {None}
    models = [Path("exp", name, "model"), *(Path(lm) for lm in sorted(used) if Path(lm).is_dir())]
    return "\n".join(
        [line(head), line(["---"] * len(head)), *rows, "", *(making(model) for model in models)]
    )


def put(text: str, name: str, content: str) -> str:
    """Put a table between the markers of its name, which stand at the end if they stood nowhere.

    raises   ValueError if the first marker is there and the second isn't, before another table
             begins

    >>> put("# Results\\n<!-- results: a -->\\nold\\n<!-- end -->\\n", "a", "new")
    '# Results\\n<!-- results: a -->\\nnew\\n<!-- end -->\\n'
    """
    begin = f"<!-- results: {name} -->"
    if begin not in text:
        text += ("\n" if text else "") + f"{begin}\n{END}\n"
    before, _, rest = text.partition(begin)
    old, end, after = rest.partition(END)
    if not end or "<!-- results:" in old:
        raise ValueError(f"{begin} has no {END} behind it; write one where its table ends")
    return f"{before}{begin}\n{content}\n{END}{after}"


@command
def main(argv: list[str]) -> None:
    """Write the tables of all names; nothing where one can't be made."""
    args = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    args.add_argument("file", metavar="README.md")
    args.add_argument("names", metavar="NAME", nargs="+")
    args.add_argument("--unit", help="of the errors, as of asr-score")
    args = args.parse_args(argv)
    path = Path(args.file)
    text = before = path.read_text(encoding="utf-8") if path.exists() else ""
    for name in args.names:
        content = table(name, args.unit)
        try:
            text = put(text, name, content)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from None
    if text != before:
        write_text(path, text)
    logger.info(f"{path}: {'written' if text != before else 'up to date'}")


if __name__ == "__main__":
    main()
