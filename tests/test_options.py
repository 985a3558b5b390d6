"""Options stand once: asr-decode's arguments, the checks, and what a search loads follow from their declarations."""

from dataclasses import asdict, dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small import hybrid

from asr.cli import decode_arguments
from asr.errors import UserError
from asr.options import check, option
from asr.text.characters import Characters
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher


@dataclass(frozen=True)
class Options:
    mode: str = option("a", "one of two", choices=("a", "b"))
    beam: int = option(10, "from 1 to 20", least=1, most=20)
    weight: float = option(0.5, "from 0 to 1", least=0, most=1)


def test_the_command_has_the_options_with_their_defaults():
    args = vars(decode_arguments.arguments().parse_args(["--model", "x"]))
    assert {name: args[name] for name in asdict(SearchOptions())} == asdict(SearchOptions())


@pytest.mark.parametrize(
    "name, value, facts",
    [
        ("mode", "c", "got 'c', expected one of a, b"),
        ("beam", 0, "got 0, expected 1 to 20"),
        ("beam", 21, "got 21, expected 1 to 20"),
        ("beam", float("nan"), "got nan, expected a whole number"),
        ("beam", "5", "got '5', expected a whole number"),
        ("beam", True, "got True, expected a whole number"),
        ("weight", "5", "got '5', expected a number"),
        ("weight", float("nan"), "got nan, expected 0 to 1"),
    ],
)
def test_a_wrong_value_names_the_option(name, value, facts):
    with pytest.raises(UserError) as error:
        check(Options(**{name: value}))
    assert (
        str(error.value) == f"{name}: {facts}" and error.value.as_option() == f"--{name}: {facts}"
    )
    for beam in (1, np.int64(20)):
        check(Options(mode="b", beam=beam, weight=beam // 20))


def test_an_error_writes_arguments_as_options():
    """Names of the library are options of a command; no others change."""
    message = "got 3, expected at most the `beam_size`; write `id<TAB>text`"
    error = UserError(message, argument="n_best")
    assert str(error) == f"n_best: {message}"
    assert error.as_option() == f"--n-best: {message.replace('`beam_size`', '--beam-size')}"
    assert UserError("x.wav: is empty").as_option() == "x.wav: is empty"


def test_greedy_searches_refuse_scorers():
    for options in ({"lm": "x"}, {"hotwords": "x"}, {"length_bonus": 1.0}):
        with pytest.raises(UserError, match="mode: got 'ctc-greedy'"):
            SearchOptions("ctc-greedy", **options)
    with pytest.raises(UserError, match="nbest: got 11, expected at most the `beam` of 10"):
        SearchOptions(nbest=11)


def test_other_weights_load_nothing_again(tmp_path):
    """Only a scorer whose own options change is made anew; a weight is none of them."""
    (tmp_path / "words.txt").write_text("ab\n")
    recognizer = SimpleNamespace(
        model=hybrid(vocabulary=5),
        tokenizer=Characters(["a", "b", " "]),
        parameters=lambda: iter([torch.zeros(1)]),
    )
    options = SearchOptions(hotwords=str(tmp_path / "words.txt"), length_bonus=0.5)
    searcher = Searcher(recognizer, options)
    tuned = searcher.tuned(hotword_weight=3.0, length_bonus=-1.0)
    before, after = searcher.scorers(), tuned.scorers()
    assert list(before) == list(after) == ["attention", "ctc", "hotwords", "length"]
    assert after["hotwords"][0] is before["hotwords"][0]
    assert (before["hotwords"][1], after["hotwords"][1]) == (2.0, 3.0)
    assert (before["length"][0].bonus, after["length"][0].bonus) == (0.5, -1.0)
    assert "length" not in searcher.tuned(length_bonus=0.0).scorers()
    assert "length" in searcher.scorers()
