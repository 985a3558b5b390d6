"""Prove that a model folder which isn't what was written is refused, and one that is, never.

The judge of a flipped bit is the model itself: either loading is refused in one line that names a file of the folder,
or what was loaded is equal to the bit, and so the bit was of no meaning (white space, a comment).
"""

import json
import os
import random
import resource
import shutil
import struct
import threading
from collections import Counter

import pytest
import torch
from refusals import refused
from runs import assert_same, experiment
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small import each, rows

from asr import files, yaml_tree
from asr.config import dump
from asr.errors import UserError
from asr.models import lm, recognizer
from asr.models.folder import CONFIG, WEIGHTS, accept, check_bound, describe, save_weights
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
LOAD = {"characters": recognizer.load, "lm": lm.load}
BIAS = "model.ctc_out.bias"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Model folders: of a recognizer of characters, of a language model of BPE."""
    root = tmp_path_factory.mktemp("damage")
    tokenizers.train("characters", LATIN).save(root / "tokenizer/characters")
    tokenizers.train("bpe", LATIN * 3, 40).save(root / "tokenizer/lm")
    for name, text in {"characters": SPEECH, "lm": TEXT}.items():
        (root / f"{name}.yaml").write_text(text.format(tokenizer=root / "tokenizer" / name))
        settings = experiment(root, name=name)
        build(settings).save(root / name, dump(settings))
    return root


@pytest.fixture
def folder(made, tmp_path):
    """A copy of the recognizer's folder."""
    return shutil.copytree(made / "characters", tmp_path / "model")


@pytest.fixture(params=LOAD)
def copied(request, made, tmp_path):
    """A copy of each model's folder, and what loads it."""
    return shutil.copytree(made / request.param, tmp_path / "model"), LOAD[request.param]


def refusal(folder, load=recognizer.load):
    """The line by which a folder is refused."""
    line = refused(str(folder), load, folder)
    assert len(line) < 1000
    return line


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def named_until_accepted(folder, *names, load=recognizer.load):
    """One of the files is named, with the command that accepts them; then the folder loads."""
    line = refusal(folder, load)
    assert any(line.startswith(f"{folder / name}: ") for name in names)
    assert line.endswith(f"asr-info --accept {folder}") or names == (WEIGHTS,)
    assert {*accept(folder)} == {*names} and accept(folder) == []
    return load(folder)


# ---- what isn't what was written


def meaning(model):
    """All that decoding depends on."""
    fbank = vars(model.frontend.extractor).items() if hasattr(model, "frontend") else ()
    kept = {name: value for name, value in fbank if isinstance(value, (int, float))}
    return model.tokenizer.content, kept, str(model), model.state_dict()


def test_a_flipped_bit_is_refused_or_means_nothing(copied):
    folder, load = copied
    whole, draw, counts = meaning(load(folder)), random.Random(1), Counter()
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for _ in range(60):
            place, bit = draw.randrange(len(content)), 1 << draw.randrange(8)
            damaged = bytearray(content)
            damaged[place] ^= bit
            path.write_bytes(damaged)
            try:
                loaded = meaning(load(folder))
            except UserError as error:
                assert str(folder) in str(error) and len(str(error).splitlines()) == 1
                counts[path.name] += 1
            else:
                assert loaded[:3] == whole[:3], f"{path}: bit {bit} of byte {place}"
                assert_same(loaded[3], whole[3])
        path.write_bytes(content)
    load(folder)
    # where settings aren't refused, it is in `out` or in what says how to compute
    least = {WEIGHTS: 58, "bpe.model": 60, "tokenizer.json": 40, CONFIG: 25}
    assert all(count >= least[name] for name, count in counts.items()), counts


def test_settings_changed_by_hand_are_named(folder):
    change(folder / CONFIG, "seed: 1", "seed: 2")
    named_until_accepted(folder, CONFIG)
    change(folder / CONFIG, "ff: 16", "ff: 32")
    refusal(folder)


@each("names", [(CONFIG, "tokenizer.json"), ("tokenizer.json", CONFIG)])
def test_several_changed_files_are_named_in_one_order(folder, names):
    says, bound = (
        f"/{CONFIG}: {CONFIG}, tokenizer.json changed since",
        dict.fromkeys(names, "other"),
    )
    refused(says, check_bound, folder / WEIGHTS, bound)


