"""Shar: lhotse opens what asr-prepare --shar writes, and it holds the recordings' own samples; training plans it as it
does files where one window holds all, and keeps every law of training where several do.

Expected values: lhotse's own writer and reader, the sound files, plans of files, and laws.
"""

import gzip
import io
import json
import os
import signal
import tarfile
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse import CutSet
from lhotse.shar import SharWriter
from runs import Stop, assert_same, dev_losses, history, make_root, stopping, train, weights
from small import rows

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


@pytest.fixture
def sounds(tmp_path):
    """Folders with a recording of each kind, of one channel and of two."""
    rng = np.random.default_rng(0)
    for channels in (1, 2):
        (tmp_path / f"sounds/{channels}").mkdir(parents=True)
        for name, kind, subtype, _ in KINDS:
            wave, path = rng.uniform(-0.9, 0.9, (8000, channels)), f"sounds/{channels}/{name}"
            soundfile.write(tmp_path / path, wave, 16000, subtype, format=kind)
    return tmp_path / "sounds"


def read(path):
    return {u.id: u for u in manifest.read(path)}


def test_the_samples_are_the_recordings(sounds, tmp_path):
    made = prepare("folder", sounds, tmp_path / "out", shar=True).manifests
    files, stored = read(made["recordings"]), read(made["recordings.shar"])
    assert list(files) == list(stored) and len(files) == 2 * len(KINDS)
    for name, utterance in stored.items():
        assert replace(utterance, path=files[name].path) == files[name]
        for how in ({"start": 0.1, "duration": 0.2}, {"channel": 0}, {}):
            got, expected = (audio.load(u.path, 16000, **how) for u in (utterance, files[name]))
            np.testing.assert_array_equal(got, expected)
        assert archive.place(utterance.path).archive.startswith(str(tmp_path / "out"))
    with tarfile.open(tmp_path / "out/recordings.shar/recording.000000.tar") as tar:
        names = {f"{c}/{name}{suffix}" for c in (1, 2) for name, _, _, suffix in KINDS}
        assert names == {name for name in tar.getnames() if not name.endswith(".json")}


def test_lhotse_reads_it_and_writes_the_same(sounds, tmp_path, monkeypatch):
    for path in sounds.glob(f"1/[!{LHOTSES}].*"):
        path.unlink()
    monkeypatch.setattr(shar, "SHARD", 3)
    made = prepare("folder", sounds / "1", tmp_path / "out", shar=True).manifests
    cuts = {cut.id: cut for cut in CutSet.from_file(made["recordings"])}
    stored = list(CutSet.from_shar(in_dir=tmp_path / "out/recordings.shar"))
    (tmp_path / "theirs").mkdir()
    with SharWriter(tmp_path / "theirs", fields={"recording": "flac"}, shard_size=3) as writer:
        for cut in stored:
            np.testing.assert_array_equal(cut.load_audio(), cuts[cut.id].load_audio())
            writer.write(cuts[cut.id])
    assert len(stored) == len(cuts) == len(LHOTSES)
    for n in (0, 1):
        assert content(tmp_path / "out/recordings.shar", n) == content(tmp_path / "theirs", n)
    assert [cut.id for cut in CutSet.from_file(made["recordings.shar"])] == list(cuts)


def content(folder, number):
    """A shard's cuts, and its files by name; manifests parsed."""
    cuts = gzip.decompress((folder / f"cuts.{number:06d}.jsonl.gz").read_bytes()).splitlines()
    files = {}
    with tarfile.open(folder / f"recording.{number:06d}.tar") as tar:
        for member in tar:
            data = tar.extractfile(member).read()
            files[member.name] = json.loads(data) if member.name.endswith(".json") else data
    return list(map(json.loads, cuts)), files


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """30 recordings for 8 shards."""
    monkeypatch.setattr(shar, "SHARD", 4)
    (tmp_path / "sounds").mkdir()
    for n in range(30):
        soundfile.write(tmp_path / f"sounds/{n:02d}.wav", np.full(800 + n, n / 100), 8000)
    return tmp_path


def make(corpus, **how):
    return prepare("folder", corpus / "sounds", corpus / "out", **{"shar": True} | how)


def written(corpus):
    paths = (corpus / "out/recordings.shar").iterdir()
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


