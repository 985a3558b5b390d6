"""Streams: however the samples are divided, and whoever else is read, what comes out is what the whole gives.

The recognizer is a real one with random weights, but for CTC's output layer: it is fitted so that each letter is a
tone, and silence the blank. So texts are known.
"""

import io
import itertools
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pysubs2
import pytest
import soundfile
import torch
import yaml
from partly import partly
from small import near, sizes

import asr
from asr.audio import live
from asr.audio.load import load, resample
from asr.cli import decode as command
from asr.cli.live import CLEAR
from asr.data.manifest import Utterance, write
from asr.errors import UserError
from asr.features.frontend import FrontendSettings
from asr.models.recognizer import Recognizer
from asr.text import tokenizer as tokenizers
from asr.transcript import Final, Partial
from asr.transcription.endpoints import EndpointOptions, after_silence, between
from asr.transcription.live import transcribe_live
from asr.transcription.options import SearchOptions
from asr.transcription.streams import Streams
from scripts import soak_live as soak
from scripts.bench import live as bench

RATE, SPACE = 8000, "_"
LETTERS = tokenizers.train("characters", ["ABCDE A"])
SOUNDS = dict(zip("ABCDE", LETTERS.encode("ABCDE"), strict=True))
SOUNDS |= {SPACE: LETTERS.encode("A A")[1], "-": 0}
TEXT = "--AB_CDA-------EB_D-----------C-C_A_E--"
HOW = SearchOptions(mode="ctc", beam=4)


def say(sounds, seconds=0.2, rate=RATE):
    """A tone for each letter, and noise that is as faint in every band at every rate."""
    t = np.arange(round(seconds * rate)) / rate
    tones = [np.sin(2 * np.pi * 250 * 1.5 ** SOUNDS[s] * t) * (s != "-") for s in sounds]
    noise = np.random.default_rng(len(sounds)).standard_normal(len(t) * len(sounds))
    faint = 1e-3 * (rate / RATE) ** 0.5
    return (0.3 * np.concatenate(tones) + faint * noise).astype(np.float32)


SIZES = (
    "both: {d_model: 32, layers: 2, heads: 2}, encoder: {channels: 32, chunk: {frames: 4, left: 4}}"
)
FEATURES = FrontendSettings(fbank={"sample_rate": RATE, "mels": 20})


@pytest.fixture(scope="module")
def recognizer():
    """Fit CTC's output layer to tones, by least squares."""
    torch.manual_seed(0)
    made = Recognizer(FEATURES, sizes(SIZES), LETTERS)
    draw = random.Random(0)
    sounds = "".join(draw.choices([*SOUNDS, *"----"], k=800))
    with torch.no_grad():
        waveform = torch.from_numpy(say(sounds))[None]
        H = made.eval().encode(waveform, torch.tensor([waveform.size(1)]))[0][0]
        ids = torch.tensor([SOUNDS[sounds[int((n + 1.5) / 5)]] for n in range(len(H))])
        wanted = 12.0 * torch.nn.functional.one_hot(ids, LETTERS.vocabulary)
        found = torch.linalg.lstsq(torch.nn.functional.pad(H, (0, 1), value=1.0), wanted).solution
        made.model.ctc_out.weight.copy_(found[:-1].T)
        made.model.ctc_out.bias.copy_(found[-1])
    made.longest = 20.0
    return made


def run(stream, waveform, cuts=()):
    """Push a waveform in portions that end at `cuts`."""
    events = [event for part in np.split(waveform, cuts) for event in stream.push(part)]
    return events + stream.finish()


def finals(events):
    return [event.segment.text for event in events if isinstance(event, Final)]


def numbers(event):
    """The numbers of an event, for a comparison; what else it has."""
    if isinstance(event, Partial):
        return (), event
    segment = event.segment
    best = segment.nbest[0]
    scores = [segment.confidence, best.score, *best.scores.values(), *best.confidences]
    words = [(w.text, w.start, w.end) for w in segment.words]
    facts = event.number, event.position, segment.text, segment.start, segment.end, words
    return [*scores, *(w.confidence for w in segment.words)], facts


def alike(one, other):
    for a, b in zip(one, other, strict=True):
        (scores, facts), (its_scores, its_facts) = numbers(a), numbers(b)
        assert facts == its_facts
        near(torch.tensor(scores), torch.tensor(its_scores), 1e-4)


