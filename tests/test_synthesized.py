"""Prove that recipes/mini and recipes/aishell synthesize the corpora they promise: texts, voices, layout, samples.

The texts of the full corpora are planned without sound; the sound is that of corpora of 12 utterances. What a text
sounds like is judged by espeak-ng's own phonemes (for English letters, those of their names written out), tones by the
pitch of one syllable in all four, layouts by the toolkit's readers of LibriSpeech and AISHELL-1.
"""

import hashlib
import importlib.util
import re
import subprocess
import sys
import time
from collections import defaultdict
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from checkouts import ROOT

pytest.importorskip("espeakng_loader", reason="these need espeak-ng: pip install espeakng-loader")

RECIPES = ROOT / "recipes"
sys.path[:0] = [str(RECIPES / "mini"), str(RECIPES / "aishell"), str(RECIPES)]

import grammar  # noqa: E402
import mandarin  # noqa: E402
import more  # noqa: E402
from phonemes import phonemes  # noqa: E402
from synthesis.corpus import command  # noqa: E402
from synthesis.espeak import RATE, pronounce  # noqa: E402

from asr.data.corpora import aishell, librispeech  # noqa: E402
from asr.text.normalize import join_han  # noqa: E402
from asr.text.units import HAN  # noqa: E402


def module(folder):
    """synthesize.py of a recipe; both have one."""
    spec = importlib.util.spec_from_file_location(folder, RECIPES / folder / "synthesize.py")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


MINI, AISHELL = module("mini"), module("aishell")
KINDS = {
    MINI: (grammar, librispeech, "word [A-Z']+ occurs \\d times in training, not 10"),
    AISHELL: (mandarin, aishell, "character \\w+ occurs \\d times in training, not 5"),
}
HASHES = """
import hashlib, synthesize as m
for utterances in reversed(m.plan(**{}).values()):
    for u in reversed(utterances):
        print(u.id, hashlib.sha256(m.recording(u, 1).tobytes()).hexdigest())
"""


def recordings(out):
    return sorted([*out.rglob("*.flac"), *out.rglob("*.wav")])


def samples(out):
    return {path.stem: soundfile.read(path, dtype="int16")[0].tobytes() for path in recordings(out)}


@pytest.fixture(scope="module", params=KINDS, ids=["mini", "aishell"])
def made(request, tmp_path_factory):
    """A corpus: its recipe, the plan of the whole, a tiny one in a folder."""
    made = SimpleNamespace(corpora=request.param, out=tmp_path_factory.mktemp("tiny"))
    made.grammar, made.reader, made.lacking = KINDS[made.corpora]
    test, dev, _ = made.splits = [*(plan := made.corpora.plan())]
    made.plan, made.tiny = plan, {"hours": 0.004, "utterances": {dev: 3, test: 4}, "coverage": 0}
    made.synthesize = partial(made.corpora.synthesize, **made.tiny)
    made.synthesize(made.out)
    return made


@pytest.fixture(scope="module")
def english():
    return sum(MINI.plan().values(), [])


@pytest.fixture(scope="module")
def chinese():
    return AISHELL.plan()


# both


def test_splits_share_no_sentence_and_no_voice(made):
    voices = [{u.speaker.variant for u in utterances} for utterances in made.plan.values()]
    assert sum(map(len, voices)) == len(set.union(*voices))
    everything = sum(made.plan.values(), [])
    texts = {made.grammar.transcript(u.sentence) for u in everything}
    assert len({u.id for u in everything}) == len(texts) == len(everything)


def test_dev_and_test_do_not_depend_on_the_hours(made):
    other = made.corpora.plan(hours=0.1, coverage=0)
    assert all(other[split] == made.plan[split] for split in made.splits[:2])
    with pytest.raises(ValueError, match=f"0.1 hours are too few: test's {made.lacking}"):
        made.corpora.plan(hours=0.1)


