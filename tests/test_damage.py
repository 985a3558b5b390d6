"""Prove that a model folder which isn't what was written is refused, and one that is, never.

The judge of a flipped bit is the model itself: either loading is refused in one line that names a file of the folder,
or what was loaded is equal to the bit, and so the bit was of no meaning (white space, a comment).
"""

import json
import os
import random
import shutil
import struct
import threading

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

from asr import files
from asr.config import dump
from asr.config import load as load_settings
from asr.errors import UserError
from asr.models import lm, recognizer
from asr.models.folder import CONFIG, WEIGHTS, _tell_unprotected, accept, describe, save_weights
from asr.tasks import Experiment
from asr.text import tokenizer as tokenizers
from asr.training.build import build
from asr.training.folder import check_folder

SPEECH = """\
out: exp/x  # the model folder
seed: 1
tokenizer: {tokenizer}
data: {{train: train.jsonl.gz, dev: dev.jsonl.gz, batch_seconds: 60, workers: 1}}
features: {{fbank: {{sample_rate: 8000, mels: 20}}}}
model:
  kind: hybrid
  encoder: {{kind: conformer, d_model: 12, layers: 2, heads: 3, ff: 16, dropout: 0.1, kernel: 3, channels: 4}}
  decoder: {{kind: transformer, d_model: 12, layers: 1, heads: 3, ff: 16, dropout: 0.1, tied: true}}
optimizer: {{kind: adam, lr: 5e-4}}
schedule: {{kind: noam, warmup: 1000}}
training: {{epochs: 10, device: cpu}}
"""
TEXT = """\
out: exp/x
seed: 1
tokenizer: {tokenizer}
data: {{train: train.txt, dev: dev.txt, batch_tokens: 60}}
model: {{kind: lm, d_model: 12, layers: 2, heads: 3, ff: 16, dropout: 0.1}}
optimizer: {{kind: adam, lr: 5e-4}}
schedule: {{kind: noam, warmup: 1000}}
training: {{epochs: 10}}
"""
LATIN = ["THE QUICK BROWN FOX JUMPS OVER THE LAZY DOG", "PACK MY BOX WITH FIVE DOZEN LIQUOR JUGS"]
LOAD = {"characters": recognizer.load, "bpe": recognizer.load, "lm": lm.load}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Model folders: of characters, of BPE, of a language model."""
    root = tmp_path_factory.mktemp("damage")
    for name, (text, kind, size) in {
        "characters": (SPEECH, "characters", None),
        "bpe": (SPEECH, "bpe", 40),
        "lm": (TEXT, "bpe", 40),
    }.items():
        tokenizers.train(kind, LATIN * 3, size).save(root / "tokenizer" / name)
        (root / f"{name}.yaml").write_text(text.format(tokenizer=root / "tokenizer" / name))
        settings = load_settings(Experiment, root / f"{name}.yaml")
        build(settings).save(root / name, dump(settings))
    return root


@pytest.fixture
def folder(made, tmp_path):
    """A copy of the folder of a model of characters."""
    return shutil.copytree(made / "characters", tmp_path / "model")


def refused(load, folder):
    """The line by which a folder is refused."""
    with pytest.raises(UserError) as caught:
        load(folder)
    assert len(str(caught.value).splitlines()) == 1 and len(str(caught.value)) < 1000
    return str(caught.value)


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# ---- what isn't what was written


def meaning(model):
    """All that decoding depends on."""
    fbank = vars(model.frontend.fbank).items() if hasattr(model, "frontend") else ()
    kept = {name: value for name, value in fbank if isinstance(value, (int, float))}
    return model.tokenizer.content, kept, str(model), model.state_dict()


@pytest.mark.parametrize("kind", LOAD)
def test_a_flipped_bit_is_refused_or_means_nothing(made, tmp_path, kind):
    folder = shutil.copytree(made / kind, tmp_path / "model")
    whole, draw, counts = meaning(LOAD[kind](folder)), random.Random(kind), {}
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for _ in range(60):
            place, bit = draw.randrange(len(content)), 1 << draw.randrange(8)
            path.write_bytes(content[:place] + bytes([content[place] ^ bit]) + content[place + 1 :])
            try:
                loaded = meaning(LOAD[kind](folder))
            except UserError as error:
                assert str(folder) in str(error) and len(str(error).splitlines()) == 1
                counts[path.name] = counts.get(path.name, 0) + 1
            else:
                assert loaded[:3] == whole[:3], f"{path}: bit {bit} of byte {place}"
                assert_close(
                    loaded[3], whole[3], rtol=0, atol=0, msg=f"{path}: bit {bit} of byte {place}"
                )
        path.write_bytes(content)
    LOAD[kind](folder)
    assert (
        counts[WEIGHTS] >= 58
        and counts.get("bpe.model", 60) == 60
        and counts["tokenizer.json"] >= 40
    ), counts
    assert counts[CONFIG] >= 25, (
        counts
    )  # where it isn't refused, it is in `out` or in what says how to compute


@pytest.mark.parametrize(
    "old, new", [("dropout: 0.1", "dropout: 0.2"), ("seed: 1", "seed: 2"), ("ff: 16", "ff: 32")]
)
def test_settings_changed_by_hand_are_named(folder, old, new):
    change(folder / CONFIG, old, new)
    assert refused(recognizer.load, folder).startswith(str(folder))
    if old != "ff: 16":
        said = refused(recognizer.load, folder)
        assert said.startswith(f"{folder / CONFIG}: ") and said.endswith(
            f": asr-info --accept {folder}"
        )
        assert accept(folder) == [CONFIG] and accept(folder) == []
        recognizer.load(folder)


def test_what_a_continued_run_may_change_is_not_damage(folder, made):
    """It describes itself anew before it has better weights."""
    settings = load_settings(
        Experiment,
        made / "characters.yaml",
        ["data.workers=0", "training.log_every=3", "out=exp/moved"],
    )
    before = (folder / CONFIG).read_text()
    describe(folder, dump(settings), recognizer.load(folder).tokenizer)
    assert (folder / CONFIG).read_text() != before
    recognizer.load(folder)
    (folder / CONFIG).write_text(f"# a comment\n{before}")
    recognizer.load(folder)


@pytest.mark.parametrize("kind", ["characters", "bpe", "lm"])
def test_another_tokenizer_of_the_same_size_is_refused(made, tmp_path, kind):
    folder = shutil.copytree(made / kind, tmp_path / "model")
    model = LOAD[kind](folder)
    if kind == "characters":
        other = tokenizers.train(
            kind, ["".join(chr(0x4E00 + n) for n in range(model.tokenizer.vocabulary - 2))]
        )
    else:
        other = tokenizers.train("bpe", [text[::-1] for text in LATIN] * 3, 40)
    assert other.vocabulary == model.tokenizer.vocabulary
    other.save(folder)
    said = refused(LOAD[kind], folder)
    assert "tokenizer.json" in said.split(": ")[1] or "bpe.model" in said.split(": ")[0]
    assert said.endswith(f"asr-info --accept {folder}")
    assert accept(folder)
    assert LOAD[kind](folder).tokenizer.content == other.content


def test_a_tokenizer_changed_by_hand_is_named(made, tmp_path):
    folder = shutil.copytree(made / "tokenizer/characters", tmp_path / "tokenizer")
    change(folder / "tokenizer.json", '"Q"', '"É"')
    said = refused(tokenizers.load, folder)
    assert said.startswith(f"{folder}/tokenizer.json: ") and said.endswith(
        f"asr-info --accept {folder}"
    )
    assert accept(folder) == ["tokenizer.json"] and accept(folder) == []
    assert tokenizers.load(folder).encode("É")
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer here" in refused(accept, folder)


def test_weights_changed_by_a_program_that_keeps_the_digest(folder):
    tensors, metadata = read_with_metadata(folder / WEIGHTS)
    tensors["model.ctc_out.bias"][1] += 1e-3
    save_file(tensors, folder / WEIGHTS, metadata)
    assert refused(recognizer.load, folder).startswith(f"{folder / WEIGHTS}: damaged (")
    assert accept(folder) == [WEIGHTS]
    assert_close(
        recognizer.load(folder).state_dict()["model.ctc_out.bias"], tensors["model.ctc_out.bias"]
    )


def read_with_metadata(path):
    length = struct.unpack("<Q", path.read_bytes()[:8])[0]
    return load_file(path), json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]


def test_a_folder_without_checksums_loads_and_is_told_once(folder, capsys):
    save_file(load_file(folder / WEIGHTS), folder / WEIGHTS)
    _tell_unprotected.cache_clear()
    for _ in range(3):
        recognizer.load(folder)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"asr-info --accept {folder}" in said
    assert accept(folder)
    recognizer.load(folder)
    assert not capsys.readouterr().err
    change(folder / CONFIG, "dropout: 0.1", "dropout: 0.2")
    assert str(folder / CONFIG) in refused(recognizer.load, folder)


def test_weights_replaced_meanwhile_are_never_called_damaged(folder):
    """As a training does with each better validation."""
    models = [recognizer.load(folder), recognizer.load(folder)]
    with torch.no_grad():
        models[1].model.ctc_out.bias.fill_(3)
    stop = threading.Event()

    def replace():
        while not stop.is_set():
            for model in models:
                save_weights(model, folder / WEIGHTS)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        sums = {float(recognizer.load(folder).model.ctc_out.bias.detach().sum()) for _ in range(15)}
    finally:
        stop.set()
        writer.join()
    assert len(sums) == 2


# ---- what is, but can't be used


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", LOAD)
def test_weights_that_are_not_finite_are_refused(made, tmp_path, kind, value):
    folder = shutil.copytree(made / kind, tmp_path / "model")
    model = LOAD[kind](folder)
    name = sorted(model.state_dict())[-1]
    with torch.no_grad():
        model.state_dict()[name].view(-1)[2] = value
    save_weights(model, folder / WEIGHTS)
    for refuse in (LOAD[kind], accept):
        said = refused(refuse, folder)
        assert said.startswith(f"{folder / WEIGHTS}: {name} has 1 of ") and "not finite" in said


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_read(folder, kind):
    tensors = {name: tensor.to(kind) for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(tensors, folder / WEIGHTS)
    model = recognizer.load(folder)
    assert_close(
        model.state_dict()["model.ctc_out.weight"],
        tensors["model.ctc_out.weight"].float(),
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("kind", [torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_integers_are_refused(folder, kind):
    tensors = load_file(folder / WEIGHTS)
    tensors["model.ctc_out.bias"] = tensors["model.ctc_out.bias"].to(kind)
    save_file(tensors, folder / WEIGHTS)
    said = refused(recognizer.load, folder)
    assert said.startswith(f"{folder / WEIGHTS}: holds numbers of type ") and said.endswith(
        "model.ctc_out.bias"
    )


@pytest.mark.parametrize("name", [WEIGHTS, CONFIG, "tokenizer.json"])
def test_unreadable_is_not_missing(folder, monkeypatch, name):
    """Root may read everything, so the system's answer is planted."""

    def deny(path, *arguments, **more):
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", str(path))
        return open(path, *arguments, **more)

    monkeypatch.setattr(files, "open", deny, raising=False)
    monkeypatch.setattr("asr.yaml_tree.open", deny, raising=False)
    said = refused(recognizer.load, folder)
    assert (
        said.startswith(f"{folder / name}: can't ")
        and "(Permission denied)" in said
        and "missing;" not in said
    )


