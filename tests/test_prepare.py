"""Each corpus' own layout becomes one lhotse CutSet a split.

Expected values: corpora of known content made here, lhotse's own reading and writing, and the real folders, whose
counts are in their README.
"""

import gzip
import json
import os
from pathlib import Path

import pytest
from layouts import aishell, an4, assert_refused, librispeech, sound, texts, tsv

from asr.cli import prepare as command
from asr.data import corpora, manifest
from asr.data.corpora.aishell import join_han
from asr.data.corpora.corpus import Item
from asr.data.prepare import prepare
from asr.data.split import carve, choose_speakers
from asr.data.statistics import Statistics, histograms
from asr.errors import UserError

# what is made


def test_librispeech_subsets_are_splits(tmp_path):
    source = librispeech(tmp_path / "corpus" / "LibriSpeech").parent
    made = prepare("librispeech", source, tmp_path / "out")
    assert list(made.manifests) == ["dev-clean", "train-mini"]
    assert texts(made, "train-mini") == {"10-7-0000": "WORD NUMBER 0", "10-7-0001": "WORD NUMBER 1"}
    counts = made.statistics["train-mini"]
    assert (counts.utterances, counts.speakers, counts.words, counts.distinct_words) == (2, 1, 6, 4)
    assert (counts.characters, counts.shortest, counts.longest, counts.mean) == (22, 0.5, 1.5, 1.0)
    assert counts.hours == pytest.approx(2 / 3600)


def test_a_line_is_what_lhotse_writes_and_reads(tmp_path):
    from lhotse import CutSet, MonoCut, Recording, SupervisionSegment

    made = prepare("librispeech", librispeech(tmp_path / "c"), tmp_path / "out")
    cuts = list(CutSet.from_file(made.manifests["train-mini"]))
    path = tmp_path / "c/train-mini/10/7/10-7-0001.flac"
    recording = Recording.from_file(path, recording_id="10-7-0001")
    said = SupervisionSegment(
        "10-7-0001", "10-7-0001", 0.0, 1.5, text="WORD NUMBER 1", speaker="10"
    )
    expected = MonoCut("10-7-0001", 0.0, 1.5, 0, supervisions=[said], recording=recording)
    assert cuts[1] == expected
    lines = gzip.decompress(made.manifests["train-mini"].read_bytes()).decode().splitlines()
    assert json.loads(lines[1]) == expected.to_dict()
    utterance = list(manifest.read(made.manifests["train-mini"]))[1]
    assert manifest.Utterance.of_cut(cuts[1]) == manifest.Utterance.of_cut(utterance) == utterance
    assert Path(utterance.path).is_absolute()


def test_aishell_joins_han_and_names_what_was_never_transcribed(tmp_path):
    made = prepare("aishell", aishell(tmp_path), tmp_path / "out")
    assert texts(made, "train") == {"S0002W1": "而对楼市", "S0002W2": "我用 IPHONE 六"}
    assert texts(made, "test") == {"S0003W1": "甚至"}
    assert made.notes[0] == "train: left out, because they have no transcript (1): S0002W9"
    assert {u.speaker for u in manifest.read(made.manifests["train"])} == {"S0002"}


@pytest.mark.parametrize(
    "text,joined", [("一 二", "一二"), ("A B 一", "A B 一"), (" 一 A 二 三 ", "一 A 二三")]
)
def test_only_spaces_between_han_go(text, joined):
    assert join_han(text) == joined


def test_an4_dev_is_carved_by_whole_speakers(tmp_path):
    made = prepare("an4", an4(tmp_path / "an4"), tmp_path / "out", dev=20)
    train, dev, test = (
        list(manifest.read(made.manifests[split])) for split in ("train", "dev", "test")
    )
    assert (len(train), len(dev), len(test)) == (100, 20, 120)
    assert {u.speaker for u in train}.isdisjoint(u.speaker for u in dev)
    assert {u.text for u in train + dev + test} == {"RUBOUT G M"}
    listed = {
        split: (tmp_path / "out" / f"{split}.speakers").read_text().split()
        for split in ("train", "dev")
    }
    assert listed["dev"] == sorted({u.speaker for u in dev}) and len(listed["train"]) == 10
    assert made.notes == ["dev: 20 utterances by 2 of 12 training speakers, who leave train"]