def test_the_same_seed_gives_the_same_samples_in_another_process_and_order(made):
    command = [sys.executable, "-c", HASHES.format(made.tiny)]
    out = subprocess.check_output(command, cwd=RECIPES / made.corpora.__name__, text=True)
    here = {name: hashlib.sha256(data).hexdigest() for name, data in samples(made.out).items()}
    assert dict(map(str.split, out.splitlines())) == here and len(here) == 12
    u = made.corpora.plan(**made.tiny)[made.splits[0]][0]
    assert made.corpora.recording(u, 2).tobytes() != made.corpora.recording(u, 1).tobytes()


def test_interrupted_work_continues_and_finished_work_rests(made, tmp_path):
    made.synthesize(tmp_path)
    assert (tmp_path / "VERSION").read_text().startswith(made.corpora.VERSION)
    (tmp_path / "VERSION").rename(tmp_path / "VERSION.part")
    transcript = min(tmp_path.rglob("*trans*.txt"))
    transcript.unlink()
    lost, *_, kept = recordings(tmp_path)
    if lost.suffix == ".wav":  # a chapter of flac without its transcript is made anew as a whole
        lost = lost.rename(lost.with_name(lost.name + ".part"))
    lost.write_bytes(b"half a file")
    before = kept.stat().st_mtime_ns
    made.synthesize(tmp_path)
    assert samples(tmp_path) == samples(made.out) and kept.stat().st_mtime_ns == before
    assert transcript.exists() and not list(tmp_path.rglob("*.part"))
    kept.unlink()
    made.synthesize(tmp_path)
    assert not kept.exists()
    with pytest.raises(ValueError, match="choose another folder"):
        made.synthesize(tmp_path, seed=2)


def test_a_missing_espeak_is_one_sentence_and_status_2(made, tmp_path, monkeypatch, stderr):
    monkeypatch.setitem(sys.modules, "espeakng_loader", None)
    assert command(made.corpora.synthesize, "", 1.2, [str(tmp_path / "new")]) == 2
    message = stderr()
    assert "pip install espeakng-loader" in message and message.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_every_rule_of_the_grammar_is_used(made):
    rules = made.grammar.RULES
    named = {rule for texts in rules.values() for rule in re.findall(r"\{(\w+)\}", " ".join(texts))}
    assert named | {"sentence"} == set(rules)


def test_the_layout_is_that_of_the_real_corpus(made):
    """What the toolkit reads of it is what was planned; transcripts of AISHELL have spaces between words."""
    found = made.reader.read(made.out)
    assert not found.notes and sum(map(len, found.splits.values())) == len(samples(made.out)) == 12
    for split, utterances in made.corpora.plan(**made.tiny).items():
        items = {item.id: item for item in found.splits[split]}
        assert items.keys() == {u.id for u in utterances}
        for u in utterances:
            item, text = items[u.id], made.grammar.transcript(u.sentence)
            assert item.text == join_han(text)
            if made.corpora is AISHELL:
                speaker = f"S{u.speaker.id:04}"
                path = f"data_aishell/wav/{split}/{speaker}/BAC009{speaker}W\\d{{4}}.wav"
                [transcripts] = made.out.glob("data_aishell/transcript/aishell_transcript_v0.8.txt")
            else:
                speaker, chapter = str(u.speaker.id), item.path.parent.name
                name = f"{speaker}-{chapter}"
                path = f"LibriSpeech/{split}/{speaker}/{chapter}/{name}-\\d{{4}}.flac"
                transcripts = item.path.with_name(f"{name}.trans.txt")
                row = rf"(?m)^{speaker} *\| {u.speaker.sex} \| {split} *\|"
                assert re.search(row, (made.out / "LibriSpeech/SPEAKERS.TXT").read_text())
            assert f"{u.id} {text}" in transcripts.read_text("utf-8").splitlines()
            assert item.speaker == speaker and item.path.stem == u.id
            assert re.fullmatch(path, item.path.relative_to(made.out).as_posix())
            info = soundfile.info(item.path)
            assert (info.samplerate, info.subtype, info.channels) == (16000, "PCM_16", 1)
            assert info.format == item.path.suffix[1:].upper() and 0.6 < info.duration < 12
    assert not list(made.out.rglob("*.part"))


