"""Prove that a text on disk is the text in memory, whoever tokenized it and however often they were stopped; and that
its plan, window by window, keeps the laws of a plan. Expected values: the text in memory, brute force, and the laws.
"""

import gc
import pickle
import random
import subprocess
import sys
import weakref
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from asr.data import bucketing, texts, tokens
from asr.data.bucketing import Windows, plan
from asr.data.columns import Ragged
from asr.data.texts import tokenize
from asr.data.tokens import stored
from asr.text import tokenizer

each = pytest.mark.parametrize
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


def store(root, max_tokens=20):
    return stored(str(root / "x.txt"), str(root / "t"), root / "tokens", max_tokens)


def assert_same(got, expected):
    facts, others = (
        [x.labels.values.dtype, x.message, x.dropped]
        + [array.tolist() for array in (x.labels.values, x.labels.offsets, x.lines)]
        for x in (got, expected)
    )
    assert facts == others


def in_memory(root, max_tokens=20):
    return tokenize(root / "x.txt", tokenizer.load(root / "t"), max_tokens)


@pytest.fixture(params=[10**6, 2], ids=["one process", "several processes"])
def processes(request, monkeypatch, root):
    monkeypatch.setattr(texts, "FEW", request.param)
    monkeypatch.setattr(texts, "cores", lambda: 2)


def test_a_text_on_disk_is_the_text_in_memory_tokenized_once(root, monkeypatch, processes):
    expected = in_memory(root)
    assert len(list(texts.blocks(root / "x.txt"))) > 20 and expected.empty > 10 and expected.long
    sentences = store(root)
    assert_same(sentences, expected)
    monkeypatch.setattr(tokens, "encoded", None)
    assert_same(store(root), expected)
    assert len(pickle.dumps(sentences)) < 1000  # another process gets the folder's name
    for one in (sentences, expected):
        assert_same(pickle.loads(pickle.dumps(one)), expected)


