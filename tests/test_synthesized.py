"""Prove the laws of both synthesized corpora, recipes/mini and recipes/aishell: splits, seeds, stops, what is lacking.

The texts of the full corpora are planned without sound; the sound is that of corpora of 12 utterances.
"""

import hashlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import soundfile

pytest.importorskip(
    "espeakng_loader", reason="the corpora need espeak-ng: pip install espeakng-loader"
)

RECIPES = Path(__file__).parents[1] / "recipes"
KINDS = {
    "mini": ("grammar", "mini", "word [A-Z']+ occurs \\d times in training, not 10"),
    "aishell": ("mandarin", "", "character \\w+ occurs \\d times in training, not 5"),
}
HASHES = """
import hashlib, synthesize as m
for utterances in reversed(m.plan(**{}).values()):
    for u in reversed(utterances):
        print(u.id, hashlib.sha256(m.recording(u, 1).tobytes()).hexdigest())
"""


def samples(out):
    sounds = sorted([*out.rglob("*.flac"), *out.rglob("*.wav")])
    return {path.stem: soundfile.read(path, dtype="int16")[0].tobytes() for path in sounds}


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    """A corpus: its recipe's modules, the plan of the whole, a tiny one in a folder."""
    folder = RECIPES / request.param
    sys.path[:0] = [str(folder), str(RECIPES)]
    grammar, suffix, lacking = KINDS[request.param]
    spec = importlib.util.spec_from_file_location("_", folder / "synthesize.py")
    corpora = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(corpora)
    splits = [f"{split}-{suffix}".strip("-") for split in ("dev", "test")]
    tiny = {"hours": 0.004, "utterances": dict(zip(splits, (3, 4), strict=True)), "coverage": 0}
    out = tmp_path_factory.mktemp("tiny")
    corpora.synthesize(out, **tiny)
    grammar, plan = importlib.import_module(grammar), corpora.plan()
    facts = {"grammar": grammar, "corpora": corpora, "lacking": lacking, "folder": folder}
    yield SimpleNamespace(plan=plan, splits=splits, tiny=tiny, out=out, **facts)
    del sys.path[:2]


def test_splits_share_no_sentence_and_no_voice(made):
    voices = [{u.speaker.variant for u in utterances} for utterances in made.plan.values()]
    assert sum(map(len, voices)) == len(set.union(*voices))
    everything = [u for utterances in made.plan.values() for u in utterances]
    texts = {made.grammar.transcript(u.sentence) for u in everything}
    assert len({u.id for u in everything}) == len(texts) == len(everything)


def test_dev_and_test_do_not_depend_on_the_hours(made):
    other = made.corpora.plan(hours=0.1, coverage=0)
    assert all(other[split] == made.plan[split] for split in made.splits)
    with pytest.raises(ValueError, match=f"0.1 hours are too few: test's {made.lacking}"):
        made.corpora.plan(hours=0.1)


def test_the_same_seed_gives_the_same_samples_in_another_process_and_order(made):
    command, found = [sys.executable, "-c", HASHES.format(made.tiny)], samples(made.out)
    out = subprocess.check_output(command, cwd=made.folder, text=True)
    here = {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
    assert dict(line.split() for line in out.splitlines()) == here and len(here) == 12
    u = made.corpora.plan(**made.tiny)[made.splits[1]][0]
    assert made.corpora.recording(u, 2).tobytes() != made.corpora.recording(u, 1).tobytes()


def test_interrupted_work_continues_and_finished_work_rests(made, tmp_path):
    made.corpora.synthesize(tmp_path, **made.tiny)
    assert (tmp_path / "VERSION").read_text().startswith(made.corpora.VERSION)
    (tmp_path / "VERSION").rename(tmp_path / "VERSION.part")
    transcript = min(tmp_path.rglob("*trans*.txt"))
    transcript.unlink()
    lost, *_, kept = sorted([*tmp_path.rglob("*.flac"), *tmp_path.rglob("*.wav")])
    if lost.suffix == ".wav":  # a chapter of flac without its transcript is made anew as a whole
        lost = lost.rename(lost.with_name(lost.name + ".part"))
    lost.write_bytes(b"half a file")
    before = kept.stat().st_mtime_ns
    made.corpora.synthesize(tmp_path, **made.tiny)
    assert samples(tmp_path) == samples(made.out) and kept.stat().st_mtime_ns == before
    assert transcript.exists() and not list(tmp_path.rglob("*.part"))
    kept.unlink()
    made.corpora.synthesize(tmp_path, **made.tiny)
    assert not kept.exists()
    with pytest.raises(ValueError, match="choose another folder"):
        made.corpora.synthesize(tmp_path, **made.tiny, seed=2)


def test_a_missing_espeak_is_one_sentence_and_status_2(made, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    command = importlib.import_module("synthesis.corpus").command
    assert command(made.corpora.synthesize, "", 1.2, [str(tmp_path / "new")]) == 2
    message = capsys.readouterr().err
    assert "pip install espeakng-loader" in message and message.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_every_rule_of_the_grammar_is_used(made):
    rules = made.grammar.RULES
    named = {rule for texts in rules.values() for rule in re.findall(r"\{(\w+)\}", " ".join(texts))}
    assert named | {"sentence"} == set(rules)