def test_yesno_words_are_the_names_and_every_other_file_trains(tmp_path):
    names = sorted("_".join(f"{n:08b}") for n in range(60))
    for name in names:
        sound(tmp_path / "waves_yesno" / f"{name}.wav", 0.1, rate=8000)
    made = prepare("yesno", tmp_path, tmp_path / "out")
    assert list(texts(made, "test")) == names[1::2]
    assert list(texts(made, "dev")) == names[::2][5::6]
    assert set(texts(made, "train")) | set(texts(made, "dev")) == set(names[::2])
    assert texts(made, "train")["0_0_0_0_0_0_1_0"] == "NO NO NO NO NO NO YES NO"
    assert made.notes[0].endswith("which has only one speaker: dev is not speaker-disjoint")


@pytest.mark.parametrize(
    "lines",
    [
        ["u1\tclips/a.wav\tHello there\tann", "u2\tclips/b.wav\t你好\tbob"],
        [
            "id\tpath\ttext\tspeaker",
            "u1\tclips/a.wav\tHello there\tann",
            "u2\tclips/b.wav\t你好\tbob",
        ],
        [
            "\ufeffText\tsize\tspeaker\tID\tpath",
            "Hello  there\t1\tann\tu1\tclips/a.wav\r",
            "",
            "你好\t1\tbob\tu2\tclips/b.wav",
        ],
    ],
    ids=["bare", "header", "any order, BOM, CRLF, blank line"],
)
def test_tsv(tmp_path, lines):
    made = prepare("tsv", tsv(tmp_path, "mine.tsv", lines), tmp_path / "out")
    found = list(manifest.read(made.manifests["mine"]))
    assert [(u.id, u.text, u.speaker) for u in found] == [
        ("u1", "Hello there", "ann"),
        ("u2", "你好", "bob"),
    ]
    assert found[0].path == str(tmp_path / "clips/a.wav") and found[0].duration == 0.5


def test_tsv_folder_without_speakers_carves_utterances_and_says_so(tmp_path):
    tsv(tmp_path, "train.tsv", ["u1\tclips/a.wav\tA", "u2\tclips/b.wav\tB"])
    tsv(tmp_path, "test.tsv", ["u3\tclips/c.wav\tC"])
    made = prepare("tsv", tmp_path, tmp_path / "out", dev=0.5)
    assert (list(texts(made, "train")), list(texts(made, "dev")), list(texts(made, "test"))) == (
        ["u1"],
        ["u2"],
        ["u3"],
    )
    assert "recordings of unknown speakers: dev is not speaker-disjoint" in made.notes[0]
    assert next(manifest.read(made.manifests["test"])).speaker is None


def test_a_folder_of_sounds_needs_no_texts(tmp_path):
    for name in ("b.wav", "deep/er/a.flac", "deep/._b.wav"):
        sound(tmp_path / "noise" / name, 0.25)
    (tmp_path / "noise/README").touch()
    made = prepare("folder", tmp_path / "noise", tmp_path / "out")
    found = list(manifest.read(made.manifests["recordings"]))
    assert [(u.id, u.text, u.duration) for u in found] == [
        ("b.wav", "", 0.25),
        ("deep/er/a.flac", "", 0.25),
    ]
    assert [u.path for u in found] == [str(tmp_path / "noise" / u.id) for u in found]


