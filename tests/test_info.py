"""asr-info says what a thing is: the things are made here, by the toolkit or by hand, so that each fact is known.

Bad input of it stands in bad_inputs/info.yaml.
"""

import gzip
import json
import shutil
import subprocess
import sys
from string import Template

import numpy as np
import pytest
import soundfile
import yaml
from refusals import refused
from runs import status_of
from small import rows
from tones import CONFIG, write_corpus

from asr import config, tasks
from asr.cli.info import main
from asr.data import manifest
from asr.data.prepare import prepare
from asr.info.folders import Finding, printable
from asr.info.look import look
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


FACTS = """  # of what the fixture makes: path → what asr-info says of it, among other facts
model:
  kind: model folder, a recognizer
  parameters: $model
  encoder: {kind: transformer, layers: 2, d_model: 32, heads: 2, ff: 64}
  tokenizer: characters, 11 ids with blank and <sos/eos>
  sample_rate_hz: 8000
  longest_heard_s: 1.25
  dev: {wer: 0.25, loss: 1.25}  # of the weights that became the model
  trained_on: $root/data/train.jsonl.gz
lm:
  kind: model folder, a language model
  parameters: $lm
  layers: {kind: lm, layers: 1, d_model: 16, heads: 2, ff: 32}
tokenizer:
  kind: tokenizer
  kind_and_size: characters, 11 ids with blank and <sos/eos>
  tokens: ▁ D G H I L M O W
data/train.jsonl.gz:
  kind: manifest
  utterances: 6
  hours: $hours
  longest_s: $longest
  rates_hz: [8000]
  channels: [1]
  speakers: 4
  with_text: 6
  recordings_in: [files]
  first_recording: $root/corpus/train000.wav
  first_is_there: true
data/train.shar.jsonl.gz: {kind: manifest, recordings_in: [Shar], first_is_there: true}
data:
  kind: folder of manifests
  manifests: [dev.jsonl.gz, dev.shar.jsonl.gz, train.jsonl.gz, train.shar.jsonl.gz]
  made_by: asr-prepare
  made_of: $root/corpus
data/train.shar: {kind: folder of manifests}
data/.stamp.json: {kind: stamp of finished work, command: asr-prepare, inputs: 0}
corpus: {kind: folder of sound files, files: 10}
model.yaml: {kind: configuration of asr-train, model: hybrid, encoder: transformer}
model/model.safetensors: {kind: weights (safetensors), parameters: $model, types: [F32]}
lm.arpa: &arpa
  kind: n-gram language model (ARPA)
  order: 2
  ngrams: [12, 15]
  first_words: <unk> ▁ D G H I L M
lm.arpa.gz: *arpa
"""


METRICS = """\
{"kind": "train", "loss": 9.0}
{"kind": "dev", "wer": 0.5, "loss": 1.5}
{"kind": "candidate", "name": "the best", "chosen": true, "wer": 0.25, "loss": 1.25}
{"kind": "candidate", "name": "the last", "chosen": false, "wer": 0.75, "loss": 1.0}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A corpus, its manifests, tokenizer, models of random weights, an n-gram model."""
    root = tmp_path_factory.mktemp("info")
    write_corpus(root / "corpus", {"train": 6, "dev": 4})
    prepare("tsv", root / "corpus", root / "data", shar=True)
    tokens = tokenizer.train("characters", ["LOW MID HIGH"])
    tokens.save(root / "tokenizer")
    sentences = [tokens.encode(text) for text in ("LOW MID", "HIGH LOW MID", "MID")]
    model = kneser_ney.estimate(sentences, tokens.vocabulary, 2)
    for name in ("lm.arpa", "lm.arpa.gz"):
        kneser_ney.write_arpa(root / name, model, tokens.symbols())
    sizes = {}
    for name, text in {"model": CONFIG, "lm": LM}.items():
        (root / f"{name}.yaml").write_text(text.format(root=root))
        settings = config.load(tasks.Experiment, root / f"{name}.yaml")
        model = build(settings)
        model.save(settings.out, config.dump(settings))
        sizes[name] = sum(p.numel() for p in model.parameters())
    seconds = [u.duration for u in manifest.read(root / "data/train.jsonl.gz")]
    hours, longest = round(sum(seconds) / 3600, 3), round(max(seconds), 2)
    facts = Template(FACTS).substitute(sizes, root=root, hours=hours, longest=longest)
    (root / "facts.yaml").write_text(facts)
    (root / "model/versions.json").write_text('{"asr": "0.1.0", "longest_seconds": 1.25}')
    (root / "model/metrics.jsonl").write_text(METRICS)
    return root


@pytest.fixture
def copied(root, tmp_path):
    """A copy of the model folder."""
    return shutil.copytree(root / "model", tmp_path / "model")


def check(path, **facts):
    """A path has these facts among others."""
    found = look(str(path))
    found = {"kind": found.kind} | found.facts
    assert {name: found.get(name) for name in facts} == facts


@pytest.mark.parametrize("path", yaml.safe_load(FACTS))
def test_facts(root, path):
    check(root / path, **yaml.safe_load((root / "facts.yaml").read_text())[path])