def test_partials_become_finals_with_times(recognizer):
    events = run(Streams(recognizer, HOW).open(), say(TEXT))
    assert finals(events) == ["AB CDA", "EB D", "CC A E"] or finals(events) == [
        "AB CDA",
        "EB D",
        "C A E",
    ]
    first = [e for e in events if e.number == 0]
    assert [type(e) for e in first] == [Partial] * (len(first) - 1) + [Final]
    texts = [e.text for e in first[:-1]]
    assert all(b.startswith(a) for a, b in itertools.pairwise(texts))  # these tones are clear
    words = [w for e in events if isinstance(e, Final) for w in e.segment.words]
    starts = [TEXT.index(w) * 0.2 for w in ("AB_", "CDA", "EB_", "D----", "C-C", "A_E", "E--")]
    assert [w.start for w in words] == pytest.approx(starts, abs=0.09)


def cuttings(count, length):
    """Portions of one sample to some seconds."""
    for seed in range(count):
        draw, cuts = np.random.default_rng(seed), [0]
        longest = draw.choice([20, 300, 4000, 40_000])
        while cuts[-1] < length:
            cuts.append(cuts[-1] + int(draw.integers(1 if longest > 20 else 5, longest)))
        yield cuts[1:-1]


@pytest.mark.parametrize("count", [10, pytest.param(1000, marks=pytest.mark.slow)])
def test_any_cutting_gives_the_same(recognizer, count):
    waveform, streams = say(TEXT[:20]), Streams(recognizer, HOW)
    whole = run(streams.open(), waveform)
    for cuts in cuttings(count, len(waveform)):
        assert run(streams.open(), waveform, cuts) == whole  # to the bit: chunks are the same


@pytest.mark.parametrize("company", partly([7, 1, 31], 3))
def test_a_stream_in_company_is_as_if_alone(recognizer, company):
    draw = random.Random(company)
    texts = [
        "".join(draw.choices([*SOUNDS, *"-----"], k=draw.randint(2, 20))) for _ in range(company)
    ]
    alone = [run(Streams(recognizer, HOW).open(), say(text)) for text in [TEXT, *texts]]
    streams = Streams(recognizer, HOW)
    waiting, running, found = list(enumerate([TEXT, *texts])), {}, {}
    while waiting or running:
        if waiting and draw.random() < 0.5:  # streams come and go
            n, text = waiting.pop(0)
            running[n], found[n] = (streams.open(), say(text)), []
        for n, (stream, rest) in list(running.items()):
            size = draw.randint(0, 3000)
            stream.feed(rest[:size])
            running[n] = stream, rest[size:]
            if not len(rest):
                stream.end()
                del running[n]
            found[n].append(stream)
        streams.advance()
    for n, expected in enumerate(alone):
        alike(found[n][0].take(), expected)


def test_finals_are_what_the_search_finds_in_the_whole_encoded_at_once(recognizer, monkeypatch):
    joint = SearchOptions(ctc_weight=0.7, beam=4)
    waveform, streams, searched = say(TEXT), Streams(recognizer, joint), []
    search = streams.searcher.search

    def spy(H, H_lens):
        searched.append(H[0, : H_lens[0]])
        return search(H, H_lens)

    monkeypatch.setattr(streams.searcher, "search", spy)
    begin = 0.0
    for final in (e for e in run(streams.open(), waveform) if isinstance(e, Final)):
        part = torch.from_numpy(waveform[round(begin * RATE) :])[None]
        H, _ = recognizer.encode(part, torch.tensor([part.size(1)]))
        T = len(searched[final.number])
        near(searched[final.number], H[0, :T], 1e-5)
        [[best, *_]] = search(H[:, :T], torch.tensor([T]))
        assert best.tokens == final.segment.nbest[0].tokens
        assert best.score == pytest.approx(final.segment.nbest[0].score, abs=1e-4)
        begin = final.position
    assert len(searched) == 3


def test_a_stream_resumed_where_it_was_final_goes_on_alike(recognizer):
    waveform, streams = say(TEXT), Streams(recognizer, HOW)
    whole = run(streams.open(), waveform)
    first = next(event for event in whole if isinstance(event, Final))
    rest = waveform[round(first.position * RATE) :]
    resumed = run(streams.open(first.position, first.number + 1), rest)
    assert resumed == [event for event in whole if event.number > 0]


