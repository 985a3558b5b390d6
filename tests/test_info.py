"""asr-info says what a thing is: the things are made here, by the toolkit or by hand, so that each fact is known.

Bad input of it stands in bad_inputs/info.yaml.
"""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from tones import CONFIG, RATE, write_corpus

from asr import config, tasks
from asr.cli.info import main
from asr.data import manifest
from asr.data.prepare import prepare
from asr.errors import UserError
from asr.info.folders import Finding, printable
from asr.info.look import look, table_kind
from asr.stamp import Stamp
from asr.text import kneser_ney, tokenizer
from asr.training.build import build

LM = """
out: {root}/lm
seed: 3
tokenizer: {root}/tokenizer
data: {{train: text.txt, dev: text.txt, batch_tokens: 200}}
model: {{kind: lm, d_model: 16, layers: 1, heads: 2, ff: 32, dropout: 0.0}}
optimizer: {{kind: adamw, lr: 4e-3}}
schedule: {{kind: cosine, warmup: 2}}
training: {{epochs: 1}}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A corpus, its manifests, tokenizer, models of random weights, an n-gram model, texts."""
    root = tmp_path_factory.mktemp("info")
    write_corpus(root / "corpus", {"train": 6, "dev": 4})
    prepare("tsv", root / "corpus", root / "data", shar=True)
    tokens = tokenizer.train("characters", ["LOW MID HIGH"])
    tokens.save(root / "tokenizer")
    (root / "x.yaml").write_text(CONFIG.format(root=root))
    (root / "lm.yaml").write_text(LM.format(root=root))
    sentences = [tokens.encode(text) for text in ("LOW MID", "HIGH LOW MID", "MID")]
    kneser_ney.write_arpa(
        root / "lm.arpa.gz", kneser_ney.estimate(sentences, tokens.vocabulary, 2), tokens.symbols()
    )
    kneser_ney.write_arpa(
        root / "lm.arpa", kneser_ney.estimate(sentences, tokens.vocabulary, 2), tokens.symbols()
    )
    for name in ("x", "lm"):
        settings = config.load(tasks.Experiment, root / f"{name}.yaml")
        model = build(settings)
        model.save(settings.out, config.dump(settings))
        (root / f"{name}.count").write_text(str(sum(p.numel() for p in model.parameters())))
    facts = {"asr": "0.1.0", "torch": "2.14.1", "commit": "1234567", "longest_seconds": 1.25}
    (root / "model/versions.json").write_text(json.dumps(facts))
    lines = [
        {"kind": "train", "loss": 9.0},
        {"kind": "dev", "wer": 0.5, "loss": 1.5},
        {"kind": "candidate", "name": "the best", "chosen": True, "wer": 0.25, "loss": 1.25},
        {"kind": "candidate", "name": "the last", "chosen": False, "wer": 0.75, "loss": 1.0},
    ]
    (root / "model/metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def facts(path, *names):
    """Some facts of what a path is."""
    found = look(str(path))
    return found.kind, *(found.facts.get(name) for name in names)


def refused(path):
    with pytest.raises(UserError) as error:
        look(str(path))
    return str(error.value)


def copy(root, tmp_path):
    """A copy of the model folder."""
    import shutil

    shutil.copytree(root / "model", tmp_path / "model")
    return tmp_path / "model"


def test_a_recognizer(root):
    kind, parameters, encoder, tokens, rate, heard, dev = facts(
        root / "model",
        "parameters",
        "encoder",
        "tokenizer",
        "sample_rate_hz",
        "longest_heard_s",
        "dev",
    )
    assert kind == "model folder, a recognizer" and parameters == int(
        (root / "x.count").read_text()
    )
    assert encoder == {"kind": "transformer", "layers": 2, "d_model": 32, "heads": 2, "ff": 64}
    assert tokens.startswith("characters, 11 ids") and (rate, heard) == (RATE, 1.25)
    assert dev == {"wer": 0.25, "loss": 1.25}  # of the weights that became the model
    assert look(str(root / "model")).facts["trained_on"] == f"{root}/data/train.jsonl.gz"


def test_whether_a_training_is_finished(root, tmp_path):
    folder = copy(root, tmp_path)
    assert "isn't finished" in look(str(folder)).facts["state"]
    Stamp(folder, "asr-train", {}, []).write()
    assert look(str(folder)).facts["state"] == "finished"
    (folder / "model.safetensors").unlink()
    assert "model.safetensors: missing" in refused(folder)
    (folder / "run.json").write_text("{}")
    assert look(str(folder)).kind == "training of a recognizer without weights yet"


def test_a_language_model(root):
    kind, parameters, layers = facts(root / "lm", "parameters", "layers")
    assert kind == "model folder, a language model" and parameters == int(
        (root / "lm.count").read_text()
    )
    assert layers["d_model"] == 16


def test_a_model_with_the_tokenizer_of_another(root, tmp_path):
    folder = copy(root, tmp_path)
    tokenizer.train("characters", ["AB"]).save(folder)
    assert "tokenizer.json: has 4 ids, the weights have 11" in refused(folder)


def test_tokenizers(root, tmp_path):
    kind, size, tokens = facts(root / "tokenizer", "kind_and_size", "tokens")
    assert (kind, tokens) == ("tokenizer", "▁ D G H I L M O W") and size.startswith(
        "characters, 11 ids"
    )
    tokenizer.train("bpe", ["LOW MID HIGH"] * 9, 16).save(tmp_path)
    assert look(str(tmp_path)).facts["kind_and_size"].startswith("bpe, 16 ids")
    assert look(str(tmp_path / "bpe.model")).kind == "tokenizer"


def test_a_manifest(root):
    listed = list(manifest.read(root / "data/train.jsonl.gz"))
    found = look(str(root / "data/train.jsonl.gz"))
    assert found.kind == "manifest" and found.facts == {
        "utterances": 6,
        "hours": round(sum(u.duration for u in listed) / 3600, 3),
        "longest_s": round(max(u.duration for u in listed), 2),
        "rates_hz": [RATE],
        "channels": [1],
        "speakers": 4,
        "with_text": 6,
        "recordings_in": ["files"],
        "first_recording": str(root / "corpus/train000.wav"),
        "first_is_there": True,
    }
    assert facts(root / "data/train.shar.jsonl.gz", "recordings_in", "first_is_there")[1:] == (
        ["Shar"],
        True,
    )
    kind, manifests, made_by, made_of = facts(root / "data", "manifests", "made_by", "made_of")
    assert kind == "folder of manifests" and len(manifests) == 4
    assert (made_by, made_of) == ("asr-prepare", str(root / "corpus"))
    assert look(str(root / "data/train.shar")).kind == "folder of manifests"  # its cuts


def test_a_manifest_whose_recordings_have_gone(root, tmp_path):
    moved = [
        u.__class__(**{**u.__dict__, "path": "/gone.wav"})
        for u in manifest.read(root / "data/dev.jsonl.gz")
    ]
    manifest.write(tmp_path / "dev.jsonl.gz", moved)
    assert facts(tmp_path / "dev.jsonl.gz", "first_is_there", "first_recording")[1:] == (
        False,
        "/gone.wav",
    )


@pytest.mark.parametrize("name", ["lm.arpa", "lm.arpa.gz"])
def test_an_n_gram_model(root, tmp_path, name):
    kind, order, counts, first = facts(root / name, "order", "ngrams", "first_words")
    assert kind == "n-gram language model (ARPA)" and order == len(counts) == 2 and counts[0] == 12
    assert first.startswith("<unk> ▁ D G")


def test_an_n_gram_model_that_is_cut(root, tmp_path):
    (tmp_path / "a.arpa").write_bytes((root / "lm.arpa").read_bytes()[:-20])
    assert "a.arpa: truncated" in refused(tmp_path / "a.arpa")


def test_recordings(tmp_path):
    soundfile.write(tmp_path / "a.flac", np.zeros((8000, 2)), 16000)
    assert facts(tmp_path / "a.flac", "rate_hz", "channels", "seconds") == (
        "recording",
        16000,
        2,
        0.5,
    )
    assert "FLAC" in look(str(tmp_path / "a.flac")).facts["format"]
    os.rename(tmp_path / "a.flac", tmp_path / "without")  # known by its first bytes
    assert look(str(tmp_path / "without")).kind == "recording"


def test_a_folder_of_recordings(root):
    assert facts(root / "corpus", "files") == ("folder of sound files", 10)


def test_texts(tmp_path):
    cases = {
        "LOW MID\n\nHIGH\n": ("text", 3, 3, 1),
        "a\tLOW MID\nb\t\n": ("texts with ids (id<TAB>text), as written by asr-decode", 2, 2, 1),
        "a\tLOW\nMID\n": ("text with tabs in 1 of 2 lines", 2, 2, 0),
        "id\tpath\ttext\na\ta.wav\tLOW\n": ("table of recordings, for asr-prepare tsv", 2, None, 0),
    }
    for content, (kind, lines, words, empty) in cases.items():
        (tmp_path / "t").write_text(content)
        found = look(str(tmp_path / "t"))
        assert (found.kind, found.facts["lines"], found.facts["without_text"]) == (
            kind,
            lines,
            empty,
        )
        assert words in (None, found.facts["words"])
    (tmp_path / "t.gz").write_bytes(gzip.compress("ÄÖ\n".encode()))
    assert facts(tmp_path / "t.gz", "characters") == ("text", 2)
    assert table_kind(b"client_id\tpath\tsentence\n", 1, 1) == "table of Common Voice"


def test_a_text_that_is_no_utf8_further_on(tmp_path):
    (tmp_path / "t").write_bytes(b"LOW\n" * 3000 + b"\xff\n")
    assert "t:3001: not UTF-8 text (byte 1 of the line)" in refused(tmp_path / "t")


def test_other_files(root, tmp_path):
    assert facts(root / "x.yaml", "model", "encoder") == (
        "configuration of asr-train",
        "hybrid",
        "transformer",
    )
    kind, parameters, types = facts(root / "model/model.safetensors", "parameters", "types")
    assert (
        kind == "weights (safetensors)"
        and parameters == int((root / "x.count").read_text())
        and types == ["F32"]
    )
    kind, by, inputs = facts(root / "data/.stamp.json", "command", "inputs")
    assert (kind, by, inputs) == ("stamp of finished work", "asr-prepare", 0)


def test_what_is_nothing_names_what_is_near(root, tmp_path):
    assert "did you mean 'tokenizer'?" in refused(root / "tokenzier")
    (tmp_path / "run/model").mkdir(parents=True)
    (tmp_path / "run/model/config.yaml").write_text("")
    assert f"it holds model; did you mean {tmp_path}/run/model?" in refused(tmp_path / "run")


def test_one_bad_of_several(root, tmp_path, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--json", str(root / "lm.arpa"), str(tmp_path / "gone"), str(root / "tokenizer")])
    said = capsys.readouterr()
    assert (
        caught.value.code == 3
        and "1 of 3 couldn't be described" in said.err
        and f"{tmp_path}/gone: no such" in said.err
    )
    assert [json.loads(line)["kind"] for line in said.out.splitlines()] == [
        "n-gram language model (ARPA)",
        "tokenizer",
    ]
    with pytest.raises(SystemExit) as caught:
        main([str(tmp_path / "gone"), str(tmp_path / "gone too")])
    assert caught.value.code == 2


def test_a_terminal_gets_no_commands():
    assert printable("a\x1b[2J\u202eb\udcff ä") == "a\\x1b[2J\\u202eb\\udcff ä"
    finding = Finding("\x1b", "text", {"first": "\x07", "list": ["\x9b"], "dict": {"\x1b": 1}})
    assert (
        "\x1b" not in finding.text()
        and "\x07" not in finding.text()
        and "\x9b" not in finding.text()
    )


def test_a_person_reads_numbers(capsys):
    text = Finding(
        "m", "model", {"parameters": 1234567, "none": None, "there": True, "wer": 0.1234567}
    ).text()
    assert text == "m: model\n  parameters  1,234,567\n  there       yes\n  wer         0.1235"


def test_accepting(monkeypatch, capsys):
    monkeypatch.setattr(
        "asr.models.folder.accept", lambda path: ["config.yaml"] * (path == "a"), raising=False
    )
    main(["--accept", "a", "b"])
    said = capsys.readouterr().err
    assert (
        "a: accepted, with changes to config.yaml" in said
        and "b: accepted, nothing had changed" in said
    )


def test_it_is_told_without_pytorch(root):
    paths = [
        str(root / name)
        for name in ("model", "lm", "tokenizer", "data", "lm.arpa", "corpus/train000.wav")
    ]
    script = "import sys; from asr.cli.info import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script, *paths], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("\n\n") == len(paths) - 1
