"""Each corpus' own layout becomes one lhotse CutSet a split.

Expected values: corpora of known content made here, and the real folders, whose counts are in their README. That lhotse
reads and writes the same stands in test_channels.py.
"""

import os
from pathlib import Path

import pytest
import refusals
from layouts import aishell, an4, librispeech, refused, sound, texts, tsv

from asr.data import corpora, manifest
from asr.data.corpora.aishell import join_han
from asr.data.corpora.corpus import Item
from asr.data.manifest import Utterance
from asr.data.prepare import prepare
from asr.data.split import carve, choose_speakers
from asr.data.statistics import Statistics, histograms, table


def listed(made):
    """Split → utterances."""
    return {name: list(manifest.read(path)) for name, path in made.manifests.items()}


def speakers(made):
    """Split → speakers; nobody is in two."""
    found = {name: {u.speaker for u in split} for name, split in listed(made).items()}
    assert sum(map(len, found.values())) == len(set.union(*found.values()))
    return found


def sizes(made):
    return {name: len(split) for name, split in listed(made).items()}


def names(folder):
    return {path.name for path in folder.glob("[!.]*")}


def test_librispeech_subsets_are_splits(tmp_path):
    source = librispeech(tmp_path / "corpus" / "LibriSpeech").parent
    made = prepare("librispeech", source, tmp_path / "out")
    assert list(made.manifests) == ["dev-clean", "train-mini"]
    assert texts(made, "train-mini") == {"10-7-0000": "WORD NUMBER 0", "10-7-0001": "WORD NUMBER 1"}
    counts = made.statistics["train-mini"]
    assert counts == Statistics(2, 2 / 3600, 1, 6, 4, 22, 0.5, 1.5, 1.0, (1, 1, *[0] * 7))
    assert "train-mini           2   0.00         1      6         4" in table(made.statistics)


def test_aishell_joins_han_and_names_what_was_never_transcribed(tmp_path):
    made = prepare("aishell", aishell(tmp_path), tmp_path / "out")
    assert texts(made, "train") == {"S0002W1": "而对楼市", "S0002W2": "我用 IPHONE 六"}
    assert texts(made, "test") == {"S0003W1": "甚至"}
    assert made.notes[0] == "train: left out, because they have no transcript (1): S0002W9"
    assert speakers(made)["train"] == {"S0002"}
    assert join_han(" 一 A B 二 三 ") == "一 A B 二三"


def test_yesno_words_are_the_names_and_every_other_file_trains(tmp_path):
    names = sorted("_".join(f"{n:08b}") for n in range(60))
    for name in names:
        sound(tmp_path / "waves_yesno" / f"{name}.wav", 0.1, rate=8000)
    made = prepare("yesno", tmp_path, tmp_path / "out")
    assert list(texts(made, "test")) == names[1::2]
    assert list(texts(made, "dev")) == names[::2][5::6]
    assert texts(made, "train").keys() | texts(made, "dev").keys() == set(names[::2])
    assert texts(made, "train")["0_0_0_0_0_0_1_0"] == "NO NO NO NO NO NO YES NO"
    assert made.notes[0].endswith("which has only one speaker: dev is not speaker-disjoint")


TABLES = {
    "bare": "u1\tclips/a.wav\tHello there\tann\nu2\tclips/b.wav\t你好\tbob",
    "header, any order, BOM, CRLF, blank line": "\ufeffText\tsize\tspeaker\tID\tpath\n"
    "Hello  there\t1\tann\tu1\tclips/a.wav\r\n\n你好\t1\tbob\tu2\tclips/b.wav",
}


@pytest.mark.parametrize("kind", TABLES)
def test_tsv(tmp_path, kind):
    table = tsv(tmp_path, "mine.tsv", TABLES[kind].split("\n"))
    found = listed(prepare("tsv", table, tmp_path / "out"))["mine"]
    assert [(u.id, u.path, u.duration, u.text, u.speaker) for u in found] == [
        ("u1", f"{tmp_path}/clips/a.wav", 0.5, "Hello there", "ann"),
        ("u2", f"{tmp_path}/clips/b.wav", 0.5, "你好", "bob"),
    ]


def test_tsv_folder_without_speakers_carves_utterances_and_says_so(tmp_path):
    tsv(tmp_path, "train.tsv", ["u1\tclips/a.wav\tA", "u2\tclips/b.wav\tB"])
    tsv(tmp_path, "test.tsv", ["u3\tclips/c.wav\tC"])
    made = prepare("tsv", tmp_path, tmp_path / "out", dev=0.5)
    found = {name: [(u.id, u.speaker) for u in split] for name, split in listed(made).items()}
    assert found == {"train": [("u1", None)], "dev": [("u2", None)], "test": [("u3", None)]}
    assert "recordings of unknown speakers: dev is not speaker-disjoint" in made.notes[0]