def test_whether_a_training_is_finished(copied):
    assert "isn't finished" in look(str(copied)).facts["state"]
    Stamp(copied, "asr-train", {}, []).write()
    check(copied, kind="model folder, a recognizer", state="finished")
    (copied / "model.safetensors").unlink()
    refused("model.safetensors: missing", look, str(copied))
    (copied / "run.json").write_text("{}")
    check(copied, kind="training of a recognizer without weights yet")


def test_a_model_with_the_tokenizer_of_another(copied):
    tokenizer.train("characters", ["AB"]).save(copied)
    refused("tokenizer.json: has 4 ids, the weights have 11", look, str(copied))


def test_a_tokenizer_of_bpe(tmp_path):
    tokenizer.train("bpe", ["LOW MID HIGH"] * 9, 16).save(tmp_path)
    for path in (tmp_path, tmp_path / "bpe.model"):
        check(path, kind="tokenizer", kind_and_size="bpe, 16 ids with blank and <sos/eos>")


def test_a_manifest_whose_recordings_have_gone(tmp_path):
    path = tmp_path / "x.jsonl.gz"
    manifest.write(path, [manifest.Utterance("u", "/gone.wav", 8000, 8000, 1, 0.0, 1.0, "A")])
    check(path, kind="manifest", first_is_there=False, first_recording="/gone.wav")


def test_an_n_gram_model_that_is_cut(root, tmp_path):
    path = tmp_path / "a.arpa"
    path.write_bytes((root / "lm.arpa").read_bytes()[:-20])
    refused("a.arpa: truncated", look, str(path))


def test_a_recording_is_known_by_its_first_bytes(tmp_path):
    soundfile.write(tmp_path / "x", np.zeros((8000, 2)), 16000, format="FLAC")
    check(tmp_path / "x", kind="recording", rate_hz=16000, channels=2, seconds=0.5)
    assert "FLAC" in look(str(tmp_path / "x")).facts["format"]


TEXTS = r"""
    LOW MID\n\nHIGH\n | text | {lines: 3, words: 3, without_text: 1}
    a\tLOW MID\nb\t\n | texts with ids (id<TAB>text), as written by asr-decode | {lines: 2, words: 2, without_text: 1}
    a\tLOW\nMID\n | text with tabs in 1 of 2 lines | {lines: 2, words: 2, without_text: 0}
    id\tpath\ttext\na\ta.wav\tLOW\n | table of recordings, for asr-prepare tsv | {lines: 2, without_text: 0}
    client_id\tpath\tsentence\na\ta.mp3\tLOW\n | table of Common Voice | {lines: 2}
"""


@pytest.mark.parametrize("content, kind, facts", rows(TEXTS))
def test_texts(tmp_path, content, kind, facts):
    (tmp_path / "t").write_text(content.encode().decode("unicode_escape"))
    check(tmp_path / "t", kind=kind, **yaml.safe_load(facts))


def test_characters_of_a_text(tmp_path):
    (tmp_path / "t.gz").write_bytes(gzip.compress("ÄÖ\n".encode()))
    check(tmp_path / "t.gz", kind="text", characters=2)
    (tmp_path / "t").write_bytes(b"LOW\n" * 3000 + b"\xff\n")
    refused(r"t:3001: not UTF-8 text \(byte 1 of the line\)", look, str(tmp_path / "t"))


def test_what_is_nothing_names_what_is_near(root, tmp_path):
    refused(r"did you mean 'tokenizer'\?", look, str(root / "tokenzier"))
    (tmp_path / "run/model").mkdir(parents=True)
    (tmp_path / "run/model/config.yaml").touch()
    refused(rf"did you mean {tmp_path}/run/model\?", look, str(tmp_path / "run"))


def test_one_bad_of_several(root, tmp_path, capsys):
    gone = tmp_path / "gone"
    assert status_of(main, "--json", root / "lm.arpa", gone, root / "tokenizer") == 3
    said = capsys.readouterr()
    assert "1 of 3 couldn't be described" in said.err and f"{gone}: no such" in said.err
    kinds = [json.loads(line)["kind"] for line in said.out.splitlines()]
    assert kinds == ["n-gram language model (ARPA)", "tokenizer"]
    assert status_of(main, gone, gone) == 2


def test_a_terminal_gets_no_commands():
    assert printable("a\x1b[2J\u202eb\udcff ä") == "a\\x1b[2J\\u202eb\\udcff ä"
    facts = {"first": "\x07", "list": ["\x9b"], "dict": {"\x1b": 1}}
    assert not set(Finding("\x1b", "text", facts).text()) & set("\x1b\x07\x9b")


def test_a_person_reads_numbers():
    facts = {"parameters": 1234567, "none": None, "there": True, "wer": 0.1234567}
    shown = Finding("m", "model", facts).text()
    assert shown == "m: model\n  parameters  1,234,567\n  there       yes\n  wer         0.1235"


def test_accepting(copied, stderr):
    settings = copied / "config.yaml"
    settings.write_text(settings.read_text().replace("dropout: 0.05", "dropout: 0.1"))
    for says in ("accepted, with changes to config.yaml", "accepted, nothing had changed"):
        status_of(main, "--accept", copied)
        assert f"{copied}: {says}" in stderr()


def test_it_is_told_without_pytorch(root):
    names = ("model", "lm", "tokenizer", "data", "lm.arpa", "corpus")
    script = "import sys; from asr.cli.info import main; main(sys.argv[1:]); assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", script, *(str(root / name) for name in names)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("\n\n") == 5
