"""Prove that a card has the results of its model alone, each of them, and no two under one name.

The decodings are written here, so the number of wrong words of each is known.
"""

import json

import pytest

from asr.hub.results import find_results
from asr.stamp import Stamp

TEXT = "A B C D E F G H I J"


def file(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


@pytest.fixture
def decode(tmp_path):
    """Write a decoding with a number of wrong words, and its stamp: the model's files come first, as decodings do."""

    def decode(name, wrong, manifest="data/dev.jsonl", lm=None, lm_content="lm", **arguments):
        line = {"id": "a", "audio": "a.wav", "start": 0.0, "duration": 1.0, "text": TEXT}
        inputs = [file(tmp_path / "model/model.safetensors", "recognizer")]
        if lm:
            inputs.append(file(tmp_path / lm / "model.safetensors", lm_content))
            arguments["lm"] = str(tmp_path / lm)
        inputs.append(file(tmp_path / manifest, json.dumps(line) + "\n"))
        words = TEXT.split()
        file(tmp_path / name, f"a {' '.join(['X'] * wrong + words[wrong:])}\n")
        facts = {"mode": "joint", "precision": "fp32", "times": False} | arguments
        Stamp(tmp_path / name, "asr-decode", facts, inputs).write()

    return decode


@pytest.fixture
def found(tmp_path):
    """The results by the name of what was scored: its set, or its search."""

    def found(name, model="model"):
        results = find_results(tmp_path / model, tmp_path)
        named = {getattr(result, name): round(result.value) for result in results}
        assert len(named) == len(results), results
        return named

    return found


def test_a_recognizer_s_results_are_not_its_language_model_s(decode, found):
    decode("dev.txt", 2, lm="lm")
    assert found("dataset") == {"data dev": 20}
    assert found("dataset", "lm") == {}


def test_searches_are_told_apart(decode, found):
    decode("plain.txt", 1)
    decode("half.txt", 2, precision="bf16")
    decode("small.txt", 3, lm="exp/small/lm")
    decode("big.txt", 4, lm="exp/big/lm")
    decode("words.txt", 5, lm="exp/words")
    decode("left.txt", 6, channel=0)
    decode("silero.txt", 7, vad="silero")
    expected = {
        "joint": 10,
        "joint, precision bf16": 20,
        "joint, lm small/lm, lm weight 0.3": 30,
        "joint, lm big/lm, lm weight 0.3": 40,
        "joint, lm words, lm weight 0.3": 50,
        "joint, channel 0": 60,
        "joint, vad silero": 70,
    }
    assert found("search") == expected


def test_what_words_do_not_tell_apart_has_the_name_of_its_file(decode, found):
    decode("before.txt", 1, lm="lm", lm_content="old")
    decode("after.txt", 2, lm="lm", lm_content="new")
    search = "joint, lm lm, lm weight 0.3"
    assert found("search") == {f"{search} (before.txt)": 10, f"{search} (after.txt)": 20}


def test_sets_of_one_name_are_told_apart(decode, found):
    decode("one.txt", 1, "one/data/dev.jsonl")
    decode("two.txt", 2, "two/data/dev.jsonl")
    decode("test.txt", 3, "data/test.jsonl")
    assert found("dataset") == {"one/data dev": 10, "two/data dev": 20, "data test": 30}


def test_text_and_json_of_one_decoding_are_one_result(decode, found):
    decode("dev.txt", 2)
    decode("again.txt", 2, times=True)
    assert found("search") == {"joint": 20}
