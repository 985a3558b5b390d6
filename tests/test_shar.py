"""Shar: lhotse opens what asr-prepare --shar writes, and it holds the recordings' own samples; training plans it as it
does files where one window holds all, and keeps every law of training where several do.

Expected values: lhotse's own writer and reader, the sound files, plans of files, and laws.
"""

import gzip
import io
import json
import os
import shutil
import signal
import tarfile
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet
from lhotse.shar import SharWriter
from refusals import refused
from runs import Stop, assert_same, dev_losses, history, status_of, stopping, train, weights
from small import each, rows, slow

from asr import config, tasks
from asr.audio import archive
from asr.audio import load as audio
from asr.cli import prepare as command
from asr.data import bucketing, manifest, shar
from asr.data.bucketing import Shards, plan, read_ahead
from asr.data.columns import Ragged, Strings
from asr.data.prepare import prepare
from asr.data.validate import check_audio
from asr.errors import UserError
from asr.parts import Part
from asr.preflight.check import check

# file | its format | its subtype | suffix in the shard
KINDS = rows("""
    a.wav | WAV | PCM_16 | .flac
    b.wav | WAV | PCM_24 | .flac
    c.wav | WAV | PCM_U8 | .flac
    d.wav | WAV | ULAW | .flac
    e.wav | WAV | FLOAT | .wav
    f.sph | NIST | PCM_16 | .flac
    g.flac | FLAC | PCM_16 | .flac
    h.ogg | OGG | VORBIS | .ogg
    i.opus | OGG | OPUS | .opus
    j.mp3 | MP3 | MPEG_LAYER_III | .mp3
""")
LHOTSES = "acdg"  # it reads no sphere, and writes 16 bits


SHARDS = Path("out/recordings.shar")


