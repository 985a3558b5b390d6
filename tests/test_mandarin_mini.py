"""Prove that recipes/aishell synthesizes the Mandarin corpus it promises: texts, voices, layout, tones.

The texts of the full corpus are planned without sound; the sound is that of a corpus of 12 utterances. What a text
sounds like is judged by espeak-ng's own phonemes, tones by the pitch of one syllable in all four. What the synthesized
corpora share is proved by test_synthesized.py, and (noise, level, silence, voices that repeat themselves) by
test_mini.py.
"""

import importlib.util
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import soundfile

pytest.importorskip(
    "espeakng_loader", reason="the Mandarin corpus needs espeak-ng: pip install espeakng-loader"
)

RECIPE = Path(__file__).parents[1] / "recipes" / "aishell"
sys.path[:0] = [str(RECIPE), str(RECIPE.parent)]

import mandarin  # noqa: E402
from phonemes import phonemes  # noqa: E402
from synthesis.espeak import RATE, pronounce  # noqa: E402

from asr.data.corpora.aishell import SPLITS, read  # noqa: E402
from asr.text.normalize import join_han  # noqa: E402
from asr.text.units import HAN  # noqa: E402

spec = importlib.util.spec_from_file_location(
    "aishell_synthesize", RECIPE / "synthesize.py"
)  # mini has one, too
corpora = importlib.util.module_from_spec(spec)
spec.loader.exec_module(corpora)

TINY = {"hours": 0.004, "utterances": {"dev": 3, "test": 4}, "coverage": 0}


@pytest.fixture(scope="module")
def corpus():
    return corpora.plan()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    out = tmp_path_factory.mktemp("mandarin")
    corpora.synthesize(out, **TINY)
    return out


def sentences(corpus):
    return [u.sentence for utterances in corpus.values() for u in utterances]


def test_texts_are_words_of_han_or_latin_letters(corpus):
    for sentence in sentences(corpus):
        text = mandarin.transcript(sentence)
        assert re.fullmatch(f"([{HAN}]+|[A-Z]+)( ([{HAN}]+|[A-Z]+))*", text), text
        assert [x for x in sentence if x not in "， "] == [x for x in text if x != " "]
        assert 4 <= len(mandarin.units(text.replace(" ", ""))) <= 24


def test_sizes(corpus):
    assert [len(corpus[split]) for split in ("test", "dev")] == [240, 120]
    assert len(corpora.characters(corpus["train"])) >= 700
    topics = re.findall(r"\w+", " ".join(mandarin.RULES["sentence"]))
    assert len({pattern for topic in topics for pattern in mandarin.RULES[topic]}) >= 300
    latin = [x for x in corpora.characters(corpus["test"]) if x.isascii()]
    assert {"WIFI", "IPHONE"} & set(latin) and len(latin) >= 10


def test_training_has_each_character_of_dev_and_test_five_times(corpus):
    trained = corpora.characters(corpus["train"])
    rare = {
        x: trained[x] for x in corpora.characters(corpus["test"] + corpus["dev"]) if trained[x] < 5
    }
    assert corpora.COVERAGE == 5 and not rare


def misread(texts):
    """List the texts of which espeak-ng reads more than Latin words as English, or a letter A as the article."""
    latin = [len(re.findall("[A-Z]+(?: [A-Z]+)*", text)) for text in texts]
    said = phonemes(texts, "sit/cmn")
    return [
        text
        for text, n, x in zip(texts, latin, said, strict=True)
        if x.count("(en)") != n or "a#" in x
    ]


def alike(texts):
    """List the texts that sound like another one."""
    said = defaultdict(set)
    for text, sound in zip(texts, phonemes(texts, "sit/cmn"), strict=True):
        said[re.sub("[',|:;_ ]", "", sound)].add(text)
    return [text for group in said.values() if len(group) > 1 for text in sorted(group)]