def stopped(root, monkeypatch, blocks, saving=True, **how):
    """Tokenize, and be stopped after a number of blocks; every second one is saved, or none."""
    append, save = tokens.Arrays.append, tokens.Arrays.save

    def stopping(self, part):
        if self.state.blocks == blocks:
            raise KeyboardInterrupt
        append(self, part)

    def saving_some(self):
        if saving and self.state.blocks % 2 == 0:
            save(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(tokens, "SAVE_SECONDS", 0)
        patch.setattr(tokens.Arrays, "append", stopping)
        patch.setattr(tokens.Arrays, "save", saving_some)
        store(root, **how)


@each("blocks", [1, 7, 15])
def test_an_interrupted_text_goes_on_where_it_was_saved(root, monkeypatch, stderr, blocks):
    for number in (blocks, 2 * blocks):
        stopped(root, monkeypatch, number)
    assert ("tokens: going on after" in stderr()) == (blocks > 1)
    assert_same(store(root), in_memory(root))
    assert "tokens: going on after" in stderr()


@each("change", CHANGES)
def test_a_change_redoes_it_and_who_has_mapped_the_arrays_keeps_them(root, change):
    before, expected = store(root), in_memory(root)
    CHANGES[change](root)
    assert_same(store(root), in_memory(root))
    assert_same(store(root, max_tokens=3), in_memory(root, 3))
    assert_same(before, expected)


def test_mistakes_name_the_line_whoever_tokenized_it(root, processes):
    (root / "x.txt").write_text("a b\n" * 2000 + "c x d\n" + "a b\n" * 2000)
    refused(r"x\.txt:2001: character 'x'", store, root)


@each("name", ["ids", "lines", "state.json"])
def test_a_damaged_or_absent_file_is_refused(root, name):
    store(root)
    path = root / "tokens" / name
    path.write_bytes(path.read_bytes() + b"x") if name == "ids" else path.unlink()
    refused(rf"{path}: damaged; remove .*tokens, and it", store, root)


@each("blocks", [0, 3, 30])
def test_what_another_setting_has_overwritten_is_not_gone_on_with(root, monkeypatch, blocks):
    stopped(root, monkeypatch, 10)
    stopped(root, monkeypatch, blocks, saving=False, max_tokens=3)
    assert_same(store(root), in_memory(root))


def test_what_another_process_has_finished_meanwhile_is_left_alone(root, monkeypatch):
    stopped(root, monkeypatch, 10)
    finished = []

    def encoded(*arguments):
        patch.undo()
        finished.append(store(root))
        return texts.encoded(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(tokens, "encoded", encoded)
        refused("tokens: another process", store, root)
    for one in (*finished, store(root)):
        assert_same(one, in_memory(root))


@pytest.mark.slow
def test_memory_is_that_of_windows_not_of_the_text(tmp_path):
    """A text of 100 MB, whose plan as a whole would take 40 MB more, in windows of an eighth; and pairs of texts."""
    code = """
import numpy as np
from asr.data import bucketing, columns, parallel
from asr.data.columns import Ragged
from asr.data.batches import collate_sentences
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
pairs = parallel.join(sentences, sentences)
steps = bucketing.Windows(pairs, 51 * 1024, 1, 0, 8)
pairs.batch(steps[len(steps) // 2][0]), pairs.longest(3)
print(len(steps), anonymous() - before)
"""
    if not Path("/proc/self/status").exists():
        pytest.skip("the system doesn't tell")
    out = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=tmp_path)
    for line in out.splitlines():
        steps, taken = map(float, line.split())
        assert steps == 8 * (1 << 17) / 1024 / 8 and taken < 35


# ---- the plan


@pytest.fixture
def labels(monkeypatch):
    """2000 sentences in 100 blocks, five windows."""
    monkeypatch.setattr(bucketing, "BLOCK", 20)
    monkeypatch.setattr(bucketing, "WINDOW", 400)
    rng = np.random.default_rng(1)
    return Ragged.of_ids((range(n) for n in rng.integers(1, 50, 1990)), 60)


def test_every_sentence_is_in_one_batch_of_a_limited_number_of_tokens(labels):
    steps = list(Windows(labels, 200, 3, 0, 4))
    batches = list(chain(*steps))
    padded = [len(batch) * (labels.lens[batch].max() + 1) for batch in batches]
    assert sorted(chain(*batches)) == list(range(1990))
    assert all(size <= 200 or len(batch) == 1 for size, batch in zip(padded, batches, strict=True))
    assert {len(step) for step in steps[:-1]} <= {1, 2, 3, 4}
    assert sum(padded) < 1.15 * (labels.lens + 1).sum()


def test_steps_depend_on_seed_and_epoch_alone_and_any_can_be_had_at_once(labels):
    steps = list(Windows(labels, 200, 3, 5, 4))
    again = Windows(labels, 200, 3, 5, 4)
    for n in random.Random(2).sample(range(-1, len(steps)), 20):  # as a resumed run, in any window
        assert again[n] == steps[n]
    assert len(again) == len(steps)
    with pytest.raises(IndexError):
        again[len(steps)]
    assert all(list(Windows(labels, 200, *facts, 4)) != steps for facts in [(4, 5), (3, 6)])


def test_neighbors_of_the_text_part_and_windows_differ_from_epoch_to_epoch(labels):
    plans = [list(Windows(labels, 200, 3, epoch, 4)) for epoch in (0, 1)]
    one, two = (set(chain(*chain(*steps[: len(steps) // 5]))) for steps in plans)
    assert max(one) - min(one) > 1500 and len(one & two) < 0.5 * len(one)


def test_a_plan_is_gone_when_nobody_has_it(labels):
    gc.disable()
    try:
        gone = weakref.ref(Windows(labels, 200, 3, 5, 4))
        assert gone() is None
    finally:
        gc.enable()


def test_a_text_of_one_window_is_planned_as_a_whole(labels, monkeypatch):
    monkeypatch.setattr(bucketing, "WINDOW", 2000)
    assert list(Windows(labels, 200, 3, 5, 4)) == plan(labels.lens + 1, 200, 3, 5, 4)


def test_the_longest_are_those_of_brute_force(labels, monkeypatch):
    monkeypatch.setattr("asr.data.columns.AT_ONCE", 300)
    assert labels.longest(7) == sorted(range(1990), key=lambda n: (-len(labels[n]), n))[:7]
    assert len(labels.longest(5000)) == 1990
