"""Shar: lhotse opens what asr-prepare --shar writes, and it holds the recordings' own samples; training from it is
training from files, to the bit where one window holds all, and keeps every law of training where several do.

Expected values: lhotse's own writer and reader, the sound files, training from files, and laws.
"""

import gzip
import io
import json
import tarfile
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from runs import Stop, assert_same, dev_losses, history, make_root, stopping, train, weights

from asr import imports
from asr.audio import archive
from asr.audio import load as audio
from asr.cli import prepare as command
from asr.data import bucketing, manifest, shar
from asr.data.bucketing import Shards, plan, read_ahead
from asr.data.columns import Ragged, Strings
from asr.data.prepare import prepare
from asr.data.validate import check_audio
from asr.errors import UserError
from asr.preflight.check import check

KINDS = {  # suffix and how it is written → suffix in the shard
    "a.wav": ({"subtype": "PCM_16"}, ".flac"),
    "b.wav": ({"subtype": "PCM_24"}, ".flac"),
    "c.wav": ({"subtype": "PCM_U8"}, ".flac"),
    "d.wav": ({"subtype": "ULAW"}, ".flac"),
    "e.wav": ({"subtype": "FLOAT"}, ".wav"),
    "f.sph": ({"format": "NIST", "subtype": "PCM_16"}, ".flac"),
    "g.flac": ({"subtype": "PCM_16"}, ".flac"),
    "h.ogg": ({"format": "OGG", "subtype": "VORBIS"}, ".ogg"),
    "i.opus": ({"format": "OGG", "subtype": "OPUS"}, ".opus"),
    "j.mp3": ({}, ".mp3"),
}


@pytest.fixture
def sounds(tmp_path):
    """A folder with a recording of each kind, of one channel and of two."""
    rng = np.random.default_rng(0)
    for n, (name, (how, _)) in enumerate(KINDS.items()):
        for channels in (1, 2):
            path = tmp_path / "sounds" / str(channels) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(path, rng.uniform(-0.9, 0.9, (8000 + 100 * n, channels)), 16000, **how)
    return tmp_path / "sounds"


def read(path):
    return {u.id: u for u in manifest.read(path)}


# what is written


def test_the_samples_are_the_recordings(sounds, tmp_path):
    made = prepare("folder", sounds, tmp_path / "out", shar=True).manifests
    files, stored = read(made["recordings"]), read(made["recordings.shar"])
    assert list(files) == list(stored) and len(files) == 2 * len(KINDS)
    for name, utterance in stored.items():
        place = archive.place(utterance.path)
        assert replace(utterance, path=files[name].path) == files[name]
        for how in ({}, {"start": 0.1, "duration": 0.2}, {"channel": 0}):
            got, expected = (audio.load(u.path, 16000, **how) for u in (utterance, files[name]))
            np.testing.assert_array_equal(got, expected)
        assert len(got) == utterance.samples and place.archive.startswith(str(tmp_path / "out"))
    with tarfile.open(tmp_path / "out/recordings.shar/recording.000000.tar") as tar:
        names = [name for name in tar.getnames() if not name.endswith(".json")]
    assert sorted(names) == sorted(f"{c}/{name}{KINDS[name][1]}" for c in (1, 2) for name in KINDS)


def test_lhotse_reads_it_and_writes_the_same(sounds, tmp_path, monkeypatch):
    try:
        imports.torchaudio()  # lhotse loads it where it is installed
    except UserError as error:
        pytest.skip(str(error))
    from lhotse import CutSet
    from lhotse.shar import SharWriter

    for name in (
        "b.wav",
        "e.wav",
        "f.sph",
        "h.ogg",
        "i.opus",
        "j.mp3",
    ):  # lhotse reads no sphere, writes 16 bits
        (sounds / "1" / name).unlink()
    monkeypatch.setattr(shar, "SHARD", 3)
    made = prepare("folder", sounds / "1", tmp_path / "out", shar=True).manifests
    cuts = {cut.id: cut for cut in CutSet.from_file(made["recordings"])}
    stored = list(CutSet.from_shar(in_dir=tmp_path / "out/recordings.shar"))
    assert sorted(cut.id for cut in stored) == sorted(cuts)
    for cut in stored:
        np.testing.assert_array_equal(cut.load_audio(), cuts[cut.id].load_audio())
    (tmp_path / "theirs").mkdir()
    with SharWriter(tmp_path / "theirs", fields={"recording": "flac"}, shard_size=3) as writer:
        for cut in stored:
            writer.write(cuts[cut.id])
    for n in (0, 1):
        assert content(tmp_path / "out/recordings.shar", n) == content(tmp_path / "theirs", n)
    assert [cut.id for cut in CutSet.from_file(made["recordings.shar"])] == list(cuts)