def test_finished_shards_are_kept_torn_ones_written_again_and_the_folder_moves(corpus, monkeypatch):
    opened, recording = [], shar.recording

    def failing(path):
        opened.append(path)
        if len(opened) >= 19:
            raise UserError("gone")
        return recording(path)

    monkeypatch.setattr(shar, "recording", failing)
    monkeypatch.setattr(shar.os, "cpu_count", lambda: 1)
    with pytest.raises(UserError, match="gone"):
        make(corpus)
    before = written(corpus)
    opened.clear()
    assert len(before) == 8 and not (corpus / "out/recordings.shar.jsonl.gz").exists()
    torn = corpus / "out/recordings.shar/recording.000002.tar"
    torn.write_bytes(torn.read_bytes()[:3000])
    assert not make(corpus).current and make(corpus).current
    after = written(corpus)
    assert len(after) == 16 and len(opened) == 4 + 14  # the torn, and those that lacked
    assert all((before[name] == after[name]) == ("000002" not in name) for name in before)
    (corpus / "out").rename(corpus / "elsewhere")
    for name, utterance in read(corpus / "elsewhere/recordings.shar.jsonl.gz").items():
        assert audio.load(utterance.path, 8000)[0] == pytest.approx(int(name[:2]) / 100, abs=1e-4)


