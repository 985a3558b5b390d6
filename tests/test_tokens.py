"""Prove that a text on disk is the text in memory, whoever tokenized it and however often they were stopped; and that
its plan, window by window, keeps the laws of a plan. Expected values: the text in memory, brute force, and the laws.
"""

import gc
import gzip
import pickle
import random
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from asr.data import bucketing, texts, tokens
from asr.data.bucketing import Windows, plan
from asr.data.columns import Ragged
from asr.data.texts import tokenize
from asr.data.tokens import stored
from asr.errors import UserError
from asr.text import tokenizer

LINES = 3000
CHANGES = {
    "text": lambda root: (root / "x.txt").write_text("a b\n"),
    "tokenizer": lambda root: tokenizer.train("characters", ["a b c d e"]).save(root / "t"),
}


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A text of many small blocks, with empty and too long lines, and a tokenizer."""
    monkeypatch.setattr(texts, "BLOCK", 1000)
    monkeypatch.setattr(texts, "cores", lambda: 1)
    rng = random.Random(1)
    lines = ["".join(rng.choices("abcd ", k=rng.randrange(30))) for _ in range(LINES)]
    (tmp_path / "x.txt").write_text("\n".join(lines))
    tokenizer.train("characters", ["a b c d"]).save(tmp_path / "t")
    return tmp_path


def store(root, name="x.txt", folder="tokens", max_tokens=20):
    return stored(str(root / name), str(root / "t"), root / folder, max_tokens)


def assert_same(got, expected):
    np.testing.assert_array_equal(got.labels.values, expected.labels.values)
    np.testing.assert_array_equal(got.labels.offsets, expected.labels.offsets)
    np.testing.assert_array_equal(got.lines, expected.lines)
    assert (got.message, got.dropped) == (expected.message, expected.dropped)
    assert got.labels.values.dtype == expected.labels.values.dtype


def in_memory(root):
    return tokenize(root / "x.txt", tokenizer.load(root / "t"), 20)


@pytest.mark.parametrize("few", [10**6, 2], ids=["one process", "several processes"])
def test_a_text_on_disk_is_the_text_in_memory(root, monkeypatch, few):
    monkeypatch.setattr(texts, "FEW", few)
    monkeypatch.setattr(texts, "cores", lambda: 2)
    assert (
        len(list(texts.blocks(root / "x.txt"))) > 20
        and in_memory(root).empty > 10
        and in_memory(root).long
    )
    assert_same(store(root), in_memory(root))


def test_what_goes_to_another_process_is_the_name_of_the_folder(root):
    sentences = store(root)
    assert len(pickle.dumps(sentences)) < 1000
    assert_same(pickle.loads(pickle.dumps(sentences)), sentences)
    assert_same(pickle.loads(pickle.dumps(in_memory(root))), sentences)


def test_a_text_is_tokenized_once(root, monkeypatch):
    expected = store(root)
    monkeypatch.setattr(tokens, "encoded", None)
    assert_same(store(root), expected)


@pytest.mark.parametrize("stop_at", [1, 7, 15])
def test_an_interrupted_text_goes_on_where_it_was_saved(root, monkeypatch, capsys, stop_at):
    """Stopped twice; saved after every second block, so that there is something to cut off."""
    monkeypatch.setattr(tokens, "SAVE_SECONDS", 0)
    append, save, encoded, counted = tokens.Arrays.append, tokens.Arrays.save, [], []

    def stopping(self, part):
        if len(counted) == stop_at:
            raise KeyboardInterrupt
        counted.append(part)
        append(self, part)

    def encode_block(block, **how):
        encoded.append(block.first)
        return encode(block, **how)

    encode = texts.encode_block
    monkeypatch.setattr(texts, "encode_block", encode_block)
    monkeypatch.setattr(texts, "FEW", 0)
    monkeypatch.setattr(texts, "cores", lambda: 1)
    monkeypatch.setattr(tokens.Arrays, "append", stopping)
    monkeypatch.setattr(
        tokens.Arrays, "save", lambda self: save(self) if len(counted) % 2 == 0 else None
    )
    for _ in range(2):
        counted.clear()
        with pytest.raises(KeyboardInterrupt):
            store(root)
    monkeypatch.undo()
    monkeypatch.setattr(texts, "BLOCK", 1000)
    assert_same(store(root), in_memory(root))
    if stop_at > 1:
        assert "tokens: going on after" in capsys.readouterr().err and len(set(encoded)) > stop_at


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_redoes_it(root, change):
    store(root)
    CHANGES[change](root)
    assert_same(store(root), in_memory(root))
    assert_same(
        store(root, max_tokens=30), tokenize(root / "x.txt", tokenizer.load(root / "t"), 30)
    )


def test_gz_and_manifests_are_stored_too(root):
    with gzip.open(root / "x.txt.gz", "wb") as file:
        file.write((root / "x.txt").read_bytes())
    np.testing.assert_array_equal(
        store(root, "x.txt.gz").labels.values, in_memory(root).labels.values
    )


@pytest.mark.parametrize("few", [10**6, 2], ids=["one process", "several processes"])
@pytest.mark.parametrize(
    "content, message",
    [
        (
            "a b\n" * 2000 + "c x d\n" + "a b\n" * 2000,
            r"x\.txt:2001: character 'x' \(U\+0078\) of 'c x d' is not in",
        ),
        ("\n\n", r"x\.txt: holds no sentence to use$"),
        (
            "abcd" * 9 + "\n",
            r"x\.txt: holds no sentence to use; 1 sentences are longer than max_tokens=20$",
        ),
        (None, r"x\.txt: no such text file"),
    ],
)
def test_mistakes(root, monkeypatch, few, content, message):
    monkeypatch.setattr(texts, "FEW", few)
    monkeypatch.setattr(texts, "cores", lambda: 2)
    (root / "x.txt").write_text(content) if content else (root / "x.txt").unlink()
    with pytest.raises(UserError, match=message):
        store(root)


def test_a_damaged_array_is_refused(root):
    store(root)
    with open(root / "tokens/ids", "ab") as file:
        file.write(b"x")
    with pytest.raises(
        UserError, match=r"tokens/ids: damaged; remove .*tokens, and it is made anew"
    ):
        store(root)


@pytest.mark.parametrize("name", ["lines", "state.json"])
def test_an_absent_file_is_refused(root, name):
    store(root)
    (root / "tokens" / name).unlink()
    with pytest.raises(
        UserError, match=rf"tokens/{name}: damaged; remove .*tokens, and it is made anew"
    ):
        store(root)


def stopped(root, monkeypatch, blocks, **how):
    """Tokenize, and be stopped after a number of blocks, before anything is saved."""
    append = tokens.Arrays.append

    def stopping(self, part):
        if self.state.blocks == blocks:
            raise KeyboardInterrupt
        append(self, part)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tokens.Arrays, "append", stopping)
        store(root, **how)


@pytest.mark.parametrize("blocks", [0, 3, 30])
def test_what_another_setting_has_overwritten_is_not_gone_on_with(root, monkeypatch, blocks):
    with monkeypatch.context() as patch:
        patch.setattr(tokens, "SAVE_SECONDS", 0)
        stopped(root, patch, 10)
    stopped(root, monkeypatch, blocks, max_tokens=3)
    assert_same(store(root), in_memory(root))


def test_what_another_process_has_finished_meanwhile_is_left_alone(root, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(tokens, "SAVE_SECONDS", 0)
        stopped(root, patch, 10)
    finished = []

    def encoded(*arguments):
        patch.undo()
        finished.append(store(root))
        return texts.encoded(*arguments)

    says = "tokens: another process was at work in it; run the same command again"
    with monkeypatch.context() as patch, pytest.raises(UserError, match=says):
        patch.setattr(tokens, "encoded", encoded)
        store(root)
    assert_same(finished[0], in_memory(root))
    assert_same(store(root), in_memory(root))


def test_who_has_mapped_the_arrays_keeps_them_when_they_are_made_anew(root):
    before = store(root)
    store(root, max_tokens=3)
    assert_same(before, in_memory(root))


def test_memory_is_that_of_windows_not_of_the_text(tmp_path):
    """A text of 100 MB, whose plan as a whole would take 40 MB more, in windows of an eighth of it."""
    code = """