def test_a_folder_of_sounds_needs_no_texts(tmp_path):
    noise = tmp_path / "noise"
    for name in ("b.wav", "deep/er/a.flac", "deep/._b.wav"):
        sound(noise / name, 0.25)
    (noise / "README").touch()
    found = listed(prepare("folder", noise, tmp_path / "out"))["recordings"]
    assert [(u.id, u.path, u.text, u.duration) for u in found] == [
        (name, f"{noise}/{name}", "", 0.25) for name in ("b.wav", "deep/er/a.flac")
    ]


def items(*sizes):
    """Utterances of as many speakers as there are sizes: s0, s1, ..."""
    speakers = [f"s{s}" for s, size in enumerate(sizes) for _ in range(size)]
    return [Item(f"{n}", Path("x"), "T", speaker, "") for n, speaker in enumerate(speakers)]


def test_carving_is_near_the_wish_and_the_same_for_any_order():
    many = items(*(1 + s % 7 for s in range(30)))
    train, dev, _ = carve(many, 20)
    assert abs(len(dev) - 20) <= 3 and len(train) + len(dev) == len(many)
    assert {i.speaker for i in dev} == choose_speakers(many[::-1], 20)
    refusals.refused("fewest utterances has 50; request about 50", carve, items(50, 50), 10)
    few, everybody = items(50, 50, 50), {"s0", "s1", "s2"}
    train, dev, how = carve(few, 0.1)  # of a share it is every tenth
    assert (len(train), len(dev), {i.speaker for i in dev}) == (135, 15, everybody)
    assert "15 evenly spaced utterances of train, which has 3 speakers of 50 utterances" in how
    assert {i.speaker for i in carve(few, 0.3)[1]} < everybody and len(carve(few, 0.001)[1]) == 1
    # both would be nearer, but nobody would be left to train on
    assert len(choose_speakers(items(3, 100), 102)) == 1
    refusals.refused("dev: got 500, expected 1 to 114 of 115 training", carve, many, 500)


def test_again_does_nothing_and_a_change_is_seen(tmp_path):
    source = librispeech(tmp_path / "c")
    file, written = source / "train-mini/10/7/10-7-0000.flac", tmp_path / "out/train-mini.jsonl.gz"

    def again():
        return prepare("librispeech", source, tmp_path / "out")

    assert not again().current and again().current
    before = written.read_bytes()
    prepare("librispeech", source, source / "out")  # an output inside the corpus changes nothing
    assert again().current
    written.unlink()
    assert not again().current and written.read_bytes() == before
    sound(file, 0.7)
    assert again().statistics["train-mini"].shortest == 0.7
    # another recording may be as long in bytes
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 1_000_000))
    assert not again().current


def test_several_supervisions_of_a_cut_are_one_text():
    """lhotse has them where a recording's parts were joined."""
    parts = [{"text": "GO"}, {"speaker": "s1"}, {"text": "ON", "speaker": "s2"}]
    line = Utterance("a", "/a.wav", 8000, 8000, 1, 0.0, 1.0, "").line()
    found = Utterance.of_line(line | {"supervisions": parts})
    assert (found.text, found.speaker) == ("GO ON", "s1")


def test_only_the_splits_asked_for(tmp_path):
    subsets, out = ("train-mini", "dev-clean", "test-other"), tmp_path / "out"
    source = librispeech(tmp_path / "c", subsets)
    prepare("librispeech", source, out, splits=["train-mini"])
    made = prepare("librispeech", source, out, splits=["test-other", "dev-clean", "dev-clean"])
    assert list(made.manifests) == list(made.statistics) == ["dev-clean", "test-other"]
    assert prepare("librispeech", source, out, splits=["dev-clean", "test-other"]).current
    assert names(out) == {f"{name}.jsonl.gz" for name in subsets}
    refused("librispeech", source, "splits: got 'dev-other'", *subsets, splits=["dev-other"])


def test_a_split_of_another_size_than_the_complete_corpus_has_is_noted(tmp_path, monkeypatch):
    made = prepare("librispeech", librispeech(tmp_path / "c"), tmp_path / "a")
    assert made.notes == ["dev-clean: 2 utterances, the complete corpus has 2,703"]
    monkeypatch.setitem(corpora.librispeech.COMPLETE, "dev-clean", 2)
    assert prepare("librispeech", tmp_path / "c", tmp_path / "b").notes == []
    made = prepare("aishell", aishell(tmp_path / "aishell"), tmp_path / "d", dev=1)
    note = "train: 2 utterances, the complete corpus has 120,098"  # before a dev set is carved
    assert note in made.notes