def files(folder):
    """The content of all files below a folder, but of stamps, which hold times."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    stamp = ".stamp.json"
    return {name: name.endswith(stamp) or path.read_bytes() for name, path in found.items()}


def killed(task, *arguments):
    """Call it in a process of its own, which a signal ends."""
    process = get_context("fork").Process(target=task, args=arguments)
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def test_parts_make_what_one_run_makes_and_may_be_killed(corpus, monkeypatch, capsys):
    """More parts than shards, in any order; a part is killed while it writes a tar, the joining at each step."""
    make(corpus)
    out, expected, recording = corpus / "out", files(corpus / "out"), shar.recording
    out.rename(corpus / "whole")

    def run(words="", status=0):
        with pytest.raises(SystemExit, match=f"^{status}$") if status else nullcontext():
            command.main(["folder", f"{corpus}/sounds", str(out), *words.split()])
        return capsys.readouterr().err

    def die(*_, **__):
        os.kill(os.getpid(), signal.SIGKILL)

    for more in ("--part 1/9", "--join 9"):
        assert "manifests are absent" in run(f"--shar {more}", 2)
    run("--part 1/9", 2)
    run("--shar --part 1/9 --join 9", 2)
    run()
    for part in (9, 3, 4, 1, 8, 6, 5):
        run(f"--shar --part {part}/9")
    last = shar.divided(list(manifest.read(out / "recordings.jsonl.gz")))[0][-1]  # of part 2
    with monkeypatch.context() as patch:
        fatal = lambda path: (die if path.endswith(last.id) else recording)(path)  # noqa: E731
        patch.setattr(shar, "recording", fatal)
        killed(run, "--shar --part 2/9")
    [left] = (name for name in files(out) if ".partial-" in name)
    assert "recording.000000.tar" in left
    (out / left).rename(out / left.replace("partial-", "partial-x"))
    said = run("--shar --join 9", 2)
    assert "2 of 9 parts are missing" in said and "(2/9, 7/9)" in said
    for part in (2, 7):
        assert "part-" in run(f"--shar --part {part}/9")
    assert "up to date" in run("--shar --part 2/9")
    for name in ("shar.shutil.rmtree", "manifest.write", "shar.Stamp.write"):
        with monkeypatch.context() as patch:
            patch.setattr(f"asr.data.{name}", die)
            killed(run, "--shar --join 9")
    run("--shar --join 9")
    assert files(out) == expected
    for more in ("", "--join 9", "--part 7/9"):
        assert "up to date" in run(f"--shar {more}")


def test_parts_of_other_recordings_are_missing(corpus):
    make(corpus, shar=False)
    for part in Part.all(2):
        make(corpus, part=part)
    soundfile.write(corpus / "sounds/07.wav", np.full(900, 0.5), 8000)
    make(corpus, shar=False)
    with pytest.raises(UserError, match=r"2 of 2 parts are missing.*\(1/2, 2/2\)"):
        make(corpus, join=2)
    for part in Part.all(2):
        assert not make(corpus, part=part).current
    torn = next((corpus / "out").glob(".recordings.shar-*/*/cuts.000005.jsonl.gz"))
    stored = read(make(corpus, join=2).manifests["recordings.shar"])["07.wav"]
    assert audio.load(stored.path, 8000).tolist() == [0.5] * 900 and not torn.exists()


def test_a_part_whose_shards_are_gone_is_made_again(corpus):
    make(corpus, shar=False)
    assert not make(corpus, part=Part(1, 1)).current and make(corpus, part=Part(1, 1)).current
    next((corpus / "out").glob(".recordings.shar-*/*/cuts.000005.jsonl.gz")).unlink()
    with pytest.raises(UserError, match="1 of 1 parts"):
        make(corpus, join=1)
    assert not make(corpus, part=Part(1, 1)).current and not make(corpus, join=1).current


def test_a_recording_without_a_suffix_gets_one(tmp_path):
    soundfile.write(tmp_path / "x.ogg", np.full(800, 0.5), 8000)
    (tmp_path / "x.ogg").rename(tmp_path / "x")
    one = manifest.Utterance("s.1", str(tmp_path / "x"), 8000, 800, 1, 0.0, 0.1, "A")
    shar.write([one], tmp_path, "train", "")
    stored = read(tmp_path / "train.shar.jsonl.gz")["s.1"].path
    np.testing.assert_array_equal(audio.load(stored, 8000), audio.load(one.path, 8000))


def test_another_recording_is_another_shar(corpus):
    path = make(corpus).manifests["recordings.shar"]
    soundfile.write(corpus / "sounds/07.wav", np.full(900, 0.5), 8000)
    [note] = make(corpus, shar=False).notes
    assert note.startswith("recordings.shar: ") and "--shar" in note and not path.exists()
    make(corpus)
    assert audio.load(read(path)["07.wav"].path, 8000).tolist() == [0.5] * 900


def test_the_command_names_what_it_made_and_no_shar_of_a_former_dev_set_stays(corpus, capsys):
    lines = [f"u{n}\t../sounds/{n:02d}.wav\tA\ts{n % 9}\n" for n in range(30)]
    (corpus / "tsv").mkdir()
    (corpus / "tsv/train.tsv").write_text("".join(lines))
    arguments = ["tsv", f"{corpus}/tsv", f"{corpus}/made"]
    command.main([*arguments, "--dev", "5", "--shar"])
    made = {str(path) for path in (corpus / "made").glob("*.jsonl.gz")}
    assert len(made) == 4 and made <= set(capsys.readouterr().err.replace(",", "").split())
    command.main(arguments)
    assert [path.name for path in (corpus / "made").glob("*.jsonl.gz")] == ["train.jsonl.gz"]


def test_damage_and_loss_of_an_archive_name_it(corpus):
    utterances = list(read(make(corpus).manifests["recordings.shar"]).values())
    last = max(utterances, key=lambda u: archive.place(u.path).offset)
    path, offset, size = archive.place(last.path)

    def refused(says):
        with pytest.raises(UserError, match=says):
            audio.load(last.path, 8000)

    with open(path, "rb+", buffering=0) as file:
        file.seek(offset)
        file.write(bytes(size))
        refused(rf"{path}:{offset}\+{size}: can't be read as sound")
        file.truncate(offset + size - 1)
    says = f"{path}: truncated: has {offset + size - 1} of {offset + size} bytes"
    refused(says)
    with pytest.raises(UserError, match=rf"\(1\): {last.id}: {says}"):
        check_audio(utterances)
    Path(path).unlink()
    refused(rf"{path}: can't be read \(No such file or directory\)")


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


@pytest.mark.parametrize("shards, windows, most", [(1, 1, 1), (9, 2, 5), (40, 5, 8)])
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


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The corpus of tones in 20 shards of two utterances: three windows."""
    made = make_root(tmp_path_factory.mktemp("shar"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shar, "SHARD", 2)
        shar.write(list(manifest.read(made / "data/train.jsonl.gz")), made / "data", "many", "")
    return made


@pytest.mark.slow
def test_a_continued_run_workers_and_processes_change_nothing(root, tmp_path, monkeypatch):
    many = f"data.train={root}/data/many.shar.jsonl.gz"
    still = ["training.accumulate=2", "model.encoder.dropout=0", "model.decoder.dropout=0"]

    def run(name, *overrides):
        return weights(train(root, tmp_path / name, many, "training.epochs=2", *still, *overrides))

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


def test_the_look_before_training_finds_what_is_lost(root):
    many = f"data.train={root}/data/many.shar.jsonl.gz"
    settings = config.load(tasks.Experiment, root / "x.yaml", [many])
    assert not check(settings).refused
    (root / "data/many.shar/recording.000003.tar").unlink()
    found = [(p.what, p.count) for p in check(settings).problems if p.stops]
    assert found == [("missing or unreadable sound files", 2)]