@pytest.mark.parametrize("name", [WEIGHTS, "tokenizer.json"])
@pytest.mark.parametrize("what", ["folder", "pipe", "device", "loop"])
def test_what_is_no_file_is_named_and_not_waited_for(folder, name, what):
    path = folder / name
    path.unlink()
    {
        "folder": path.mkdir,
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "loop": lambda: path.symlink_to(path),
    }[what]()
    assert refused(recognizer.load, folder).startswith(f"{path}: ")


def test_the_mode_of_weights_follows_the_umask(folder, tmp_path):
    model = recognizer.load(folder)
    for umask, mode in ((0o022, 0o644), (0o027, 0o640), (0o002, 0o664)):
        before = os.umask(umask)
        try:
            save_weights(model, tmp_path / "x.safetensors")
        finally:
            os.umask(before)
        assert (tmp_path / "x.safetensors").stat().st_mode & 0o777 == mode


# ---- sizes of a stranger


HUGE = {  # what is replaced in the settings, and by what
    "layers": ("layers: 2", "layers: 1000000000"),
    "layers within bounds": ("layers: 2", "layers: 200"),
    "d_model": ("d_model: 12", "d_model: 1200000000"),
    "d_model within bounds": ("d_model: 12", "d_model: 15999"),
    "ff": ("ff: 16", "ff: 16000000000000"),
    "ff within bounds": ("ff: 16", "ff: 200000"),
    "heads": ("heads: 3", "heads: 3000000000"),
    "d_k": ("d_k: null", "d_k: 16384"),
    "kernel": ("kernel: 3", "kernel: 3000000001"),
    "kernel within bounds": ("kernel: 3", "kernel: 99999"),
    "channels": ("channels: 4", "channels: 16000"),
    "channels beyond 64 bits": ("channels: 4", "channels: 40000000000000000000000"),
    "sample rate": ("sample_rate: 8000", "sample_rate: 8000000000000"),
    "frames": ("frame_ms: 25.0", "frame_ms: 1e+12"),
    "shift": ("shift_ms: 10.0", "shift_ms: 1e+12"),
    "mels": ("mels: 20", "mels: 20000000000"),
    "mels within bounds": ("mels: 20", "mels: 500"),
    "chunk": ("chunk: null", "chunk: {frames: 1000000000000, left: 1}"),
}


