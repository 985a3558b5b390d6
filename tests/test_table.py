"""Prove that a table is the list of utterances that it was made of, and that rows and strings are theirs, by laws."""

import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused
from small import rows

from asr.data import columns as table
from asr.data import manifest
from asr.data.columns import Ragged, Table
from asr.data.manifest import Utterance

TEXT = st.text(st.characters(codec=None), max_size=8)  # any character, half surrogate pairs too
SECONDS = st.floats(0, 1e5)
UTTERANCES = st.lists(
    st.builds(
        Utterance,
        id=TEXT,
        path=TEXT,
        rate=st.integers(1, 192_000),
        samples=st.integers(0, 2**40),
        channels=st.integers(1, 64),
        start=SECONDS,
        duration=SECONDS,
        text=TEXT,
        speaker=st.none() | st.text(min_size=1, max_size=4),
        channel=st.none() | st.integers(0, 1023),
    ),
    max_size=8,
)
PLAIN = Utterance("u1", "/a.wav", 16000, 16000, 1, 0.0, 1.0, "GO", None)


@given(UTTERANCES, st.data())
def test_a_table_is_the_list_of_its_utterances(utterances, data):
    size, made = len(utterances), Table.of(iter(utterances))
    for same in (made, pickle.loads(pickle.dumps(made))):
        assert list(same) == utterances and len(same) == size
        assert list(same.ids) == [u.id for u in utterances]
        assert list(same.texts) == [u.text for u in utterances]
        assert same.durations.dtype == np.float64
        assert same.durations.tolist() == [u.duration for u in utterances]
        assert [same[n - size] for n in range(size)] == utterances
        for outside in (size, -size - 1):
            with pytest.raises(IndexError):
                same[outside]
    chosen = data.draw(st.lists(st.integers(0, size - 1), max_size=12)) if size else []
    assert [*made.select(np.array(chosen, np.int64))] == [utterances[n] for n in chosen]


@given(st.sampled_from([(2, 1), (256, 1), (257, 2), (70_000, 4)]), st.data())
def test_rows_of_token_ids(sizes, data):
    vocabulary, bytes_each = sizes
    rows = data.draw(st.lists(st.lists(st.integers(0, vocabulary - 1), max_size=5), max_size=8))
    made = Ragged.of_ids(rows, vocabulary)
    assert [row.tolist() for row in made] == rows
    assert made.lens.tolist() == list(map(len, rows))
    assert made.values.itemsize == bytes_each
    places = np.arange(len(rows))[::-2]
    assert [row.tolist() for row in made.select(places)] == rows[::-2]


def test_several_manifests_are_one_table(tmp_path):
    speakers = {f"{tmp_path}/{len(each)}.jsonl.gz": each for each in ([None, "s"], [], ["s"])}
    parts = {
        path: [
            replace(PLAIN, id=f"{path}-{n}", text="é 你好", speaker=s) for n, s in enumerate(each)
        ]
        for path, each in speakers.items()
    }
    for path, part in parts.items():
        manifest.write(path, part)
        assert [*table.read(path)] == part
    assert [*table.read([*parts])] == sum(parts.values(), [])
    refused(r"gone\.jsonl\.gz: no such manifest", table.read, [*parts, tmp_path / "gone.jsonl.gz"])


def test_a_table_is_small():
    """No Python object is kept of an utterance: one takes its texts, five numbers, a channel and four places."""
    count = 2000
    made = Table.of(replace(PLAIN, id=f"u{n:06d}", text="X" * 200) for n in range(count))
    bytes_each = 7 + len("/a.wav") + 200 + 5 * 8 + 2 + 4 * 8
    assert len(pickle.dumps(made)) < count * bytes_each + 3000


WRONG = r"""
    duration | '1.0' | got '1.0', expected a number
    duration | null  | got None, expected a number
    start    | true  | got True, expected a number
    rate     | 16000.0 | got 16000.0, expected a whole number
    id       | 7     | got 7, expected a string
    speaker  | 7     | got 7, expected a string or nothing
    samples  | 9223372036854775808 | got 9223372036854775808, expected a whole number
    duration | .nan  | got nan, expected a number
    rate     | 1     | got 1, expected 1,000 to 1,000,000 Hz
    samples  | 0     | got 0, expected 1 or more
    start    | -0.5  | got -0.5, expected 0 s or more
    duration | 0.0   | got 0.0, expected more than 0 s
    id       | "a\nb\tc" | got 'a\\nb\\tc', which has a control character (U+000A)
    id       | "\u2028" | got '\\u2028', which begins or ends with white space
    id       | ""    | got '', which is empty
    speaker  | "\x1b[2J" | got '\\x1b[2J', which has a control character (U+001B)
    text     | "a\0b" | got 'a\\x00b', which has a control character (U+0000)
    path     | "/a\0.wav" | got '/a\\x00.wav', which has a control character (U+0000)
"""


@pytest.mark.parametrize("name, value, says", rows(WRONG))
def test_a_value_of_the_wrong_type_is_named(tmp_path, name, value, says):
    path = tmp_path / "x.jsonl.gz"
    manifest.write(path, [PLAIN, replace(PLAIN, **{"id": "u2", name: yaml.safe_load(value)})])
    for read in (table.read, lambda path: list(manifest.read(path))):
        refused(re.escape(f"{path}:2: {name}: {says}") + "$", read, path)
