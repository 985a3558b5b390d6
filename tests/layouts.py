"""Corpora of known content in their own layouts, for tests of what asr-prepare makes of them and what it refuses."""

import numpy as np
import pytest
import soundfile

from asr.data import manifest
from asr.data.prepare import prepare
from asr.errors import UserError


def sound(path, seconds=0.5, rate=16000, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.full(round(seconds * rate), 0.1), rate, **options)


def texts(made, split):
    return {utterance.id: utterance.text for utterance in manifest.read(made.manifests[split])}


def librispeech(folder, subsets=("train-mini", "dev-clean")):
    for n, subset in enumerate(subsets):
        chapter = folder / subset / str(10 + n) / "7"
        for k in range(2):
            sound(chapter / f"{10 + n}-7-000{k}.flac", 0.5 + k)
        lines = [f"{10 + n}-7-000{k} WORD  NUMBER {k}\n" for k in (0, 1)]
        (chapter / f"{10 + n}-7.trans.txt").write_text("".join(lines))
    return folder


def aishell(folder):
    for name in ("train/S0002/S0002W1", "train/S0002/S0002W2", "train/S0002/S0002W9"):
        sound(folder / f"data_aishell/wav/{name}.wav")
    sound(folder / "data_aishell/wav/test/S0003/S0003W1.wav")
    transcript = folder / "data_aishell/transcript/aishell_transcript_v0.8.txt"
    transcript.parent.mkdir()
    lines = "S0002W1 而 对 楼市\nS0002W2 我 用 IPHONE 六\nS0003W1 甚至\n"
    transcript.write_text(lines, "utf-8")
    return folder


def an4(folder, speakers=12, each=10):
    (folder / "etc").mkdir(parents=True)
    for split, form in (("train", "<s> {} </s> ({})\n"), ("test", "{} ({})\n")):
        ids = [f"an{split}{s}_{n}-f{s:02d}-b" for s in range(speakers) for n in range(each)]
        files = [f"an4_clstk/{split}{name.split('-')[1]}/{name}" for name in ids]
        (folder / f"etc/an4_{split}.fileids").write_text("".join(f"{file}\n" for file in files))
        (folder / f"etc/an4_{split}.transcription").write_text(
            "".join(form.format("RUBOUT G M", i) for i in ids)
        )
        for file in files:
            sound(folder / "wav" / f"{file}.sph", 0.1, format="NIST")
    return folder


def tsv(folder, name, lines, sounds=("a", "b", "c")):
    for stem in sounds:
        sound(folder / "clips" / f"{stem}.wav")
    (folder / name).write_text("\n".join([*lines, ""]), encoding="utf-8", errors="surrogateescape")
    return folder / name


def refused(corpus, source, *facts, **options):
    """The corpus is refused with these facts, and nothing is written."""
    out = source.with_name(f"{source.name}-out")
    with pytest.raises(UserError) as error:
        prepare(corpus, source, out, **options)
    assert all(fact in str(error.value) for fact in facts), error.value
    assert not out.exists()