def content(folder, number):
    """Cuts, and names, manifests and samples of a shard."""
    lines = gzip.decompress((folder / f"cuts.{number:06d}.jsonl.gz").read_bytes()).splitlines()
    found = [json.loads(line) for line in lines]
    with tarfile.open(folder / f"recording.{number:06d}.tar") as tar:
        for member in tar:
            data = tar.extractfile(member).read()
            is_text = member.name.endswith(".json")
            found += [
                member.name,
                json.loads(data) if is_text else soundfile.read(io.BytesIO(data))[0].tolist(),
            ]
    return found


@pytest.fixture
def corpus(tmp_path):
    """30 recordings in 8 shards of 4, prepared but not yet in Shar."""
    for n in range(30):
        path = tmp_path / f"sounds/{n:02d}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, np.full(800 + n, n / 100), 8000)
    prepare("folder", tmp_path / "sounds", tmp_path / "out")
    return tmp_path


def written(folder):
    return {
        p.name: (p.read_bytes(), p.stat().st_mtime_ns)
        for p in sorted((folder / "out/recordings.shar").iterdir())
    }


def test_finished_shards_are_kept(corpus, monkeypatch):
    monkeypatch.setattr(shar, "SHARD", 4)
    last = list(read_shards(corpus))[-1]
    bad = corpus / "sounds" / last
    whole, state = bad.read_bytes(), bad.stat()
    recording = shar.recording
    monkeypatch.setattr(
        shar, "recording", lambda path: refuse() if path == str(bad) else recording(path)
    )

    def refuse():
        raise UserError("gone")

    with pytest.raises(UserError, match="gone"):
        prepare("folder", corpus / "sounds", corpus / "out", shar=True)
    monkeypatch.setattr(shar, "recording", recording)
    before = written(corpus)
    assert not (corpus / "out/recordings.shar.jsonl.gz").exists() and ".partial" not in str(
        list(before)
    )
    finished = [name for name in before if name.startswith("cuts") and "000007" not in name]
    torn = corpus / "out/recordings.shar/recording.000002.tar"
    torn.write_bytes(torn.read_bytes()[:3000])
    assert not prepare("folder", corpus / "sounds", corpus / "out", shar=True).current
    after = written(corpus)
    kept = {name for name in before if after[name] == before[name]}
    assert {
        name for name in finished if "000002" not in name
    } <= kept and "cuts.000002.jsonl.gz" not in kept
    assert (
        len(after) == 16
        and bad.read_bytes() == whole
        and bad.stat().st_mtime_ns == state.st_mtime_ns
    )
    assert prepare("folder", corpus / "sounds", corpus / "out", shar=True).current
    for name, utterance in read(corpus / "out/recordings.shar.jsonl.gz").items():
        assert audio.load(utterance.path, 8000)[0] == pytest.approx(int(name[:2]) / 100, abs=1e-4)


def read_shards(corpus):
    """Names in the order of the shards."""
    utterances = list(manifest.read(corpus / "out/recordings.jsonl.gz"))
    shar.write(utterances, corpus / "order", "x", "")
    for path in sorted((corpus / "order/x.shar").glob("cuts.*")):
        yield from read(path)