@pytest.fixture
def sounds(tmp_path, monkeypatch):
    """Folders sounds/1, sounds/2 with a recording of each kind, of one channel and of two."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for channels in (1, 2):
        os.makedirs(f"sounds/{channels}")
        for name, kind, subtype, _ in KINDS:
            wave, path = rng.uniform(-0.9, 0.9, (8000, channels)), f"sounds/{channels}/{name}"
            soundfile.write(path, wave, 16000, subtype, format=kind)


def read(path):
    return {u.id: u for u in manifest.read(path)}


def test_the_samples_are_the_recordings(sounds):
    made = prepare("folder", "sounds", "out", shar=True).manifests
    files, stored = read(made["recordings"]), read(made["recordings.shar"])
    assert list(files) == list(stored) and len(files) == 2 * len(KINDS)
    for name, utterance in stored.items():
        assert replace(utterance, path=files[name].path) == files[name]
        for how in ({"start": 0.1, "duration": 0.2}, {"channel": 0}, {}):
            got, expected = (audio.load(u.path, 16000, **how) for u in (utterance, files[name]))
            np.testing.assert_array_equal(got, expected)
        assert Path(archive.place(utterance.path).archive).parent.samefile(SHARDS)
    with tarfile.open(SHARDS / "recording.000000.tar") as tar:
        names = {f"{c}/{name}{suffix}" for c in (1, 2) for name, _, _, suffix in KINDS}
        assert names == {name for name in tar.getnames() if not name.endswith(".json")}


def test_lossy_recordings_become_flac_of_the_same_samples_if_asked_to(sounds):
    """Rounded to 16 bits; all others as without."""
    plain = prepare("folder", "sounds", "out", shar=True).manifests
    before = contents(SHARDS)
    with pytest.raises(UserError, match="is there already, made without `flac`; use it so, or"):
        prepare("folder", "sounds", "out", shar=True, flac=True)
    assert contents(SHARDS) == before
    SHARDS.with_name("recordings.shar.jsonl.gz").unlink()
    made = prepare("folder", "sounds", "out", shar=True, flac=True)
    files, stored = read(plain["recordings"]), read(made.manifests["recordings.shar"])
    assert not made.current and list(files) == list(stored)
    for name, utterance in stored.items():
        got, expected = (audio.load(u.path, 16000, channel=0) for u in (utterance, files[name]))
        is_lossy = name[2:] in ("h.ogg", "i.opus", "j.mp3")
        atol = 1.001 * 2**-16 if is_lossy else 0  # and one has no 16 bits
        np.testing.assert_allclose(got, np.minimum(expected, 1 - 2**-15), rtol=0, atol=atol)
    with tarfile.open(SHARDS / "recording.000000.tar") as tar:
        suffixes = {Path(name).suffix for name in tar.getnames()}
    assert suffixes == {".flac", ".wav", ".json"}
    assert prepare("folder", "sounds", "out", shar=True, flac=True).current
    shutil.copytree(SHARDS, "whole")
    SHARDS.with_name("recordings.shar.jsonl.gz").unlink()
    for share in ({"part": Part(1, 1)}, {"join": 1}):
        prepare("folder", "sounds", "out", shar=True, flac=True, **share)
    assert contents(SHARDS) == contents(Path("whole"))
    (SHARDS.parent / "recordings.jsonl.gz").unlink()
    assert not prepare("folder", "sounds", "out").current
    assert prepare("folder", "sounds", "out", shar=True, flac=True).current  # it stayed
    for share in ({}, {"part": Part(1, 1)}, {"join": 1}):
        with pytest.raises(UserError, match="is there already, made with `flac`; use it so, or"):
            prepare("folder", "sounds", "out", shar=True, **share)
    assert contents(SHARDS) == contents(Path("whole"))
    SHARDS.with_name("recordings.shar.jsonl.gz").unlink()
    assert not prepare("folder", "sounds", "out", shar=True).current
    assert contents(SHARDS) == before


@pytest.mark.parametrize(
    "rate, channels, fits", [(70001, 1, False), (96000, 1, True), (8000, 9, False), (8000, 8, True)]
)
@pytest.mark.parametrize("kind", ["wav", "ogg"])
def test_what_flac_cannot_hold_is_copied(tmp_path, kind, rate, channels, fits):
    path = tmp_path / f"x.{kind}"
    soundfile.write(path, np.random.default_rng(0).uniform(-0.5, 0.5, (8000, channels)), rate)
    suffix, content = shar.recording(str(path), flac=True)
    assert suffix == (".flac" if fits else f".{kind}")
    assert fits or content == path.read_bytes()
    found = soundfile.info(io.BytesIO(content))
    assert (found.samplerate, found.channels, found.frames) == (rate, channels, 8000)


@pytest.mark.parametrize(
    "subtype, step",
    [("FLOAT", 2**-24), ("DOUBLE", 2**-24), ("PCM_32", 2**-23), ("PCM_24", 0), ("PCM_16", 0)],
)
def test_joined_files_become_one_flac_of_their_samples(tmp_path, subtype, step):
    """Rounded to 24 bits where they have more, and clipped where they are louder than FLAC can be."""
    path, wave = tmp_path / "x.wav", np.random.default_rng(0).uniform(-0.9, 0.9, 8000)
    if subtype in ("FLOAT", "DOUBLE"):
        wave[:2] = 1.5, -1.5
    soundfile.write(path, wave, 16000, subtype)
    path.write_bytes(2 * path.read_bytes())
    suffix, content = shar.recording(str(path))
    got, rate = soundfile.read(io.BytesIO(content))
    expected = np.clip(audio.load(path, 16000), -1, 1 - 2**-23)
    assert suffix == ".flac" and rate == 16000 and len(got) == 16000
    np.testing.assert_allclose(got, expected, rtol=0, atol=1.001 * step)


def test_joined_files_that_no_flac_can_hold_are_named(tmp_path):
    path = tmp_path / "x.wav"
    soundfile.write(path, np.zeros((100, 9)), 8000)
    path.write_bytes(2 * path.read_bytes())
    with pytest.raises(
        UserError, match="x.wav: holds several recordings of 9 channels at 8,000 Hz"
    ):
        shar.recording(str(path))


def test_flac_without_shar_is_a_mistake(sounds):
    with pytest.raises(UserError, match="needs `shar`: give both, or neither"):
        prepare("folder", "sounds", "out", flac=True)
    assert not Path("out").exists()


def test_lhotse_reads_it_and_writes_the_same(sounds, monkeypatch):
    for path in Path("sounds/1").glob(f"[!{LHOTSES}].*"):
        path.unlink()
    monkeypatch.setattr(shar, "SHARD", 3)
    made = prepare("folder", "sounds/1", "out", shar=True).manifests
    cuts = {cut.id: cut for cut in CutSet.from_file(made["recordings"])}
    stored = list(CutSet.from_shar(in_dir=SHARDS))
    os.mkdir("theirs")
    with SharWriter("theirs", fields={"recording": "flac"}, shard_size=3) as writer:
        for cut in stored:
            np.testing.assert_array_equal(cut.load_audio(), cuts[cut.id].load_audio())
            writer.write(cuts[cut.id])
    assert len(stored) == len(cuts) == len(LHOTSES)
    for n in (0, 1):
        assert content(SHARDS, n) == content(Path("theirs"), n)
    assert [cut.id for cut in CutSet.from_file(made["recordings.shar"])] == list(cuts)


def content(folder, number):
    """A shard's cuts, and its files by name; manifests parsed."""
    cuts = gzip.decompress((folder / f"cuts.{number:06d}.jsonl.gz").read_bytes()).splitlines()
    with tarfile.open(folder / f"recording.{number:06d}.tar") as tar:
        files = {name: tar.extractfile(name).read() for name in tar.getnames()}
    parsed = {name: json.loads(data) for name, data in files.items() if name.endswith(".json")}
    return list(map(json.loads, cuts)), files | parsed