def test_speech_without_a_pause_is_cut_between_words_and_nothing_is_lost_or_doubled(recognizer):
    draw = random.Random(1)
    words = ["".join(draw.sample("ABCDE", draw.randint(2, 5))) for _ in range(20)]
    how = EndpointOptions(longest=4)
    events = run(Streams(recognizer, HOW, how).open(), say(SPACE.join(words)))
    assert len(finals(events)) > 3
    assert " ".join(finals(events)).split() == words


@pytest.mark.parametrize(
    "text", ["-".join(13 * "BADEC"), "BA_" * 2 + "-".join(13 * "CEDAB") + "_AB"]
)
def test_a_word_that_is_longer_than_a_segment_loses_and_doubles_no_token(recognizer, text):
    events = run(Streams(recognizer, HOW, EndpointOptions(longest=3)).open(), say(text))
    assert len(finals(events)) > 7
    assert "".join(finals(events)).replace(" ", "") == text.replace(SPACE, "").replace("-", "")


def test_a_token_that_the_beam_holds_in_silence_is_in_its_final(recognizer, monkeypatch):
    # as if CTC were sure of the blank in all frames: tokens alone tell where something is spoken
    monkeypatch.setattr("asr.transcription.streams.SILENT", 1e-30)
    events = run(Streams(recognizer, HOW).open(), say(TEXT))
    assert finals(events) == ["AB CDA", "EB D", "CC A E"]


def test_a_segment_without_words_that_is_too_long_loses_nothing_of_what_follows(recognizer):
    hum = say("A", 5.0)  # one letter, so no gap between words
    how = EndpointOptions(longest=2)
    events = run(Streams(recognizer, HOW, how).open(), np.concatenate([hum, say("-AB-CD-E")]))
    assert "".join(finals(events)).strip("A") == "BCDE"


def test_another_rate_is_resampled_in_stream(recognizer):
    waveform = say(TEXT, rate=44100)
    expected = run(Streams(recognizer, HOW).open(), resample(waveform, 44100, RATE))
    stream, draw, events, at = Streams(recognizer, HOW).open(), random.Random(0), [], 0
    while at < len(waveform):
        size = draw.randint(1, 5000)
        events += stream.push(waveform[at : at + size], 44100)
        at += size
    assert events + stream.finish() == expected


def test_a_rate_that_changes_goes_on(recognizer):
    stream = Streams(recognizer, HOW).open()
    events = stream.push(say("--AB-", rate=16000), 16000) + stream.push(say("CD-------"))
    assert finals(events + stream.finish()) == ["ABCD"]


def test_int16_is_as_floats(recognizer):
    waveform = (say(TEXT) * 32768).round().astype(np.int16)
    streams = Streams(recognizer, HOW)
    assert run(streams.open(), waveform) == run(streams.open(), waveform / np.float32(32768))


@pytest.mark.parametrize(
    ("samples", "rate", "said"),
    [
        (np.array([0.0, np.nan]), None, "samples: got NaN"),
        (np.array([0.0, 1e300]), None, "samples: got NaN or infinite"),  # as float32
        (np.zeros((2, 2)), None, "shape (2, 2)"),
        (np.zeros(2, np.int32), None, "int32"),
        (np.zeros(2), 0, "sample_rate: got 0 Hz"),
        (np.zeros(2), "8000", "sample_rate: got '8000' Hz"),
    ],
)
def test_bad_samples_are_refused_and_the_stream_goes_on(recognizer, samples, rate, said):
    stream, waveform = Streams(recognizer, HOW).open(), say(TEXT)
    events = stream.push(waveform[:9000])
    with pytest.raises(UserError) as refused:
        stream.push(samples, rate)
    assert said in str(refused.value)
    events += stream.push(waveform[9000:]) + stream.finish()
    assert events == run(Streams(recognizer, HOW).open(), waveform)
    with pytest.raises(UserError, match="end"):
        stream.push(waveform)


@pytest.mark.slow
def test_long_silence_gives_nothing_and_keeps_nothing(recognizer):
    stream = Streams(recognizer, HOW).open()
    events = [event for _ in range(20) for event in stream.push(say("-" * 25))]
    assert not events and stream.position > 95
    assert len(stream._samples) < 4 * RATE
    late = stream.push(say("AB-------"))
    assert finals(late) == ["AB"]
    word = late[-1].segment.words[0]
    assert word.start == pytest.approx(100, abs=0.09)