import numpy as np
from asr.data import bucketing, columns
from asr.data.columns import Ragged
from asr.data.dataset import collate_sentences
from asr.data.texts import Sentences
def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) / 1024
bucketing.WINDOW = columns.AT_ONCE = 1 << 17
N, U = 8 << 17, 50
ids, offsets = np.memmap("ids", np.uint16, "w+", shape=N * U), np.memmap("offsets", np.int64, "w+", shape=N + 1)
offsets[:] = np.arange(N + 1) * U
before = anonymous()
sentences = Sentences("x", Ragged(np.asarray(ids), np.asarray(offsets)), offsets[:-1], 0, 0, [])
steps = bucketing.Windows(sentences.labels, 51 * 1024, 1, 0, 8)
collate_sentences(sentences, steps[len(steps) // 2][0]), sentences.labels.longest(3)
print(len(steps), anonymous() - before)
"""
    if not Path("/proc/self/status").exists():
        pytest.skip("the system doesn't tell")
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout
    steps, taken = map(float, out.split())
    assert steps == 8 * (1 << 17) / 1024 / 8 and taken < 35


# ---- the plan


@pytest.fixture
def labels(monkeypatch):
    """2000 sentences in 100 blocks, five windows."""
    monkeypatch.setattr(bucketing, "BLOCK", 20)
    monkeypatch.setattr(bucketing, "WINDOW", 400)
    rng = np.random.default_rng(1)
    return Ragged.of_ids((range(n) for n in rng.integers(1, 50, 1990)), 60)


def test_every_sentence_is_in_one_batch_of_at_most_so_many_tokens(labels):
    steps = list(Windows(labels, 200, 3, 0, 4))
    assert sorted(n for step in steps for batch in step for n in batch) == list(range(1990))
    assert all(
        len(batch) == 1 or len(batch) * (labels.lens[batch].max() + 1) <= 200
        for s in steps
        for batch in s
    )
    assert {len(step) for step in steps[:-1]} <= {1, 2, 3, 4}
    padded = sum(len(batch) * labels.lens[batch].max() for step in steps for batch in step)
    assert padded < 1.15 * labels.lens.sum()


def test_steps_depend_on_seed_and_epoch_alone_and_any_can_be_had_at_once(labels):
    steps = list(Windows(labels, 200, 3, 5, 4))
    again = Windows(labels, 200, 3, 5, 4)
    for n in random.Random(2).sample(range(len(steps)), 20):  # as a resumed run does, in any window
        assert again[n] == steps[n]
    assert again[-1] == steps[-1] and len(again) == len(steps)
    with pytest.raises(IndexError):
        again[len(steps)]
    others = [list(Windows(labels, 200, *facts, 4)) for facts in [(4, 5), (3, 6)]]
    assert all(other != steps for other in others)


def test_neighbors_of_the_text_part_and_windows_differ_from_epoch_to_epoch(labels):
    def first_window(epoch):
        steps = Windows(labels, 200, 3, epoch, 4)
        return {
            n
            for step in (steps[n] for n in range(len(steps) // 5))
            for batch in step
            for n in batch
        }

    one, two = first_window(0), first_window(1)
    assert max(one) - min(one) > 1500 and len(one & two) < 0.5 * len(one)


def test_a_plan_is_gone_when_nobody_has_it(labels):
    gc.disable()
    try:
        steps = Windows(labels, 200, 3, 5, 4)
        gone = weakref.ref(steps)
        del steps
        assert gone() is None
    finally:
        gc.enable()


def test_a_text_of_one_window_is_planned_as_a_whole(labels, monkeypatch):
    monkeypatch.setattr(bucketing, "WINDOW", 2000)
    assert list(Windows(labels, 200, 3, 5, 4)) == plan(labels.lens + 1, 200, 3, 5, 4)


def test_the_longest_and_batches_are_those_of_brute_force(labels, monkeypatch):
    monkeypatch.setattr("asr.data.columns.AT_ONCE", 300)
    assert labels.longest(7) == sorted(range(1990), key=lambda n: (-len(labels[n]), n))[:7]
    assert len(labels.longest(5000)) == 1990