def test_silence_and_level(made):
    for data in samples(made.out).values():
        x = np.frombuffer(data, np.int16).astype(float)
        assert -20.1 < 20 * np.log10(np.abs(x).max() / 32768) < -0.9
        edge = np.sqrt(np.mean(x[:1600] ** 2)), np.sqrt(np.mean(x[-1600:] ** 2))
        assert max(edge) < np.sqrt(np.mean(x**2)) / 2
        assert np.any(x[:1600]), "digital silence"


# English


def test_english_texts_are_words_of_letters_and_apostrophes(english):
    for u in english:
        text = MINI.transcript(u.sentence)
        assert re.fullmatch(r"[A-Z']+( [A-Z']+){2,13}", text), text
        # what is spoken differs from it in letters' marks, punctuation and nothing else
        assert MINI.transcript(re.sub(r"\beh\b", "a", MINI.spoken(u.sentence))) == text


def test_mini_1_is_what_it_was(english):
    """Results name the corpus by its version; the hash was taken at commit 63b91a1, from the code of that time."""
    said = [(u.id, u.sentence, u.speaker.voice, u.speaker.pace) for u in english]
    found = hashlib.sha256(repr(said).encode()).hexdigest()
    assert found == "ecab58960014349b5ecef4df886ea317980f0d2bc4a222ca8bcf24588ce69ddd"


def test_more_utterances_are_new_sentences_in_the_voices_of_a_split(english, tmp_path):
    drawn = more.more("dev-mini", 40)
    [known, new] = ({MINI.transcript(u.sentence) for u in some} for some in (english, drawn))
    assert len(new) == 40 and not known & new
    assert len({u.id for u in [*english, *drawn]}) == len(english) + 40
    assert {u.speaker for u in drawn} == {u.speaker for u in MINI.plan()["dev-mini"]}
    command = [sys.executable, RECIPES / "mini/more.py", tmp_path, "--split", "dev-mini"]
    subprocess.run([*command, "--count", "9"], check=True)
    read = {(item.id, item.text) for item in librispeech.read(tmp_path).splits["dev-mini"]}
    assert read == {(u.id, MINI.transcript(u.sentence)) for u in drawn[:9]}
    assert subprocess.run([*command, "--count", "8"], check=False).returncode == 2


def test_every_voice_repeats_itself_after_others_and_at_another_second():
    """espeak-ng remembers what it said before, and seeds the breath of some voices by the clock's seconds."""
    cast = {who.variant: who for split in MINI.SPEAKERS for who in MINI.speakers(split, 1)}

    def say(who):
        return pronounce("eh b", who.voice, 170, 50, 50).tobytes()

    first = {name: say(who) for name, who in cast.items()}
    time.sleep(1.1)
    assert {name: say(cast[name]) for name in reversed(cast)} == first
    assert len(set(first.values())) == len(first)


def sounds(text, accent):
    """Return the phonemes of a text, without stress and pauses."""
    return re.sub(r"[',;:_]|a#r-", "", phonemes([text], accent)[0])


@pytest.mark.parametrize("accent", MINI.ACCENTS)
def test_letters_are_spelled_and_the_article_is_not(accent):
    names = "eh bee see dee ee jee aitch eye jay kay el em en oh pee cue ess tea yew vee"  # no word is like F, R
    for letter, name in zip("abcdeghijklmnopqstuv", names.split(), strict=True):
        said = sounds(f"ticket {MINI.spoken('=' + letter)} nine", accent)
        assert said == sounds(f"ticket {name} nine", accent), letter
    assert "eI" not in sounds("bring a cup", accent)
    assert sounds(MINI.spoken("press =a and =a"), accent).count("eI") == 2


# Mandarin


def sentences(corpus):
    return [u.sentence for u in sum(corpus.values(), [])]