@pytest.mark.parametrize("case", HUGE)
def test_a_strangers_sizes_take_no_memory(folder, case):
    import resource

    old, new = HUGE[case]
    change(folder / CONFIG, old, new)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert str(folder) in refused(recognizer.load, folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kB


def test_a_training_larger_than_the_memory_is_refused(made):
    sizes = ["model.d_model=15999", "model.ff=200000", "model.layers=200"]
    with pytest.raises(
        UserError,
        match="model: its training takes more than this machine's memory: .* fewer layers",
    ):
        build(load_settings(Experiment, made / "lm.yaml", sizes))


HEADERS = {
    "length of 2^63": struct.pack("<Q", 2**63) + b"{}",
    "length of 2^64 - 1": b"\xff" * 8 + b"{}",
    "length of a gigabyte": struct.pack("<Q", 10**9) + b"{}",
    "depth": struct.pack("<Q", 200_000) + b"[" * 200_000,
    "no mapping": struct.pack("<Q", 2) + b"[]",
    "no header": struct.pack("<Q", 0),
    "a shape of 2^62": struct.pack("<Q", 70)
    + b'{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}'.ljust(70),
    "nothing": b"",
    "a byte": b"\x05",
}


@pytest.mark.parametrize("case", HEADERS)
def test_headers_of_weights(folder, case):
    (folder / WEIGHTS).write_bytes(HEADERS[case])
    assert refused(recognizer.load, folder).startswith(
        f"{folder / WEIGHTS}: d"
    )  # damaged, or doesn't fit
    assert refused(accept, folder).startswith(f"{folder / WEIGHTS}: damaged")


def half_the_bits(header, tensors):
    entry = header["model.ctc_out.weight"]
    entry["dtype"], entry["shape"] = "BF16", [entry["shape"][0], 2 * entry["shape"][1]]
    return json.dumps(header), tensors


def twice(header, tensors):
    entry = json.dumps(header["model.ctc_out.bias"])
    return f'{json.dumps(header)[:-1]}, "model.ctc_out.bias": {entry}}}', tensors


def of_no_bytes(header, tensors):
    header["stranger"] = {"dtype": "F32", "shape": [0], "data_offsets": [len(tensors)] * 2}
    return json.dumps(header), tensors


def renamed(header, tensors):
    first, second = (
        "model.encoder.layers.0.attention.key.weight",
        "model.encoder.layers.0.attention.query.weight",
    )
    header[first], header[second] = header[second], header[first]
    return json.dumps(header), tensors


@pytest.mark.parametrize("change", [half_the_bits, twice, of_no_bytes, renamed])
def test_a_header_that_says_something_else(folder, change):
    content = (folder / WEIGHTS).read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header, tensors = change(json.loads(content[8 : 8 + size]), content[8 + size :])
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header.encode() + tensors)
    assert refused(recognizer.load, folder).startswith(
        f"{folder / WEIGHTS}: d"
    )  # damaged, or doesn't fit