@pytest.mark.parametrize(
    ("model", "features", "options", "said"),
    [
        ("encoder: {channels: 4}", {}, {}, "encoder.chunk"),
        (f"{SIZES}, ctc_weight: 0.0", {}, {}, "CTC was not trained"),
        (SIZES, {"cmvn": "utterance"}, {}, "features.cmvn is utterance"),
        (SIZES.replace("frames: 4", "frames: [4, whole]"), {}, {"chunk": "whole"}, "whole"),
        (SIZES, {}, {"chunk": 0.5}, "0.16"),
        (SIZES, {}, {"chunk": 0}, "chunk: got 0"),
    ],
)
def test_what_cant_read_streams_is_refused(model, features, options, said):
    settings = FrontendSettings(**FEATURES.model_dump() | features)
    made = Recognizer(settings, sizes(model), LETTERS).eval()
    with pytest.raises(UserError) as refused:
        asr.stream(made, **options)
    assert said in str(refused.value)


def test_hotwords_take_part_in_partial_results_and_finals(recognizer, tmp_path):
    (tmp_path / "words.txt").write_text("AB\nEB\n")
    how = SearchOptions(mode="ctc", hotwords=str(tmp_path / "words.txt"), hotword_weight=1.5)
    streams = Streams(recognizer, how)
    assert list(streams.prefixes.scorers) == ["hotwords"]
    found = [e for e in run(streams.open(), say(TEXT)) if isinstance(e, Final)]
    assert [e.segment.nbest[0].scores["hotwords"] > 0 for e in found] == [True, True, False]


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.03, 0.05, 0.3])
def test_a_short_stream_is_as_a_short_file(recognizer, seconds):
    waveform = say("A-C")[: int(seconds * RATE)]
    expected = []
    if seconds > 0.025:  # else not a frame of features
        expected = [asr.transcribe(recognizer, waveform, mode="ctc", beam=4).text]
    assert finals(run(Streams(recognizer, HOW).open(), waveform)) == [t for t in expected if t]


@pytest.mark.parametrize(
    ("silent", "spoken", "expected"),  # frames of 0.1 s; 1 s of silence ends, 2 s are forgotten
    [
        ("_____.........", 2, None),
        ("_____..........", 2, (8, 12)),
        ("__...._..........", 2, (10, 14)),
        ("__...............", 8, None),  # the last token is in silence
        ("__................", 8, (11, 15)),
        ("...................", 0, None),
        ("....................", 0, (3, 17)),
        ("____....................", 0, (7, 21)),
    ],
)
def test_endpoints_in_silence(silent, spoken, expected):
    frames = np.array([frame == "." for frame in silent])
    assert after_silence(frames, spoken, 0.1, EndpointOptions(1.0, 2.0)) == expected


@pytest.mark.parametrize(
    ("spans", "expected"),  # in 2 s
    [
        ([(0, 0.5), (0.9, 1.0), (1.1, 1.4), (1.6, 2.0)], 15),  # the widest of the second half
        ([(0.0, 0.1), (0.3, 0.5), (0.7, 2.0)], 6),  # the last one
        ([(0, 0.1), (0.8, 0.9)], 17),  # nothing yet of what may begin at the end
        ([], 17),
        ([(0.7, 2.0)], 4),  # one alone, which began late
        ([(0, 1.9)], None),
    ],
)
def test_a_segment_that_is_too_long_is_cut_in_a_gap(spans, expected):
    assert between(spans, 20, 0.1) == (expected and (expected, expected))


@pytest.mark.slow
def test_sources_side_by_side(recognizer):
    def portions(text, fail=False):
        for part in np.array_split(say(text), len(text)):
            yield part, RATE
        if fail:
            raise UserError("gone")

    texts = {f"{n}": TEXT[n:] for n in range(5)}
    sources = [(name, portions(text, name == "3")) for name, text in texts.items()]
    found = list(transcribe_live(Streams(recognizer, HOW), iter(sources), at_once=2))
    for name, text in texts.items():
        own = [event for of, event in found if of == name]
        failures = [event for event in own if not isinstance(event, Partial | Final)]
        assert [f.reason for f in failures] == ["gone"] * (name == "3")
        alike(
            [e for e in own if e not in failures], run(Streams(recognizer, HOW).open(), say(text))
        )