@pytest.fixture
def make(tmp_path, monkeypatch):
    """Call asr-prepare on 30 recordings for 8 shards, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shar, "SHARD", 4)
    Path("sounds").mkdir()
    for n in range(30):
        soundfile.write(f"sounds/{n:02d}.wav", np.full(800 + n, n / 100), 8000)
    return lambda **how: prepare("folder", "sounds", "out", **{"shar": True} | how)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def written():
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in SHARDS.iterdir()}


def change():
    """Make one of the recordings another."""
    soundfile.write("sounds/07.wav", np.full(900, 0.5), 8000)


def is_changed(made):
    stored = read(made.manifests["recordings.shar"])["07.wav"]
    return audio.load(stored.path, 8000).tolist() == [0.5] * 900


def test_finished_shards_are_kept_torn_ones_written_again_and_the_folder_moves(make, monkeypatch):
    opened, recording = [], shar.recording

    def failing(path, flac):
        opened.append(path)
        if len(opened) >= 19:
            raise ZeroDivisionError
        return recording(path, flac)

    monkeypatch.setattr(shar, "recording", failing)
    monkeypatch.setattr(shar.os, "cpu_count", lambda: 1)
    with pytest.raises(ZeroDivisionError):
        make()
    before = written()
    opened.clear()
    assert len(before) == 8 and not Path("out/recordings.shar.jsonl.gz").exists()
    torn = SHARDS / "recording.000002.tar"
    torn.write_bytes(torn.read_bytes()[:3000])
    assert not make().current and make().current
    after = written()
    assert len(after) == 16 and len(opened) == 4 + 14  # the torn, and those that lacked
    assert all((before[name] == after[name]) == ("000002" not in name) for name in before)
    Path("out").rename("elsewhere")
    for name, utterance in read("elsewhere/recordings.shar.jsonl.gz").items():
        assert audio.load(utterance.path, 8000)[0] == pytest.approx(int(name[:2]) / 100, abs=1e-4)


def files():
    """The content of all files below out/, but of stamps, which hold times."""
    paths = filter(Path.is_file, Path("out").rglob("*"))
    return {str(path): path.match("*.stamp.json") or path.read_bytes() for path in paths}


def test_parts_make_what_one_run_makes_and_may_be_killed(make, monkeypatch, stderr):
    """More parts than shards, in any order; a part is killed while it writes a tar, the joining at each step."""
    make()
    expected, recording = files(), shar.recording
    Path("out").rename("whole")

    def run(words="", status=0):
        assert status_of(command.main, "folder", "sounds", "out", *words.split()) == status
        return stderr()

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    def killed(place, function, words):
        """Run it in a process of its own, which dies by this function."""
        with monkeypatch.context() as patch:
            patch.setattr(f"asr.data.{place}", function)
            process = get_context("fork").Process(target=run, args=[words])
            process.start()
            process.join(60)
        assert process.exitcode == -signal.SIGKILL

    for more in ("--part 1/9", "--join 9"):
        assert "manifests are absent" in run(f"--shar {more}", 2)
    run("--part 1/9", 2)
    run("--shar --part 1/9 --join 9", 2)
    run()
    for part in (9, 3, 4, 1, 8, 6, 5):
        run(f"--shar --part {part}/9")
    last = shar.divided(list(manifest.read("out/recordings.jsonl.gz")))[0][-1]  # of part 2
    fatal = lambda path, *how: (die if path.endswith(last.id) else recording)(path, *how)  # noqa: E731
    killed("shar.recording", fatal, "--shar --part 2/9")
    [left] = (name for name in files() if ".partial-" in name)
    assert "recording.000000.tar" in left
    Path(left).rename(left.replace("partial-", "partial-x"))
    said = run("--shar --join 9", 2)
    assert "2 of 9 parts are missing" in said and "(2/9, 7/9)" in said
    for part in (2, 7):
        assert "part-" in run(f"--shar --part {part}/9")
    assert "up to date" in run("--shar --part 2/9")
    for place in ("shar.shutil.rmtree", "manifest.write", "shar.Stamp.write"):
        killed(place, die, "--shar --join 9")
    run("--shar --join 9")
    assert files() == expected
    for more in ("", "--join 9", "--part 7/9"):
        assert "up to date" in run(f"--shar {more}")


def test_parts_of_other_recordings_are_missing(make):
    make(shar=False)
    for part in Part.all(2):
        make(part=part)
    change()
    make(shar=False)
    refused(r"2 of 2 parts are missing.*\(1/2, 2/2\)", make, join=2)
    for part in Part.all(2):
        assert not make(part=part).current
    torn = next(Path("out").glob(".recordings.shar-*/*/cuts.000005.jsonl.gz"))
    assert is_changed(make(join=2)) and not torn.exists()


def test_a_part_whose_shards_are_gone_is_made_again(make):
    make(shar=False)
    assert not make(part=Part(1, 1)).current and make(part=Part(1, 1)).current
    next(Path("out").glob(".recordings.shar-*/*/cuts.000005.jsonl.gz")).unlink()
    refused("1 of 1 parts", make, join=1)
    assert not make(part=Part(1, 1)).current and not make(join=1).current


def test_a_recording_without_a_suffix_gets_one(tmp_path):
    soundfile.write(tmp_path / "x", np.full(800, 0.5), 8000, format="OGG")
    one = manifest.Utterance("s.1", str(tmp_path / "x"), 8000, 800, 1, 0.0, 0.1, "A")
    shar.write([one], tmp_path, "train", "")
    stored = read(tmp_path / "train.shar.jsonl.gz")["s.1"].path
    np.testing.assert_array_equal(audio.load(stored, 8000), audio.load(one.path, 8000))


def test_another_recording_is_another_shar(make):
    path = make().manifests["recordings.shar"]
    change()
    [note] = make(shar=False).notes
    assert note.startswith("recordings.shar: ") and "--shar" in note and not path.exists()
    assert is_changed(make())


def test_the_command_names_what_it_made_and_no_shar_of_a_former_dev_set_stays(make, stderr):
    lines = [f"u{n}\t{n:02d}.wav\tA\ts{n % 9}\n" for n in range(30)]
    Path("sounds/train.tsv").write_text("".join(lines))
    arguments = ["tsv", "sounds", "made"]
    command.main([*arguments, "--dev", "5", "--shar"])
    made = {str(path) for path in Path("made").glob("*.jsonl.gz")}
    assert len(made) == 4 and made <= set(stderr().replace(",", "").split())
    command.main(arguments)
    assert [path.name for path in Path("made").glob("*.jsonl.gz")] == ["train.jsonl.gz"]


def test_damage_and_loss_of_an_archive_name_it(make):
    utterances = list(read(make().manifests["recordings.shar"]).values())
    last = max(utterances, key=lambda u: archive.place(u.path).offset)
    path, offset, size = archive.place(last.path)
    read_it = audio.load, last.path, 8000
    with open(path, "rb+", buffering=0) as file:
        file.seek(offset)
        file.write(bytes(size))
        refused(rf"{path}:{offset}\+{size}: can't be read as sound", *read_it)
        file.truncate(offset + size - 1)
    says = f"{path}: truncated: has {offset + size - 1} of {offset + size} bytes"
    refused(says, *read_it)
    refused(rf"\(1\): {last.id}: {says}", check_audio, utterances)
    Path(path).unlink()
    refused(rf"{path}: can't be read \(No such file or directory\)", *read_it)


# windows


def lie(numbers):
    """Shards of recordings, by the number of their archive, -1 for files of their own."""
    files = enumerate(numbers)
    paths = [f"/x/{n}.tar:0+1" if n >= 0 else f"/x/{place}.wav" for place, n in files]
    ends = np.cumsum([0, *map(len, paths)])
    return Shards.of(Strings(Ragged(np.frombuffer("".join(paths).encode(), np.uint8), ends)))


def random_lengths(count):
    return np.random.default_rng(0).uniform(2, 15, count)


def batches_of(lengths, shards=None):
    steps = plan(lengths, 60, 1, 0, 4, shards=shards)
    assert steps == plan(lengths, 60, 1, 0, 4, shards=shards) != plan(lengths, 60, 1, 1, 4)
    batches = [batch for step in steps for batch in step]
    assert sorted(n for batch in batches for n in batch) == list(range(len(lengths)))
    return batches


@each("shards, windows, most", [(1, 1, 1), (9, 2, 5), (40, 5, 8)])
def test_a_plan_goes_from_window_to_window(shards, windows, most):
    count = 100 * shards
    numbers, lengths = np.random.default_rng(0).permutation(count) // 100, random_lengths(count)
    batches = batches_of(lengths, lie(numbers))
    used = np.array([np.bincount(numbers[batch], minlength=shards) > 0 for batch in batches])
    begun, left = np.maximum.accumulate(used), np.maximum.accumulate(used[::-1])[::-1]
    assert (begun & left).sum(1).max() == most
    assert (~(begun[:-1] & left[1:]).any(1)).sum() == windows - 1  # moments between them

    def padded(batches):
        return sum(len(batch) * lengths[batch].max() for batch in batches)

    assert padded(batches) < 1.1 * padded(batches_of(lengths))


def test_files_of_their_own_beside_shards_make_no_small_windows():
    numbers = np.random.default_rng(0).permutation([*np.arange(12000) // 1000, *[-1] * 5000])
    lengths, mixed = random_lengths(17000), lie(numbers)
    windows = mixed.windows(np.random.default_rng(1))
    assert sorted(map(len, windows)) == [5000, 6000, 6000]  # of 17 shards
    batches = batches_of(lengths, mixed)
    assert len(batches) < 1.02 * len(batches_of(lengths))
    needed = sum(map(list, mixed.first_needed(batches)), [])
    assert sorted(needed) == sorted(f"/x/{n}.tar" for n in range(12))


def test_one_window_is_the_plan_of_files_and_so_is_one_in_order_of_length():
    lengths = random_lengths(900)
    for shards, ascending in ((8, False), (20, True)):
        some = lie(np.arange(900) % shards)
        expected = plan(lengths, 60, 1, 0, 4, ascending)
        assert plan(lengths, 60, 1, 0, 4, ascending, shards=some) == expected
    assert lie([-1, -1]) is None


def test_archives_are_read_through_in_order_and_a_window_ahead(monkeypatch):
    class File(io.BytesIO):
        def __exit__(self, *_):
            """Stay open, to be asked how far it was read."""

    sizes = {f"{n}.tar": n * bucketing.SHARD_BLOCK // 8 for n in range(30)}
    opened, order = {}, list(sizes)

    def opening(path, *_, **__):
        return opened.setdefault(path, File(bytes(sizes[path])))

    monkeypatch.setattr(bucketing, "open", opening, raising=False)
    stream = read_ahead(iter(range(10)), [order[n : n + 3] for n in range(0, 30, 3)])
    for n, got in enumerate(stream):
        assert got == n and len(opened) <= bucketing.SHARD_WINDOW + 3 * n
    names = list(opened)  # perhaps none: the thread need not have begun
    assert n == 9 and names == order[: len(names)]
    assert all(opened[name].tell() == sizes[name] for name in names[:-1])


# training


@pytest.fixture
def many(root, tmp_path, monkeypatch):
    """Train on the corpus of tones in 20 shards of two utterances: three windows."""
    monkeypatch.setattr(shar, "SHARD", 2)
    shar.write(list(manifest.read(root / "data/train.jsonl.gz")), tmp_path, "many", "")
    return f"data.train={tmp_path}/many.shar.jsonl.gz"


@slow
def test_a_continued_run_workers_and_processes_change_nothing(root, many, tmp_path, monkeypatch):
    still = ["training.accumulate=2", "model.encoder.dropout=0", "model.decoder.dropout=0"]
    how = [many, "training.epochs=2", *still]

    def run(name, *overrides):
        return weights(train(root, tmp_path / name, *how, *overrides))

    alone = run("alone", "training.processes=1")
    again = "x", "training.processes=1", "data.workers=2"
    stopping(monkeypatch, 4)  # in the second epoch of two
    with pytest.raises(Stop):
        run(*again, "training.save_steps=1")
    monkeypatch.undo()
    assert_same(run(*again), alone)
    assert history(tmp_path / "x") == history(tmp_path / "alone")
    run("two", "training.processes=2")
    losses = dev_losses(tmp_path / "alone")
    assert dev_losses(tmp_path / "two") == pytest.approx(losses, rel=1e-5)


def test_the_look_before_training_finds_what_is_lost(root, many, tmp_path):
    settings = config.load(tasks.Experiment, root / "x.yaml", [many])
    assert not check(settings).refused
    (tmp_path / "many.shar/recording.000003.tar").unlink()
    found = [(p.what, p.count) for p in check(settings).problems if p.stops]
    assert found == [("missing or unreadable sound files", 2)]