def test_carving_is_near_the_wish_and_the_same_for_any_order():
    items = [
        Item(f"{s}-{n}", Path("x"), "T", f"s{s}", "") for s in range(30) for n in range(1 + s % 7)
    ]
    train, dev, _ = carve(items, 20)
    assert abs(len(dev) - 20) <= 3 and len(train) + len(dev) == len(items)
    assert {i.speaker for i in dev} == choose_speakers(items[::-1], 20)
    with pytest.raises(
        UserError, match="even the speaker with the fewest utterances has 50; request about 50"
    ):
        carve(
            [Item(f"{s}-{n}", Path("x"), "T", f"s{s}", "") for s in (1, 2) for n in range(50)], 10
        )
    few = [Item(f"{s}-{n}", Path("x"), "T", f"s{s}", "") for s in (1, 2, 3) for n in range(50)]
    train, dev, how = carve(few, 0.1)  # of a share it is every tenth
    assert (len(train), len(dev), {i.speaker for i in dev}) == (135, 15, {"s1", "s2", "s3"})
    assert (
        "15 evenly spaced utterances of train, which has 3 speakers of 50 utterances or more: dev is not"
        in how
    )
    assert {i.speaker for i in carve(few, 0.3)[1]} < {"s1", "s2", "s3"} and len(
        carve(few, 0.001)[1]
    ) == 1
    unequal = [
        Item(f"{s}-{n}", Path("x"), "T", s, "")
        for s, size in (("a", 3), ("b", 100))
        for n in range(size)
    ]
    assert (
        len(choose_speakers(unequal, 102)) == 1
    )  # both would be nearer, but nobody would be left to train on
    with pytest.raises(
        UserError,
        match=r"dev: got 500, expected 1 to 114 of 115 training utterances, or a fraction",
    ):
        carve(items, 500)


def test_again_does_nothing_and_a_change_is_seen(tmp_path):
    source = librispeech(tmp_path / "c")
    assert not prepare("librispeech", source, tmp_path / "out").current
    before = (tmp_path / "out/train-mini.jsonl.gz").read_bytes()
    assert prepare("librispeech", source, tmp_path / "out").current
    assert prepare(
        "librispeech", source, source / "out"
    ).manifests  # an output inside the corpus changes nothing
    assert prepare("librispeech", source, tmp_path / "out").current
    (tmp_path / "out/train-mini.jsonl.gz").unlink()
    assert not prepare("librispeech", source, tmp_path / "out").current
    assert (tmp_path / "out/train-mini.jsonl.gz").read_bytes() == before
    sound(source / "train-mini/10/7/10-7-0000.flac", 0.7)
    made = prepare("librispeech", source, tmp_path / "out")
    assert not made.current and made.statistics["train-mini"].shortest == 0.7
    file = source / "train-mini/10/7/10-7-0000.flac"
    os.utime(
        file, ns=(0, file.stat().st_mtime_ns + 1_000_000)
    )  # another recording may be as long in bytes
    assert not prepare("librispeech", source, tmp_path / "out").current