@pytest.fixture(scope="module")
def folder(recognizer, tmp_path_factory):
    """A model folder, and recordings beside it."""
    root = tmp_path_factory.mktemp("live")
    config = {"features": FEATURES.model_dump(), "model": sizes(SIZES).model_dump()}
    recognizer.save(root / "model", yaml.safe_dump(config))
    for name, rate in (("a.wav", RATE), ("b.flac", 16000)):
        soundfile.write(root / name, say(TEXT, rate=rate), rate)
    bad = np.where(np.arange(2 * RATE) == 1.5 * RATE, np.nan, say("A", 2.0))
    soundfile.write(root / "nan.wav", bad, RATE, "FLOAT")
    return root


def decode(folder, *arguments):
    """Run asr-decode --stream there."""
    model = ["--model", str(folder / "model"), "--mode", "ctc", "--beam", "4"]
    command.main([*model, "--stream", *map(str, arguments)])


def test_the_command_prints_what_is_final(folder, capsys, monkeypatch):
    lines = ["AB CDA", "EB D", "CC A E"]
    decode(folder, folder / "a.wav")
    assert capsys.readouterr().out.splitlines() == lines
    decode(folder, folder / "a.wav", folder / "b.flac")
    named = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    for name in ("a.wav", "b.flac"):
        assert [text for of, text in named if of == str(folder / name)] == lines
    raw = io.BytesIO((say(TEXT) * 32767).astype("<i2").tobytes())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=raw))
    decode(folder, "--raw", RATE, "-")
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize("kinds", ["", "srt"])
def test_joined_files_are_read_to_their_end(folder, tmp_path, capsys, kinds):
    (tmp_path / "two.flac").write_bytes(2 * (folder / "b.flac").read_bytes())
    decode(folder, tmp_path / "two.flac", *(["--format", kinds] if kinds else []))
    found = [line for line in capsys.readouterr().out.splitlines() if line[:1].isalpha()]
    # 0.8 s of silence between the two don't end a segment
    assert found == ["AB CDA", "EB D", "CC A EAB CDA", "EB D", "CC A E"]


def test_containers_are_decoded_by_ffmpeg(folder, capsys):
    if not shutil.which("ffmpeg"):
        pytest.skip("ffmpeg isn't installed")
    convert = ["ffmpeg", "-v", "error", "-y", "-i", "b.flac", "-c:a", "flac", "b.mkv"]
    subprocess.run(convert, cwd=folder, check=True)
    decode(folder, folder / "b.mkv")
    assert capsys.readouterr().out.splitlines() == ["AB CDA", "EB D", "CC A E"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("a.wav --channel all", "--channel: got all"),
        ("a.wav a.wav", "a.wav: given twice"),
        ("a.wav --batch-seconds -1", "--batch-seconds: changes nothing with --stream"),
        ("a.wav --vad silero", "--vad: changes nothing with --stream"),
        ("a.wav --nbest 3", "--nbest: changes nothing without --json"),
        ("a.wav --max-line-width 30 --format tsv", "--max-line-width: changes nothing without"),
        ("a.wav --ctc-weight 0.5", "--ctc-weight: changes nothing in mode ctc"),
        ("a.wav --lm-weight 0.5", "--lm-weight: changes nothing without --lm"),
        ("- --raw 8000 --channel 0", "--channel: changes nothing without files"),
        ("- --raw 8000 --realtime", "--realtime: changes nothing without files"),
        ("a.wav --calibrate --json x", "doesn't go with --json, --calibrate"),
        ("a.wav --raw 8000", "give - as the only FILE"),
        ("- --raw 8", "--raw: got 8 Hz"),
        ("a.wav --mic", "leave the files away"),
        ("", "nothing to transcribe"),
        ("model", "is a folder"),
        ("a.wav --format textgrid", "--format: got textgrid"),
        ("a.wav b.flac --format srt", "--out-dir takes their files"),
        ("none.wav", "none.wav: "),
        ("nan.wav", "nan.wav: has NaN or infinite samples, the first at 1.500 s"),
        ("-", "isn't read as a sound file"),
        ("a.wav --channel 3", "channel 3 was requested"),
        ("a.wav --chunk 0.5", "--chunk: got 0.5"),
        ("a.wav --chunk whole", "--chunk: got whole"),
        ("a.wav --out-dir o --model none", "none: no such model folder"),
    ],
)
def test_mistakes_are_a_line_and_nothing_is_written(folder, monkeypatch, caplog, words, said):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(bytes(99))))
    with pytest.raises(SystemExit) as ended:
        decode(folder, *words.split())
    assert ended.value.code == 2 and said in caplog.text
    assert not (folder / "o").exists()