def test_a_histogram_counts_each_duration_once():
    def of(*durations):
        return Statistics.of([Utterance("u", "a", 8000, 1, 1, 0.0, s, "") for s in durations])

    counted = of(0.5, 0.999, 1.0, 1.5, 29.9, 30.0, 400.0)
    assert counted.histogram == (2, 2, 0, 0, 0, 0, 0, 1, 2)
    rare = of(0.5, *[30.0] * 3999)
    assert histograms({"train": counted, "one": rare}) == (
        "% by seconds    <1    <2  <5  <10  <15  <20  <25   <30    30+\n"
        "train         28.6  28.6   -    -    -    -    -  14.3   28.6\n"
        "one           <0.1     -   -    -    -    -    -     -  100.0"
    )


def test_test_and_dev_are_carved_from_a_table_of_any_name(tmp_path):
    """Six speakers of four utterances: test has one of them, dev one or two."""
    lines = [f"u{n:02d}\tclips/a.wav\tword {n}\tspeaker{n % 6}" for n in range(24)]
    file, out = tsv(tmp_path, "mine.tsv", lines), tmp_path / "out"
    for dev in (4, 8, 4):  # a dev set of another size is carved anew
        made = prepare("tsv", file, out, dev=dev, test=0.2)
        assert sizes(made) == {"train": 20 - dev, "dev": dev, "test": 4}
        for name, found in speakers(made).items():
            assert (out / f"{name}.speakers").read_text().split() == sorted(found)
    assert made.notes == [
        "test: 4 utterances by 1 of 6 training speakers, who leave train",
        "dev: 4 utterances by 1 of 5 training speakers, who leave train",
    ]
    prepare("tsv", file, out)  # nothing carved any more
    assert names(out) == {"mine.jsonl.gz"}


def test_a_dev_set_stays_beside_the_train_it_is_carved_from(tmp_path):
    source, out = an4(tmp_path / "an4"), tmp_path / "out"
    made = prepare("an4", source, out, dev=20)
    assert list(map(len, speakers(made).values())) == [10, 2, 12]
    assert {u.text for split in listed(made).values() for u in split} == {"RUBOUT G M"}
    before = (out / "dev.jsonl.gz").read_bytes()
    assert list(prepare("an4", source, out, splits=["test"]).manifests) == ["test"]
    assert (out / "dev.jsonl.gz").read_bytes() == before
    assert list(prepare("an4", source, out, splits=["train"]).manifests) == ["train", "dev"]


def test_texts_are_rewritten_by_a_convention(tmp_path):
    spoken = "It’s me, José!", "IT'S YOU", "我用ｉＰｈｏｎｅ。"
    lines = [f"u{n}\tclips/a.wav\t{text}" for n, text in enumerate(spoken)]
    file = tsv(tmp_path, "train.tsv", lines)

    def normalized(kind):
        return prepare("tsv", file, tmp_path / "out", normalize=kind)

    made = normalized("english")
    assert list(texts(made, "train").values()) == ["IT'S ME JOSE", "IT'S YOU", "我用IPHONE"]
    [note] = made.notes
    assert "2 of 3 texts changed" in note and "'It’s me, José!' → \"IT'S ME JOSE\"" in note
    assert normalized("english").current
    assert texts(normalized("plain"), "train")["u0"] == "IT'S ME JOSÉ"
    silent = tsv(tmp_path, "silent.tsv", ["u1\tclips/a.wav\t..."])
    refused("tsv", silent, f"empty texts (1): u1 ({silent}:1)", normalize="plain")


# the real corpora


def test_real_an4(shared_data, tmp_path):
    made = prepare("an4", shared_data / "an4", tmp_path / "out")
    found, voices = sizes(made), speakers(made)
    assert found["train"] + found["dev"] == 948 and found["test"] == 130
    assert 90 <= found["dev"] <= 110
    assert len(voices["train"] | voices["dev"]) == 74 and len(voices["test"]) == 10
    assert all(text == text.upper() and "<" not in text for text in texts(made, "train").values())


def test_real_yesno_and_librispeech(shared_data, tmp_path):
    made = prepare("yesno", shared_data / "yesno", tmp_path / "yesno").statistics
    assert [made[split].utterances for split in ("train", "dev", "test")] == [25, 5, 30]
    assert made["test"].words == 240
    made = prepare("librispeech", shared_data / "librispeech", tmp_path / "librispeech").statistics
    assert {name: counts.utterances for name, counts in made.items()} == {"test-other": 20}


@pytest.mark.slow
def test_real_tsv(shared_data, tmp_path):
    made = prepare("tsv", shared_data / "common_voice_en", tmp_path / "out").statistics
    assert made["train"].utterances + made["dev"].utterances == 2110
    assert made["train"].speakers + made["dev"].speakers == 408