def test_a_dev_set_no_longer_wanted_does_not_stay_beside_train(tmp_path):
    file = tsv(tmp_path, "train.tsv", ["u1\tclips/a.wav\tA\tx", "u2\tclips/b.wav\tB\ty"])
    prepare("tsv", file, tmp_path / "out", dev=1)
    assert {path.name for path in (tmp_path / "out").glob("[!.]*")} == {
        "train.jsonl.gz", "dev.jsonl.gz", "train.speakers", "dev.speakers"
    }  # fmt: skip
    prepare("tsv", file, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["train.jsonl.gz"]


def test_a_dev_set_of_another_size_is_carved_anew(tmp_path):
    names = "abcd"
    file = tsv(tmp_path, "train.tsv", [f"{n}\tclips/{n}.wav\tA\t{n}" for n in names], sounds=names)
    sizes = [len(texts(prepare("tsv", file, tmp_path / "out", dev=n), "dev")) for n in (1, 2, 1)]
    assert sizes == [1, 2, 1]


def test_several_supervisions_of_a_cut_are_one_text():
    """lhotse has them where a recording's parts were joined."""
    parts = [{"text": "GO"}, {"speaker": "s1"}, {"text": "ON", "speaker": "s2"}]
    source = {"type": "file", "channels": [0], "source": "a.wav"}
    recording = {
        "id": "a",
        "sources": [source],
        "sampling_rate": 8000,
        "num_samples": 8000,
        "duration": 1.0,
    }
    line = {"id": "a", "start": 0.0, "duration": 1.0, "recording": recording, "supervisions": parts}
    found = manifest.Utterance.of_line(line)
    assert (found.text, found.speaker) == ("GO ON", "s1")


def test_only_the_splits_asked_for(tmp_path, capsys):
    source, out = (
        librispeech(tmp_path / "c", ("train-mini", "dev-clean", "test-other")),
        tmp_path / "out",
    )
    prepare("librispeech", source, out, splits=["train-mini"])
    made = prepare("librispeech", source, out, splits=["test-other", "dev-clean", "dev-clean"])
    assert list(made.manifests) == list(made.statistics) == ["dev-clean", "test-other"]
    assert prepare("librispeech", source, out, splits=["dev-clean", "test-other"]).current
    assert {path.name for path in out.glob("[!.]*")} == {
        "train-mini.jsonl.gz", "dev-clean.jsonl.gz", "test-other.jsonl.gz"
    }  # fmt: skip
    with pytest.raises(SystemExit):
        command.main(["librispeech", str(source), str(out), "--splits", "dev-clean", "dev-other"])
    there = "it has dev-clean, test-other, train-mini"
    said = f"--splits: got 'dev-other', no such split of this corpus; did you mean 'test-other'?; {there}\n"
    assert capsys.readouterr().err.endswith(said)


def test_a_dev_set_stays_beside_the_train_it_is_carved_from(tmp_path):
    prepare("an4", an4(tmp_path / "an4"), tmp_path / "out")
    before = (tmp_path / "out/dev.jsonl.gz").read_bytes()
    assert list(prepare("an4", tmp_path / "an4", tmp_path / "out", splits=["test"]).manifests) == [
        "test"
    ]
    assert (tmp_path / "out/dev.jsonl.gz").read_bytes() == before
    assert list(prepare("an4", tmp_path / "an4", tmp_path / "out", splits=["train"]).manifests) == [
        "train",
        "dev",
    ]


def test_a_split_of_another_size_than_the_complete_corpus_has_is_noted(tmp_path, monkeypatch):
    made = prepare("librispeech", librispeech(tmp_path / "c"), tmp_path / "a")
    assert made.notes == ["dev-clean: 2 utterances, the complete corpus has 2,703"]
    monkeypatch.setitem(corpora.librispeech.COMPLETE, "dev-clean", 2)
    assert prepare("librispeech", tmp_path / "c", tmp_path / "b").notes == []
    made = prepare("aishell", aishell(tmp_path / "aishell"), tmp_path / "d", dev=1)
    assert (
        "train: 2 utterances, the complete corpus has 120,098" in made.notes
    )  # before a dev set is carved


def test_a_histogram_counts_each_duration_once():
    durations = [0.5, 0.999, 1.0, 1.5, 29.9, 30.0, 400.0]
    utterances = [
        manifest.Utterance("u", "a.wav", 8000, 1, 1, 0.0, seconds, "GO") for seconds in durations
    ]
    counted = Statistics.of(utterances)
    assert counted.histogram == (2, 2, 0, 0, 0, 0, 0, 1, 2)
    assert histograms(
        {"train": counted, "one": Statistics.of(utterances[:1] + utterances[5:6] * 3999)}
    ) == (
        "% by seconds    <1    <2  <5  <10  <15  <20  <25   <30    30+\n"
        "train         28.6  28.6   -    -    -    -    -  14.3   28.6\n"
        "one           <0.1     -   -    -    -    -    -     -  100.0"
    )


def test_the_command_tells_what_it_made_on_stderr(tmp_path, capsys):
    source, out = librispeech(tmp_path / "c"), tmp_path / "out"
    command.main(["librispeech", str(source), str(out)])
    told = capsys.readouterr()
    assert told.out == "" and "train-mini           2   0.00         1      6         4" in told.err
    command.main(["librispeech", str(source), str(out)])
    assert capsys.readouterr().err == f"{out} is up to date\n"
    with pytest.raises(SystemExit) as end:
        command.main(["librispech", str(source), str(out)])
    assert end.value.code == 2
    known = "librispeech, aishell, an4, yesno, common_voice, kaldi, tsv, folder"
    assert (
        f"librispech: no such corpus; did you mean 'librispeech'?; known are {known}"
        in capsys.readouterr().err
    )


def test_test_and_dev_are_carved_from_a_table_of_any_name(tmp_path):
    """Six speakers of four utterances: test has one of them, dev another."""
    lines = [f"u{n:02d}\tclips/a.wav\tword {n}\tspeaker{n % 6}" for n in range(24)]
    made = prepare("tsv", tsv(tmp_path, "mine.tsv", lines), tmp_path / "out", dev=4, test=0.2)
    splits = {name: list(manifest.read(made.manifests[name])) for name in ("train", "dev", "test")}
    assert [len(split) for split in splits.values()] == [16, 4, 4]
    speakers = {name: {u.speaker for u in split} for name, split in splits.items()}
    assert (
        len(speakers["train"] | speakers["dev"] | speakers["test"])
        == sum(map(len, speakers.values()))
        == 6
    )
    for name, names in speakers.items():
        assert (tmp_path / f"out/{name}.speakers").read_text().split() == sorted(names)
    assert made.notes == [
        "test: 4 utterances by 1 of 6 training speakers, who leave train",
        "dev: 4 utterances by 1 of 5 training speakers, who leave train",
    ]
    prepare("tsv", tmp_path / "mine.tsv", tmp_path / "out")  # nothing carved any more
    assert [path.name for path in (tmp_path / "out").glob("[!.]*")] == ["mine.jsonl.gz"]


def test_texts_are_rewritten_by_a_convention(tmp_path):
    lines = [
        "u1\tclips/a.wav\tIt’s me, José!",
        "u2\tclips/b.wav\tIT'S YOU",
        "u3\tclips/c.wav\t我用ｉＰｈｏｎｅ。",
    ]
    table = tsv(tmp_path, "train.tsv", lines)
    made = prepare("tsv", table, tmp_path / "out", normalize="english")
    assert texts(made, "train") == {"u1": "IT'S ME JOSE", "u2": "IT'S YOU", "u3": "我用IPHONE"}
    assert made.notes == [
        "normalized (english): 2 of 3 texts changed, such as 'It’s me, José!' → \"IT'S ME JOSE\""
    ]
    assert prepare("tsv", table, tmp_path / "out", normalize="english").current
    again = prepare("tsv", table, tmp_path / "out", normalize="plain")
    assert texts(again, "train")["u1"] == "IT'S ME JOSÉ"
    silent = tsv(tmp_path, "silent.tsv", ["u1\tclips/a.wav\t..."])
    message = f"empty texts (1): u1 ({silent}:1); transcribe or remove them"
    assert_refused(message, "tsv", silent, tmp_path / "new", normalize="plain")


# the real corpora


def test_real_an4(shared_data, tmp_path):
    made = prepare("an4", shared_data / "an4", tmp_path / "out")
    splits = {split: list(manifest.read(path)) for split, path in made.manifests.items()}
    assert len(splits["train"]) + len(splits["dev"]) == 948 and len(splits["test"]) == 130
    assert 90 <= len(splits["dev"]) <= 110
    speakers = {split: {u.speaker for u in utterances} for split, utterances in splits.items()}
    assert len(speakers["train"] | speakers["dev"]) == 74 and len(speakers["test"]) == 10
    assert not speakers["train"] & speakers["dev"]
    assert all(
        u.rate == 16000 and u.text == u.text.upper() and "<" not in u.text for u in splits["train"]
    )


def test_real_yesno_and_librispeech(shared_data, tmp_path):
    made = prepare("yesno", shared_data / "yesno", tmp_path / "yesno")
    assert [made.statistics[split].utterances for split in ("train", "dev", "test")] == [25, 5, 30]
    assert made.statistics["test"].words == 240
    made = prepare("librispeech", shared_data / "librispeech", tmp_path / "librispeech")
    assert list(made.manifests) == ["test-other"] and made.statistics["test-other"].utterances == 20


def test_real_tsv(shared_data, tmp_path):
    made = prepare("tsv", shared_data / "common_voice_en", tmp_path / "out")
    assert made.statistics["train"].utterances + made.statistics["dev"].utterances == 2110
    assert made.statistics["train"].speakers + made.statistics["dev"].speakers == 408