def literals():
    """The alternatives of each rule that name no other rule."""
    return {
        name: [text for text in texts if "{" not in text] for name, texts in mandarin.RULES.items()
    }


def test_nothing_but_latin_words_is_read_as_english(corpus):
    texts = [*sentences(corpus), *(text for texts in literals().values() for text in texts)]
    assert misread(texts) == []
    faults = ["熊猫 爱 吃 竹子", "去 那儿", "A P 一六七"]
    assert misread([*faults, "打开 WIFI 和 GPS"]) == faults


def test_each_recording_has_one_right_transcript(corpus):
    """No two sentences, and no two alternatives of one place, have the same phonemes and tones."""
    assert [text for texts in literals().values() for text in alike(texts)] == []
    assert alike(sentences(corpus)) == []
    assert alike(["他 累 了", "她 累 了", "他 饿 了"]) == ["他 累 了", "她 累 了"]


def pitch(text, variant, sex):
    """Return the pitch in Hz of what's voiced in 40 ms, each 20 ms; the median of five neighbors."""
    x = pronounce(text, f"sit/cmn+{variant}", 120, 50, 50)
    frames = np.lib.stride_tricks.sliding_window_view(x, 640)[::320] * np.hanning(640)
    r = np.fft.irfft(np.abs(np.fft.rfft(frames[np.std(frames, 1) > 0.01], 2048)) ** 2)
    low, high = {"F": (120, 350), "M": (55, 170)}[sex]
    lags = np.arange(RATE // high, RATE // low)
    return np.median(
        np.lib.stride_tricks.sliding_window_view(RATE / lags[np.argmax(r[:, lags], 1)], 5), 1
    )


def toneless(variant, sex):
    """List which of the four tones can't be told from the pitch."""
    high, rising, dipping, falling = (pitch(x, variant, sex) for x in "妈麻马骂")
    told = {
        "level": np.ptp(high[len(high) // 2 :]) < 0.05 * high.mean(),
        "rising": rising[-1] > 1.05 * rising[0],
        "dipping": dipping.mean() < 0.97 * high.mean(),
        "falling": falling[-1] < 0.96 * falling.max() and falling.argmax() < falling.argmin(),
    }
    return [tone for tone, there in told.items() if not there]


def test_tones_are_in_the_pitch_of_every_voice(corpus):
    cast = {
        (u.speaker.variant, u.speaker.sex) for utterances in corpus.values() for u in utterances
    }
    assert {voice: faults for voice in sorted(cast) if (faults := toneless(*voice))} == {}
    assert all(toneless(*voice) for voice in (("aunty", "F"), ("Alex", "M")))


def test_layout_is_aishells(corpus, tiny):
    expected = corpora.plan(**TINY)
    assert {split: len({u.speaker for u in corpus[split]}) for split in SPLITS} == corpora.SPEAKERS
    found = read(tiny)
    assert list(found.splits) == list(SPLITS) and not found.notes
    for split, items in found.splits.items():
        said = {
            u.id: (join_han(mandarin.transcript(u.sentence)), f"S{u.speaker.id:04}")
            for u in expected[split]
        }
        assert {item.id: (item.text, item.speaker) for item in items} == said
        for item in items:
            assert re.fullmatch(rf"BAC009{item.speaker}W\d{{4}}", item.id)
            assert (
                item.path == tiny / "data_aishell" / "wav" / split / item.speaker / f"{item.id}.wav"
            )
            info = soundfile.info(item.path)
            assert (info.samplerate, info.subtype, info.channels, info.format) == (
                16000,
                "PCM_16",
                1,
                "WAV",
            )
            assert 0.8 < info.duration < 8
    lines = (
        (tiny / "data_aishell/transcript/aishell_transcript_v0.8.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    words = {
        u.id: mandarin.transcript(u.sentence)
        for utterances in expected.values()
        for u in utterances
    }
    assert dict(line.split(" ", 1) for line in lines) == words and len(lines) == 12
    assert not list(tiny.rglob("*.part"))