def test_what_a_continued_run_may_change_is_not_damage(folder, made):
    """It describes itself anew before it has better weights."""
    changes = "data.workers=0", "training.log_every=3", "out=exp/moved"
    settings = experiment(made, *changes, name="characters")
    before = (folder / CONFIG).read_text()
    describe(folder, dump(settings), recognizer.load(folder).tokenizer)
    assert (folder / CONFIG).read_text() != before
    recognizer.load(folder)
    (folder / CONFIG).write_text(f"# a comment\n{before}")
    recognizer.load(folder)


def test_another_tokenizer_of_the_same_size_is_refused(copied):
    folder, load = copied
    if load is lm.load:
        other = tokenizers.train("bpe", [text[::-1] for text in LATIN] * 3, 40)
    else:
        size = load(folder).tokenizer.vocabulary - 2
        other = tokenizers.train("characters", ["".join(map(chr, range(0x4E00, 0x4E00 + size)))])
    other.save(folder)
    names = ["tokenizer.json", "bpe.model"][: 2 if load is lm.load else 1]
    assert named_until_accepted(folder, *names, load=load).tokenizer.content == other.content


def test_a_tokenizer_changed_by_hand_is_named(made, tmp_path):
    folder = shutil.copytree(made / "tokenizer/characters", tmp_path / "tokenizer")
    change(folder / "tokenizer.json", '"Q"', '"É"')
    assert named_until_accepted(folder, "tokenizer.json", load=tokenizers.load).encode("É")
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer here" in refusal(folder, accept)


def test_weights_changed_by_a_program_that_keeps_the_digest(folder):
    tensors = load_file(folder / WEIGHTS)
    tensors[BIAS][1] += 1e-3
    with safe_open(folder / WEIGHTS, "pt") as file:
        save_file(tensors, folder / WEIGHTS, file.metadata())
    assert_same(named_until_accepted(folder, WEIGHTS).state_dict()[BIAS], tensors[BIAS])


def test_a_folder_without_checksums_loads_and_is_told_once(folder, stderr):
    save_file(load_file(folder / WEIGHTS), folder / WEIGHTS)
    for _ in range(3):
        recognizer.load(folder)
    said = stderr()
    assert said.count("\n") == 1 and f"asr-info --accept {folder}" in said
    assert accept(folder)
    recognizer.load(folder)
    assert not stderr()
    change(folder / CONFIG, "dropout: 0.1", "dropout: 0.2")
    assert str(folder / CONFIG) in refusal(folder)


def test_weights_replaced_meanwhile_are_never_called_damaged(folder):
    """As a training does with each better validation."""
    models, stop = [recognizer.load(folder) for _ in range(2)], threading.Event()
    torch.nn.init.constant_(models[1].model.ctc_out.bias, 3)

    def replace():
        while not stop.is_set():
            for model in models:
                save_weights(model, folder / WEIGHTS)

    writer = threading.Thread(target=replace)
    writer.start()
    try:
        sums = {float(recognizer.load(folder).state_dict()[BIAS].sum()) for _ in range(15)}
    finally:
        stop.set()
        writer.join()
    assert len(sums) == 2


# ---- what is, but can't be used