def test_json_has_an_event_on_each_line(folder, recognizer, capsys):
    decode(folder, "--format", "json", folder / "a.wav")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line.pop("id") for line in lines} == {str(folder / "a.wav")}
    waveform = load(folder / "a.wav", RATE)
    events = run(asr.stream(recognizer, mode="ctc", beam=4), waveform)
    assert lines == [json.loads(json.dumps(event.as_json())) for event in events]
    assert {"partial", "final"} == {line["type"] for line in lines}


def test_files_grow_by_whole_cues(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    seen, from_file = [], live.from_file

    def portions(path, channel):
        for part in from_file(path, channel):
            yield part
            seen.append((tmp_path / "a.wav.srt").read_text())

    monkeypatch.setattr(live, "from_file", portions)
    decode(folder, "--out-dir", tmp_path, "--format", "srt,vtt,tsv,txt", "a.wav")
    for text in {text for text in seen if text}:
        assert text.endswith("\n") and len(pysubs2.SSAFile.from_string(text)) == text.count("-->")
    assert len(set(seen)) == 3  # nothing, one, two cues; the third comes with the end
    for kind in ("srt", "vtt"):
        cues = pysubs2.load(str(tmp_path / f"a.wav.{kind}"))
        assert [cue.text for cue in cues] == ["AB CDA", "EB D", "CC A E"]
        assert all(cue.start < cue.end for cue in cues)
        assert all(a.end <= b.start for a, b in itertools.pairwise(cues))
    rows = (tmp_path / "a.wav.tsv").read_text().splitlines()
    assert [len(row.split("\t")) for row in rows] == [3] * 4


def test_what_cannot_be_read_is_named_and_leaves_no_file(folder, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(folder)
    names = ["a.wav", "none.wav", "a\tb.wav", os.fsdecode(b"\xff.wav")]
    for name in names[2:]:
        shutil.copy("a.wav", name)
    for _ in range(2):  # its own files are known again
        caplog.clear()
        with pytest.raises(SystemExit) as ended:
            decode(folder, "--out-dir", tmp_path / "o", "--format", "txt,vtt", *names)
        assert ended.value.code == 3
        for said in ("none.wav: no such", "control character (U+0009)", "isn't UTF-8 (byte 0xff)"):
            assert said in caplog.text
        made = {path.name for path in (tmp_path / "o").iterdir()}
        assert made == {"a.wav.txt", "a.wav.vtt", ".formats"}
        assert (tmp_path / "o/a.wav.txt").read_text() == "AB CDA\nEB D\nCC A E\n"
    (tmp_path / "o/b.flac.txt").write_text("by hand")
    with pytest.raises(SystemExit):
        decode(folder, "--out-dir", tmp_path / "o", "b.flac")
    assert "b.flac.txt: is there already" in caplog.text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_a_full_disk_is_a_line(folder, tmp_path, monkeypatch, caplog):
    from_file = live.from_file

    def filling(path, channel):
        for part in from_file(path, channel):
            (tmp_path / "full").unlink(missing_ok=True)
            (tmp_path / "full").symlink_to("/dev/full")
            os.replace(tmp_path / "full", tmp_path / "o/a.wav.txt")
            yield part

    monkeypatch.setattr(live, "from_file", filling)
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        decode(folder, "--out-dir", tmp_path / "o", "a.wav")
    assert ended.value.code == 2
    assert "a.wav.txt: can't be written (No space left on device)" in caplog.text


def test_ctrl_c_ends_a_pipe_on_which_nothing_comes(folder, capsys, monkeypatch):
    end, other = os.pipe()
    ready = live.select.select

    def select(*arguments):
        found = ready(*arguments)
        if not found[0]:  # someone presses Ctrl-C
            os.kill(os.getpid(), signal.SIGINT)
        return found

    with open(end, "rb") as pipe, open(other, "wb") as writer:
        monkeypatch.setattr(live, "WAIT", 0.01)
        monkeypatch.setattr(live.select, "select", select)
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe))
        writer.write((say("--AB_CD--") * 32767).astype("<i2").tobytes())  # less than a pipe holds
        writer.flush()
        decode(folder, "--raw", RATE, "-")
    assert capsys.readouterr().out.splitlines() == ["AB CD"]


