"""How to search: the same names in Python and as options of asr-decode."""

from dataclasses import asdict, dataclass
from typing import Any

from asr.errors import UserError
from asr.options import check, declared, option
from asr.search.hotwords import HotwordOptions
from asr.search.length import LengthOptions
from asr.search.lm import LMOptions
from asr.search.scorer import ScorerOptions

WINDOW_SECONDS = 3600.0  # of audio, within which recordings are sorted by length
BATCH_SECONDS = {"cpu": 120.0, "cuda": 2000.0}  # of padded audio: a GPU isn't busy with less
DETECTORS = ("energy", "silero")
MODES = ("joint", "attention", "ctc", "ctc-beam", "rescoring", "attention-greedy", "ctc-greedy")


@dataclass(frozen=True)
class SearchOptions(LMOptions, HotwordOptions, LengthOptions):  # and a new scorer's options
    """How to search.

    mode        "joint" beam search with attention and CTC prefix scores, "attention" or "ctc" beam
                search with one of them, "ctc-beam" search frame by frame, "rescoring" of the CTC
                beam's n-best list by attention, "attention-greedy", "ctc-greedy"
    ctc_weight  of the joint search and of rescoring; attention has 1 - ctc_weight
    chunk       of the encoder, in seconds, or "whole": one of those that it was trained with. None:
                whole if it was, else the longest

    vad         how speech is found in recordings that are cut into pieces: by "energy", or by
                Silero's network (pip install silero-vad)
    length_norm  exponent α: when a beam has ended, its hypotheses' scores are divided by
                ((5 + labels) / 6)^α

    The scorers' options are for every beam. `asr-decode --help` describes all options.
    """

    mode: str = option("joint", ", ".join(MODES), choices=MODES)
    beam: int = option(10, "hypotheses per utterance", least=1, most=10_000)
    ctc_weight: float = option(
        0.3, "weight of CTC in the joint search and in rescoring", least=0, most=1
    )
    nbest: int = option(1, "maximum number of hypotheses in the JSON lines", least=1)
    chunk: float | str | None = option(
        None,
        "length of the encoder's chunks in seconds, or whole; one of the sizes used in training",
    )
    vad: str = option(
        "energy",
        "how to find speech in long recordings: energy, silero (needs pip install silero-vad)",
        choices=DETECTORS,
    )
    length_norm: float = option(
        0.0, "divide scores by the length to this power; 0.6 in the paper", least=0, most=10
    )

    def __post_init__(self):
        check(self)
        if self.nbest > self.beam:
            raise UserError(
                f"got {self.nbest}, expected at most the `beam` of {self.beam}", argument="nbest"
            )
        if self.length_norm and self.length_bonus:
            raise UserError(
                f"got {self.length_norm:g} beside a length bonus; give one of them",
                argument="length_norm",
            )
        if self.mode.endswith("greedy") and (
            used := [name for name in SWITCHES if getattr(self, name)]
        ):
            names = ", ".join(used).replace("_", " ")
            raise UserError(
                f"got {self.mode!r}, which doesn't use {names}; a beam does", argument="mode"
            )


SCORERS: tuple[type[ScorerOptions], ...] = (
    SearchOptions.__bases__
)  # in the order in which their scores are added
SWITCHES = [options.scorer.switch for options in SCORERS]
DEFAULTS: dict[str, Any] = {option.name: option.default for option in declared(SearchOptions)}
TUNABLE = {
    name: type(default) for name, default in DEFAULTS.items() if isinstance(default, int | float)
}


def idle_options(options: SearchOptions) -> dict[str, str]:
    """Map the options that have no effect beside these to the reason."""
    idle = {}
    if options.mode not in ("joint", "rescoring"):
        idle["ctc_weight"] = f"in mode {options.mode}"
    if options.mode not in ("joint", "attention", "ctc"):
        idle["length_norm"] = f"in mode {options.mode}"
    if options.mode.endswith("greedy"):
        idle |= dict.fromkeys(TUNABLE, f"in mode {options.mode}")
    unused = [kind.scorer for kind in SCORERS if not getattr(options, kind.scorer.switch)]
    return idle | {kind.weight: f"without `{kind.switch}`" for kind in unused if kind.weight}


def effective(options: SearchOptions) -> dict[str, Any]:
    """Return the options that change the scores of a search, by name; without scorers that are off."""
    switches = [*SWITCHES, "chunk", "length_norm"]
    off = set(idle_options(options)) | {name for name in switches if not getattr(options, name)}
    off |= {"vad", "nbest"}  # what is searched, and how much of it is shown
    return {name: value for name, value in asdict(options).items() if name not in off}


NOT_FOR_TRANSLATORS = {"chunk", "vad", "ctc_weight"}


def translator_mode(mode: str) -> str:
    """Return a translator's mode of search: the default, joint, is attention alone.

    raises   UserError for a mode that needs CTC
    """
    if mode not in ("joint", "attention", "attention-greedy"):
        raise UserError(
            f"got {mode!r}, expected attention or attention-greedy, for a translator has no CTC",
            argument="mode",
        )
    return mode.replace("joint", "attention")
