"""Prove that `import asr` is light, complete and silent, and that its calls give what the commands give."""

import json
import subprocess
import sys

import numpy as np
import pytest
import soundfile
import torch
from runs import assert_same, make_root, train

import asr
from asr.cli import decode
from asr.cli import train as commands


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A corpus and a model that was trained for one epoch: x/."""
    root = make_root(tmp_path_factory.mktemp("api"))
    train(root, root / "x", "training.epochs=1")
    return root


@pytest.fixture
def recognizer(root):
    return asr.load(root / "x", "cpu")


def python(code):
    """Run code in a fresh interpreter; what it printed."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "", done.stderr
    return done.stdout


def test_importing_it_imports_nothing_heavy():
    heavy = "{'torch', 'numpy', 'pydantic', 'yaml', 'soundfile', 'tqdm'}"
    assert python(f"import sys, asr; print({heavy} & set(sys.modules))") == "set()\n"


def test_every_public_name_is_there_and_listed():
    assert set(asr.__all__) <= set(dir(asr)) and all(getattr(asr, name) for name in asr.__all__)
    with pytest.raises(AttributeError, match="no attribute 'transcibe'"):
        asr.transcibe  # noqa: B018


def test_one_recording_is_transcribed_as_by_the_command(root, recognizer, tmp_path):
    path, out = root / "corpus/dev000.wav", tmp_path / "out.json"
    decode.main(f"--model {root}/x --device cpu --beam 4 --json {out} {path}".split())
    expected = json.loads(out.read_text())
    found = recognizer.transcribe(path, beam=4)
    assert isinstance(found, asr.Transcript) and found.as_json() == expected
    (other,) = asr.transcribe_all(root / "x", path, beam=4)
    assert asr.transcribe(root / "x", path, beam=4).as_json() == other.as_json() == expected
    assert found.text == found.nbest[0].text == " ".join(part.text for part in found.segments)


def test_samples_are_transcribed_as_their_file(root, recognizer):
    expected = recognizer.transcribe(root / "corpus/dev001.wav")
    samples, rate = soundfile.read(root / "corpus/dev001.wav", dtype="float32")
    for audio in (samples, torch.from_numpy(samples), samples.astype(np.float64)):
        found = asr.transcribe(recognizer, audio, rate)
        assert found.nbest == expected.nbest and found.duration == expected.duration
    faster = asr.transcribe(recognizer, samples, 2 * rate)
    assert faster.duration == pytest.approx(expected.duration / 2, abs=1e-3)


def test_many_recordings_are_transcribed_in_their_order_as_each_alone(root, recognizer):
    paths = [root / f"corpus/dev00{n}.wav" for n in (3, 0, 2)]
    found = list(asr.transcribe_all(recognizer, paths, mode="ctc"))
    alone = [recognizer.transcribe(path, mode="ctc").text for path in paths]
    assert [(one.id, one.text) for one in found] == [*zip(map(str, paths), alone, strict=True)]
    assert len(list(asr.transcribe_all(recognizer, root / "corpus", mode="ctc-greedy"))) == 48


@pytest.mark.parametrize(
    "audio, rate, fact",
    [
        ("corpus", None, "48 recordings"),
        ("corpus/absent.wav", None, "absent.wav"),
        (np.zeros((2, 8000), np.float32), None, "(2, 8000)"),
        (np.zeros(8000, np.int16), None, "int16"),
        (np.full(8000, np.nan, np.float32), None, "NaN"),
        (np.full(8000, 1e300), None, "audio: got NaN or infinite"),
        (np.zeros(10, np.float32), None, "10 samples"),
        (np.zeros(8000), 0, "sample_rate: got 0 Hz"),
    ],
)
def test_a_mistake_is_a_user_error_that_names_it(root, recognizer, audio, rate, fact):
    with pytest.raises(asr.UserError) as caught:
        recognizer.transcribe(root / audio if isinstance(audio, str) else audio, rate)
    assert fact in str(caught.value)


def test_the_library_is_silent_until_its_logger_is_asked(root):
    model, audio = str(root / "x"), str(root / "corpus/dev000.wav")
    use = f"recognizer = asr.load({model!r}, 'cpu'); recognizer.transcribe({audio!r})"
    assert python(f"import asr; {use}") == ""
    configured = "import logging, sys; logging.basicConfig(stream=sys.stdout, level=logging.INFO)"
    told = python(f"{configured}; import asr; logging.getLogger('asr').info('told')")
    assert told == "INFO:asr:told\n"


def test_a_training_is_one_call_and_the_same_as_by_the_command(root, tmp_path):
    settings = ["training.epochs=1", "training.processes=1"]
    made = asr.train(root / "x.yaml", f"out={tmp_path}/called", *settings)
    commands.main(["--config", str(root / "x.yaml"), f"out={tmp_path}/commanded", *settings])
    assert isinstance(made, asr.Recognizer)
    assert_same(made.state_dict(), asr.load(tmp_path / "commanded", "cpu").state_dict())
    weights = tmp_path / "called/model.safetensors"
    written = weights.stat().st_mtime_ns
    again = asr.train(root / "x.yaml", f"out={tmp_path}/called", *settings)
    assert_same(again.state_dict(), made.state_dict())
    assert weights.stat().st_mtime_ns == written
    with pytest.raises(asr.UserError, match=r"training\.epoch: no such setting"):
        asr.train(root / "x.yaml", "training.epoch=3")


def test_an_evaluation_is_one_call(root, tmp_path):
    (tmp_path / "hyp.txt").write_text("".join(f"dev00{n}\tLOW\n" for n in range(8)))
    report = asr.score(root / "data/dev.jsonl.gz", tmp_path / "hyp.txt")
    assert set(report.scores) == {"word", "char"}
    assert report.scores["word"].utterances["dev000"].reference > 0