@pytest.mark.parametrize("content", [b"", b"\0"])
def test_a_pipe_without_samples_is_a_mistake(folder, monkeypatch, caplog, content):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    with pytest.raises(SystemExit) as ended:
        decode(folder, "--raw", RATE, "-")
    assert ended.value.code == 2 and "standard input: has no samples" in caplog.text


def test_a_terminal_shows_partials_in_place(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    decode(folder, folder / "a.wav")
    shown = capsys.readouterr().out
    assert [line.split(CLEAR)[-1] for line in shown.split("\n")[:-1]] == [
        "AB CDA",
        "EB D",
        "CC A E",
    ]
    assert f"{CLEAR}AB{CLEAR}" in shown


def test_a_microphone_is_read_until_it_is_stopped(folder, capsys, monkeypatch, caplog):
    class Heard(queue.SimpleQueue):
        def get(self, timeout):
            if self.empty():  # someone presses Ctrl-C
                os.kill(os.getpid(), signal.SIGINT)
            return super().get(timeout=0.01)

    fake = FakeDevice(say(TEXT, rate=44100), 44100)
    monkeypatch.setattr(live.queue, "SimpleQueue", Heard)
    monkeypatch.setitem(sys.modules, "sounddevice", fake)
    decode(folder, "--mic")
    assert capsys.readouterr().out.splitlines() == ["AB CDA", "EB D", "CC A E"]
    assert fake.closed and "lost, 1 times" in caplog.text


def test_a_microphone_that_does_not_start_is_a_mistake(folder, monkeypatch, caplog):
    class Busy(FakeDevice):
        def __enter__(self):
            raise self.PortAudioError("busy")

    monkeypatch.setitem(sys.modules, "sounddevice", Busy(say("A"), RATE))
    with pytest.raises(SystemExit) as ended:
        decode(folder, "--mic")
    assert ended.value.code == 2 and "--mic: the default microphone: busy" in caplog.text


@pytest.fixture(scope="module")
def listed(folder):
    """A manifest of one recording, with the text that it has."""
    samples, text = len(say(TEXT)), "AB CDA EB D CC A E"
    path, seconds = str(folder / "a.wav"), samples / RATE
    one = Utterance("a", path, RATE, samples, 1, 0.0, seconds, text, "s")
    write(folder / "a.jsonl.gz", [one])
    return folder / "a.jsonl.gz"


def test_the_benchmark_tells_errors_and_delays(folder, listed):
    out = folder / "quality.json"
    bench.main(["quality", str(folder / "model"), str(listed), "--mode", "ctc", "--json", str(out)])
    figures = json.loads(out.read_text())
    live = figures["0.16"]
    assert live["wer"] == 0 and live["changed"] < 0.5 and "wer" in figures["whole"]
    assert -0.5 < live["word_seconds"][0] < live["final_seconds"][0] < 3


@pytest.mark.slow
def test_minutes_of_a_stream_take_no_more_than_the_first(folder, listed, capsys):
    soak.main([str(folder / "model"), str(listed), "--hours", "0.51", "--minutes", "0.1"])
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["10", "20", "30"]
    assert float(rows[2][1]) < float(rows[0][1]) + 20  # MB
    assert all(int(row[3]) > 100 and float(row[5]) < 0.2 for row in rows)


class FakeDevice:
    """The package sounddevice: a microphone that hears a waveform."""

    PortAudioError = RuntimeError

    def __init__(self, waveform, rate):
        self.waveform, self.rate, self.closed = waveform, rate, False

    def query_devices(self, device, kind):
        assert device is None and kind == "input"
        return {"default_samplerate": float(self.rate)}

    def InputStream(self, rate, size, device, channels, dtype, callback):  # noqa: N802
        assert (rate, device, channels, dtype) == (self.rate, None, 1, "float32")
        self.size, self.callback = size, callback
        return self

    def __enter__(self):
        for n, part in enumerate(
            np.split(self.waveform, range(self.size, len(self.waveform), self.size))
        ):
            self.callback(part[:, None], len(part), None, SimpleNamespace(input_overflow=n == 5))

    def __exit__(self, *_):
        self.closed = True