@each("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(copied, value):
    folder, load = copied
    model = load(folder)
    name, weight = sorted(model.state_dict().items())[-1]
    weight.view(-1)[2] = value
    save_weights(model, folder / WEIGHTS)
    for refuse in (load, accept):
        line = refusal(folder, refuse)
        assert line.startswith(f"{folder / WEIGHTS}: {name} has 1 of ") and "not finite" in line


@each("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_read(folder, kind):
    tensors = {name: tensor.to(kind) for name, tensor in load_file(folder / WEIGHTS).items()}
    save_file(tensors, folder / WEIGHTS)
    assert recognizer.load(folder).state_dict()[BIAS].equal(tensors[BIAS].float())


@each("kind", [torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_integers_are_refused(folder, kind):
    tensors = load_file(folder / WEIGHTS)
    save_file(tensors | {BIAS: tensors[BIAS].to(kind)}, folder / WEIGHTS)
    line = refusal(folder)
    assert line.startswith(f"{folder / WEIGHTS}: holds numbers of type ") and line.endswith(BIAS)


@each("name", [WEIGHTS, CONFIG, "tokenizer.json"])
def test_unreadable_is_not_missing(folder, monkeypatch, name):
    """Root may read everything, so the system's answer is planted."""

    def deny(path, *arguments, **more):
        if str(path).endswith(name):
            raise PermissionError(13, "Permission denied", str(path))
        return open(path, *arguments, **more)

    for module in (files, yaml_tree):
        monkeypatch.setattr(module, "open", deny, raising=False)
    line = refusal(folder)
    assert line.startswith(f"{folder / name}: can't ") and "(Permission denied)" in line
    assert "missing;" not in line


NO_FILE = {
    "folder": lambda path: path.mkdir(),
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
}


@each("name", [WEIGHTS, "tokenizer.json"])
@each("what", NO_FILE)
def test_what_is_no_file_is_named_and_not_waited_for(folder, name, what):
    (folder / name).unlink()
    NO_FILE[what](folder / name)
    assert refusal(folder).startswith(f"{folder / name}: ")


# ---- sizes of a stranger


HUGE = """
    layers: 2 | layers: 1000000000
    layers: 2 | layers: 200
    d_model: 12 | d_model: 1200000000
    d_model: 12 | d_model: 15999
    ff: 16 | ff: 16000000000000
    ff: 16 | ff: 200000
    heads: 3 | heads: 3000000000
    d_k: null | d_k: 16384
    kernel: 3 | kernel: 3000000001
    kernel: 3 | kernel: 99999
    channels: 4 | channels: 16000
    channels: 4 | channels: 40000000000000000000000
    sample_rate: 8000 | sample_rate: 8000000000000
    frame_ms: 25.0 | frame_ms: 1e+12
    shift_ms: 10.0 | shift_ms: 1e+12
    mels: 20 | mels: 20000000000
    mels: 20 | mels: 500
    chunk: null | chunk: {frames: 1000000000000, left: 1}
"""  # beyond all bounds, and within those of a setting


@each("old, new", rows(HUGE))
def test_a_strangers_sizes_take_no_memory(folder, old, new):
    change(folder / CONFIG, old, new)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusal(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000  # kB


def test_a_training_larger_than_the_memory_is_refused(made):
    sizes = "model.d_model=15999", "model.ff=200000", "model.layers=200"
    settings = experiment(made, *sizes, name="lm")
    refused("model: its training takes more than .* fewer layers", build, settings)


def header(text, length=0):
    """A file of weights that begins with this."""
    return struct.pack("<Q", length or len(text)) + text


SHAPE = b'{"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4]}}'
HEADERS = {
    "length of 2^63": header(b"{}", 2**63),
    "length of a gigabyte": header(b"{}", 10**9),
    "depth": header(b"[" * 200_000),
    "no mapping": header(b"[]"),
    "a shape of 2^62": header(SHAPE),
    "nothing": b"",
    "a byte": b"\x05",
}


@each("case", HEADERS)
def test_headers_of_weights(folder, case):
    (folder / WEIGHTS).write_bytes(HEADERS[case])
    for refuse in (recognizer.load, accept):
        assert refusal(folder, refuse).startswith(f"{folder / WEIGHTS}: damaged")


WEIGHT = "model.ctc_out.weight"
KEY, QUERY = (f"model.encoder.layers.0.attention.{name}.weight" for name in ("key", "query"))
CHANGES = {  # of the header
    "half the bits": lambda header: {
        WEIGHT: header[WEIGHT] | {"dtype": "BF16", "shape": [header[WEIGHT]["shape"][0], 24]}
    },
    "twice the same": lambda header: {WEIGHT: header[BIAS]},
    "one more, of no bytes": lambda header: {
        "stranger": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    },
    "renamed": lambda header: {KEY: header[QUERY], QUERY: header[KEY]},
}


@each("case", CHANGES)
def test_a_header_that_says_something_else(folder, case):
    content = (folder / WEIGHTS).read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    told = json.loads(content[8:end])
    told |= CHANGES[case](told)
    (folder / WEIGHTS).write_bytes(header(json.dumps(told).encode()) + content[end:])
    line = refusal(folder)  # damaged, or doesn't fit
    assert line.startswith(f"{folder / WEIGHTS}: d")


# ---- somebody's folder as output


@each("name", ["a.txt", "config.yaml", ".profile", "checkpoints/x", "run.json/x", ".stamp.json"])
def test_a_folder_with_others_files_is_not_taken_over(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    where = tmp_path / name.split("/")[0]
    refused(f"out: {tmp_path}: .*{where}; choose another out=", check_folder, tmp_path)


def test_a_trainings_folder_and_an_empty_one_are_taken(tmp_path):
    """So is one with what systems leave, what logs make, and a run that ended before it began."""
    check_folder(tmp_path / "new")
    nobodys = [".lock", ".partial-12-probe", ".DS_Store", "train.log", "job-17.out", ".nfs0001"]
    for names in ([], nobodys, ["run.json", "anything"]):
        for name in names:
            (tmp_path / name).touch()
        check_folder(tmp_path)