# ---- somebody's folder as output


@pytest.mark.parametrize(
    "name", ["thesis.txt", "config.yaml", ".profile", "checkpoints/x", "run.json/x", ".stamp.json"]
)
def test_a_folder_with_others_files_is_not_taken_over(tmp_path, name):
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("mine")
    with pytest.raises(
        UserError, match=f"out: {out}: .*{out / name.split('/')[0]}; choose another out="
    ):
        check_folder(out)


def test_a_trainings_folder_and_an_empty_one_are_taken(tmp_path):
    check_folder(tmp_path / "new")
    check_folder(tmp_path)
    for name in (".lock", ".partial-12-probe"):  # of a run that ended before it began
        (tmp_path / name).touch()
    check_folder(tmp_path)
    for name in ("run.json", "anything"):
        (tmp_path / name).touch()
    check_folder(tmp_path)


def test_what_systems_leave_and_logs_make_a_folder_nobodys(tmp_path):
    for name in (".DS_Store", "train.log", "job-17.out", ".nfs0001"):
        (tmp_path / name).write_text("")
    check_folder(tmp_path)
    (tmp_path / "thesis.txt").write_text("")
    with pytest.raises(UserError, match="is no training's folder, for it holds .*thesis.txt"):
        check_folder(tmp_path)
