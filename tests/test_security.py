"""Prove that SECURITY.md names tests that exist, and what no other test shows of its promises."""

import json
import re
from pathlib import Path

import pytest

from asr.audio import load as audio
from asr.data import manifest
from asr.errors import UserError

ROOT = Path(__file__).parents[1]


def test_each_promise_names_tests_that_exist():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`tests/(test_\w+\.py)::(test_\w+)`", text)
    assert len(named) > 15
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (file, test)
    promised = text.partition("## Archives")[2].partition("## Not promised")[0]
    for promise in re.split(r"^- ", promised, flags=re.MULTILINE)[1:]:
        assert "::test_" in promise, promise


@pytest.mark.parametrize("kind", ["command", "url", "memory", "shar", "file"])
def test_a_manifest_runs_no_command(tmp_path, kind):
    """lhotse's own kinds of source, one of which is a command line."""
    line = manifest.Utterance("a", "/a.wav", 16000, 16000, 1, 0.0, 1.0, "GO").line()
    line["recording"]["sources"][0] |= {"type": kind, "source": f"touch {tmp_path}/trace; echo |"}
    (tmp_path / "x.jsonl").write_text(json.dumps(line))
    with pytest.raises(UserError):
        for utterance in manifest.read(tmp_path / "x.jsonl"):
            audio.load(utterance.path, 16000)
    assert not (tmp_path / "trace").exists()