def test_a_recording_without_a_suffix_gets_one(tmp_path):
    soundfile.write(tmp_path / "x.ogg", np.full(800, 0.5), 8000)
    (tmp_path / "x.ogg").rename(tmp_path / "x")
    one = manifest.Utterance("s.1", str(tmp_path / "x"), 8000, 800, 1, 0.0, 0.1, "A")
    shar.write([one], tmp_path, "train", "")
    stored = read(tmp_path / "train.shar.jsonl.gz")["s.1"].path
    np.testing.assert_array_equal(audio.load(stored, 8000), audio.load(one.path, 8000))


def test_another_recording_is_another_shar(corpus, monkeypatch):
    monkeypatch.setattr(shar, "SHARD", 4)
    prepare("folder", corpus / "sounds", corpus / "out", shar=True)
    soundfile.write(corpus / "sounds/07.wav", np.full(900, 0.5), 8000)
    made = prepare("folder", corpus / "sounds", corpus / "out")
    said = "recordings.shar: its manifest was removed, because the recordings changed; --shar copies them again"
    assert made.notes == [said] and not (corpus / "out/recordings.shar.jsonl.gz").exists()
    prepare("folder", corpus / "sounds", corpus / "out", shar=True)
    assert (
        audio.load(read(corpus / "out/recordings.shar.jsonl.gz")["07.wav"].path, 8000).tolist()
        == [0.5] * 900
    )


def test_the_shar_of_a_dev_set_no_longer_wanted_does_not_stay(corpus):
    lines = [f"u{n}\t../sounds/{n:02d}.wav\tA\ts{n % 9}\n" for n in range(30)]
    (corpus / "tsv").mkdir()
    (corpus / "tsv/train.tsv").write_text("".join(lines))
    prepare("tsv", corpus / "tsv", corpus / "made", dev=5, shar=True)
    assert {path.name for path in (corpus / "made").glob("*.jsonl.gz")} == {
        f"{split}{kind}.jsonl.gz" for split in ("train", "dev") for kind in ("", ".shar")
    }
    prepare("tsv", corpus / "tsv", corpus / "made")
    assert [path.name for path in (corpus / "made").glob("*.jsonl.gz")] == ["train.jsonl.gz"]


def test_the_folder_can_be_moved_and_the_command_says_what_it_made(corpus, capsys):
    arguments = ["folder", str(corpus / "sounds"), str(corpus / "out"), "--shar"]
    command.main(arguments)
    assert capsys.readouterr().err.endswith(
        "recordings.jsonl.gz, " + f"{corpus}/out/recordings.shar.jsonl.gz\n"
    )
    command.main(arguments)
    assert capsys.readouterr().err == f"{corpus}/out is up to date\n"
    (corpus / "out").rename(corpus / "elsewhere")
    check_audio(list(manifest.read(corpus / "elsewhere/recordings.shar.jsonl.gz")))


def test_an_archive_that_is_not_whole_is_named(corpus):
    prepare("folder", corpus / "sounds", corpus / "out", shar=True)
    path = corpus / "out/recordings.shar/recording.000000.tar"
    utterances = list(manifest.read(corpus / "out/recordings.shar.jsonl.gz"))
    last = max(utterances, key=lambda u: archive.place(u.path).offset)
    end = sum(archive.place(last.path)[1:])
    path.write_bytes(path.read_bytes()[: end - 1])
    says = rf"{path}: truncated: has {end - 1} of {end} bytes; asr-prepare --shar writes it again"
    with pytest.raises(UserError, match=rf"\(1\): {last.id}: {says}"):
        check_audio(utterances)
    with pytest.raises(UserError, match=says):
        audio.load(last.path, 8000)
    path.unlink()
    with pytest.raises(UserError, match=rf"{path}: can't be read \(No such file or directory\)"):
        audio.load(last.path, 8000)


def test_damage_within_an_archive_is_named(corpus):
    prepare("folder", corpus / "sounds", corpus / "out", shar=True)
    one = next(manifest.read(corpus / "out/recordings.shar.jsonl.gz"))
    place = archive.place(one.path)
    with open(place.archive, "rb+") as file:
        file.seek(place.offset)
        file.write(b"\0" * place.size)
    with pytest.raises(
        UserError,
        match=rf"recording\.000000\.tar:{place.offset}\+{place.size}: can't be read as sound",
    ):
        audio.load(one.path, 8000)


