"""Options stand once: asr-decode's arguments, the checks, and what a search loads follow from their declarations."""

from dataclasses import asdict, dataclass
from types import SimpleNamespace

import pytest
import torch

from asr.cli import decode
from asr.errors import UserError
from asr.options import check, declared, option, paths
from asr.text.characters import Characters
from asr.transcription.options import SCORERS, SearchOptions
from asr.transcription.searcher import Searcher


@dataclass(frozen=True)
class Options:
    """Options of every kind."""

    mode: str = option("a", "one of two", choices=("a", "b"))
    beam: int = option(10, "from 1 to 20", least=1, most=20)
    words: str | None = option(None, "a file", path="FILE")


def test_the_command_has_the_options_with_their_defaults():
    args = vars(decode.arguments().parse_args(["--model", "x"]))
    assert {name: args[name] for name in asdict(SearchOptions())} == asdict(SearchOptions())
    assert next(iter(declared(SearchOptions))).name == "mode"


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"mode": "c"}, "mode: got 'c', expected one of a, b"),
        ({"beam": 0}, "beam: got 0, expected 1 to 20"),
        ({"beam": float("nan")}, "beam: got nan, expected 1 to 20"),
    ],
)
def test_a_wrong_value_names_the_option(wrong, message):
    with pytest.raises(UserError) as error:
        check(Options(**wrong))
    assert str(error.value) == message and error.value.as_option() == f"--{message}"
    check(Options(mode="b", beam=20))


def test_an_error_writes_arguments_as_options():
    error = UserError(
        "got 3, expected at most the `beam_size`; write `id<TAB>text`", argument="n_best"
    )
    assert str(error) == "n_best: got 3, expected at most the `beam_size`; write `id<TAB>text`"
    assert (
        error.as_option()
        == "--n-best: got 3, expected at most the --beam-size; write `id<TAB>text`"
    )
    assert UserError("x.wav: is empty").as_option() == "x.wav: is empty"


def test_paths_are_those_that_are_set():
    assert paths(Options()) == {} and paths(Options(words="w.txt")) == {"words": "w.txt"}


def test_greedy_searches_refuse_scorers():
    for options in ({"lm": "x"}, {"hotwords": "x"}, {"length_bonus": 1.0}):
        with pytest.raises(UserError, match="mode: got 'ctc-greedy'"):
            SearchOptions("ctc-greedy", **options)
    with pytest.raises(UserError, match="nbest: got 11, expected at most the `beam` of 10"):
        SearchOptions(nbest=11)


def test_other_weights_load_nothing_again(tmp_path):
    """Only a scorer whose own options change is made anew; a weight is none of them."""
    (tmp_path / "words.txt").write_text("ab\n")
    model = SimpleNamespace(decoder=None, ctc_log_probs=None, sos_eos=4, vocabulary=5)
    recognizer = SimpleNamespace(
        model=model,
        tokenizer=Characters(["a", "b", " "]),
        parameters=lambda: iter([torch.zeros(1)]),
    )
    searcher = Searcher(
        recognizer, SearchOptions(hotwords=str(tmp_path / "words.txt"), length_bonus=0.5)
    )
    before, after = (
        s.scorers() for s in (searcher, searcher.tuned(hotword_weight=3.0, length_bonus=-1.0))
    )
    assert list(before) == list(after) == ["attention", "ctc", "hotwords", "length"]
    assert after["hotwords"][0] is before["hotwords"][0]
    assert (before["hotwords"][1], after["hotwords"][1]) == (2.0, 3.0)
    assert (before["length"][0].bonus, after["length"][0].bonus) == (0.5, -1.0)
    assert (
        "length" not in searcher.tuned(length_bonus=0.0).scorers()
        and "length" in searcher.scorers()
    )


def test_each_scorer_names_its_own_options():
    for options in SCORERS:
        names = {one.name for one in declared(options)}
        assert options.scorer.switch in names and options.scorer.weight in names | {None}