def test_mandarin_texts_are_words_of_han_or_latin_letters(chinese):
    for sentence in sentences(chinese):
        text = mandarin.transcript(sentence)
        assert re.fullmatch(f"([{HAN}]+|[A-Z]+)( ([{HAN}]+|[A-Z]+))*", text), text
        assert re.sub("[， ]", "", sentence) == text.replace(" ", "")
        assert 4 <= len(mandarin.units(text.replace(" ", ""))) <= 24


def test_sizes_of_the_mandarin_corpus(chinese):
    """Training has each character of dev and test five times."""
    assert [len(chinese[split]) for split in ("test", "dev")] == [240, 120]
    speakers = {split: len({u.speaker for u in chinese[split]}) for split in chinese}
    assert speakers == AISHELL.SPEAKERS
    topics = re.findall(r"\w+", " ".join(mandarin.RULES["sentence"]))
    assert len({pattern for topic in topics for pattern in mandarin.RULES[topic]}) >= 300
    train, test = AISHELL.characters(chinese["train"]), AISHELL.characters(chinese["test"])
    latin = {x for x in test if x.isascii()}
    assert {"WIFI", "IPHONE"} & latin and len(latin) >= 10 and len(train) >= 700
    assert min(train[x] for x in test + AISHELL.characters(chinese["dev"])) >= AISHELL.COVERAGE == 5


def misread(texts):
    """List the texts of which espeak-ng reads more than Latin words as English, or a letter A as the article."""
    read = zip(texts, phonemes(texts, "sit/cmn"), strict=True)
    latin = re.compile("[A-Z]+(?: [A-Z]+)*")
    return [text for text, x in read if x.count("(en)") != len(latin.findall(text)) or "a#" in x]


def alike(texts):
    """List the texts that sound like another one."""
    said = defaultdict(set)
    for text, sound in zip(texts, phonemes(texts, "sit/cmn"), strict=True):
        said[re.sub("[',|:;_ ]", "", sound)].add(text)
    return [text for group in said.values() if len(group) > 1 for text in sorted(group)]


# the alternatives of each rule that name no other rule
LITERALS = [[text for text in texts if "{" not in text] for texts in mandarin.RULES.values()]


def test_nothing_but_latin_words_is_read_as_english(chinese):
    assert misread([*sentences(chinese), *sum(LITERALS, [])]) == []
    faults = ["熊猫 爱 吃 竹子", "去 那儿", "A P 一六七"]
    assert misread([*faults, "打开 WIFI 和 GPS"]) == faults


def test_each_recording_has_one_right_transcript(chinese):
    """No two sentences, and no two alternatives of one place, have the same phonemes and tones."""
    assert not any(map(alike, LITERALS)) and not alike(sentences(chinese))
    assert alike(["他 累 了", "她 累 了", "他 饿 了"]) == ["他 累 了", "她 累 了"]


def pitch(text, variant, sex):
    """Return the pitch in Hz of what's voiced in 40 ms, each 20 ms; the median of five neighbors."""
    windows = np.lib.stride_tricks.sliding_window_view
    x = pronounce(text, f"sit/cmn+{variant}", 120, 50, 50)
    frames = windows(x, 640)[::320] * np.hanning(640)
    r = np.fft.irfft(np.abs(np.fft.rfft(frames[np.std(frames, 1) > 0.01], 2048)) ** 2)
    low, high = {"F": (120, 350), "M": (55, 170)}[sex]
    lags = np.arange(RATE // high, RATE // low)
    return np.median(windows(RATE / lags[np.argmax(r[:, lags], 1)], 5), 1)


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


def test_tones_are_in_the_pitch_of_every_voice(chinese):
    cast = {(u.speaker.variant, u.speaker.sex) for u in sum(chinese.values(), [])}
    assert {voice: faults for voice in sorted(cast) if (faults := toneless(*voice))} == {}
    assert all(toneless(*voice) for voice in (("aunty", "F"), ("Alex", "M")))