# windows


def lie(numbers):
    """Shards of recordings, by the number of their archive, -1 for files of their own."""
    rows = [
        (f"/x/{n}.tar:0+1" if n >= 0 else f"/x/{place}.wav").encode()
        for place, n in enumerate(numbers)
    ]
    ends = np.cumsum([0, *map(len, rows)])
    return Shards.of(Strings(Ragged(np.frombuffer(b"".join(rows), np.uint8), ends)))


@pytest.mark.parametrize("count, size", [(1, 30), (8, 5), (9, 4), (40, 25)])
def test_each_window_holds_a_few_whole_shards(count, size):
    numbers = np.random.default_rng(0).permutation(np.repeat(np.arange(count), size))
    made = lie(numbers).windows(np.random.default_rng(1))
    assert sorted(np.concatenate(made).tolist()) == list(range(count * size))
    sets = [set(numbers[window].tolist()) for window in made]
    assert len(made) == -(-count // bucketing.SHARD_WINDOW) and sum(map(len, sets)) == count
    assert max(map(len, sets)) - min(map(len, sets)) <= 1
    assert all((np.diff(window) > 0).all() for window in made)


def test_a_plan_goes_from_window_to_window():
    rng = np.random.default_rng(0)
    numbers, lengths = rng.permutation(np.arange(4000) // 100), rng.uniform(2, 15, 4000)
    steps = plan(lengths, 60, 1, 0, 4, shards=lie(numbers))
    batches = [batch for step in steps for batch in step]
    assert sorted(n for batch in batches for n in batch) == list(range(4000))
    needed = [set(numbers[batch].tolist()) for batch in batches]
    open_, held, closed = set(), [], set()
    for place, now in enumerate(needed):
        open_ |= now
        held.append(len(open_))
        closed |= open_ - set().union(*needed[place + 1 :])
        open_ = (
            set() if open_ <= closed else open_
        )  # a window's shards are all done with before the next's begin
    assert max(held) == 8 and open_ == set() and len(closed) == 40
    news = lie(numbers).first_needed(batches)
    assert sorted(path for paths in news for path in paths) == sorted(
        f"/x/{n}.tar" for n in range(40)
    )
    assert steps == plan(lengths, 60, 1, 0, 4, shards=lie(numbers))
    assert steps != plan(lengths, 60, 1, 1, 4, shards=lie(numbers))
    padded = sum(len(batch) * lengths[batch].max() for batch in batches)
    whole = sum(len(batch) * lengths[batch].max() for [batch] in plan(lengths, 60, 1, 0))
    assert padded < 1.1 * whole


def test_files_of_their_own_beside_shards_make_no_small_windows():
    numbers = np.random.default_rng(0).permutation([*np.arange(12000) // 1000, *[-1] * 5000])
    lengths = np.random.default_rng(1).uniform(2, 15, 17000)
    mixed = lie(numbers)
    windows = mixed.windows(np.random.default_rng(1))
    assert sorted(np.concatenate(windows).tolist()) == list(range(17000))
    assert sorted(map(len, windows)) == [5000, 6000, 6000]  # of 17 shards
    batches = [batch for step in plan(lengths, 60, 1, 0, 4, shards=mixed) for batch in step]
    assert len(batches) < 1.02 * len(plan(lengths, 60, 1, 0))
    news = [path for paths in mixed.first_needed(batches) for path in paths]
    assert sorted(news) == sorted(f"/x/{n}.tar" for n in range(12))


def test_one_window_is_the_plan_of_files_and_so_is_one_in_order_of_length():
    lengths = np.random.default_rng(0).uniform(2, 15, 900)
    numbers = np.arange(900) % 8
    assert plan(lengths, 60, 1, 0, 4, shards=lie(numbers)) == plan(lengths, 60, 1, 0, 4)
    numbers = np.arange(900) % 20
    assert plan(lengths, 60, 1, 0, 4, True, shards=lie(numbers)) == plan(lengths, 60, 1, 0, 4, True)
    assert (
        Shards.of(Strings(Ragged(np.frombuffer(b"/a.wav/b.wav", np.uint8), np.array([0, 6, 12]))))
        is None
    )


def test_archives_are_read_through_in_order_and_a_window_ahead(tmp_path, monkeypatch):
    news = [[str(tmp_path / f"{n}.tar") for n in range(m, m + 3)] for m in range(0, 30, 3)]
    for n in range(30):
        (tmp_path / f"{n}.tar").write_bytes(b"x" * (n * bucketing.SHARD_BLOCK // 8))
    opened, ended = [], []

    class File(io.FileIO):
        def __init__(self, path, *_, **__):
            super().__init__(path)
            opened.append(path)

        def close(self):
            if not self.closed:
                ended.append(self.tell())
            super().close()

    monkeypatch.setattr(bucketing, "open", File, raising=False)
    order = [path for paths in news for path in paths]
    stream = read_ahead(iter(range(10)), news)
    for n in range(10):
        assert next(stream) == n
        assert len(opened) <= bucketing.SHARD_WINDOW + 3 * n
    assert next(stream, None) is None
    assert opened == order[: len(opened)]
    assert ended[:-1] == [n * bucketing.SHARD_BLOCK // 8 for n in range(len(ended) - 1)]


# training


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The corpus of tones in one shard, and in 20 of two utterances: three windows."""
    made = make_root(tmp_path_factory.mktemp("shar"))
    prepare("tsv", made / "corpus", made / "data", shar=True)
    utterances = list(manifest.read(made / "data/train.jsonl.gz"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shar, "SHARD", 2)
        shar.write(utterances, made / "data", "many", "")
    return made


STILL = [
    "training.epochs=2",
    "training.accumulate=2",
    "model.encoder.dropout=0",
    "model.decoder.dropout=0",
]


def test_one_window_trains_as_files_do(root, tmp_path):
    made = [
        weights(
            train(
                root,
                tmp_path / name,
                "training.epochs=1",
                f"data.train={root}/data/{name}.jsonl.gz",
            )
        )
        for name in ("train", "train.shar")
    ]
    assert_same(made[1], made[0])
    assert history(tmp_path / "train.shar") == history(tmp_path / "train")


@pytest.fixture(scope="module")
def alone(root):
    many = f"data.train={root}/data/many.shar.jsonl.gz"
    return weights(train(root, root / "alone", *STILL, many, "training.processes=1")), many


def test_a_continued_run_and_other_workers_change_nothing(root, alone, tmp_path, monkeypatch):
    stopping(monkeypatch, 4)  # in the second epoch of two
    arguments = [*STILL, alone[1], "training.processes=1", "data.workers=2"]
    with pytest.raises(Stop):
        train(root, tmp_path / "x", *arguments, "training.save_steps=1")
    monkeypatch.undo()
    assert_same(weights(train(root, tmp_path / "x", *arguments)), alone[0])
    assert history(tmp_path / "x") == history(root / "alone")


def test_the_number_of_processes_changes_nothing(root, alone, tmp_path):
    train(root, tmp_path / "x", *STILL, alone[1], "training.processes=2")
    assert dev_losses(tmp_path / "x") == pytest.approx(dev_losses(root / "alone"), rel=1e-5)


def test_the_look_before_training_finds_what_is_lost(root, tmp_path):
    from asr import config, tasks

    many = root / "data/many.shar.jsonl.gz"
    settings = config.load(tasks.Experiment, root / "x.yaml", [f"data.train={many}"])
    assert not check(settings).refused
    torn = root / "data/many.shar/recording.000003.tar"
    torn.rename(tmp_path / "torn")
    found = [(p.what, p.count) for p in check(settings).problems if p.stops]
    (tmp_path / "torn").rename(torn)
    assert found == [("missing or unreadable sound files", 2)]
