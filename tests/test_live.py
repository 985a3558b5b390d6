"""Streams: however the samples are divided, and whoever else is read, what comes out is what the whole gives.

The recognizer is that of spoken.py, whose letters are tones. So texts are known.
"""

import itertools
import random

import numpy as np
import pytest
import torch
from partly import partly
from refusals import refused
from small import each, near, options, rows, sizes, slow
from spoken import (
    FEATURES,
    FINALS,
    HOW,
    LETTERS,
    RATE,
    SOUNDS,
    SPACE,
    TEXT,
    assert_alike,
    fit,
    pcm,
    run,
    say,
)

import asr
from asr.audio.live import Resampler
from asr.audio.load import resample
from asr.errors import UserError
from asr.models.recognizer import Recognizer
from asr.nn.encoder import WHOLE
from asr.text import kneser_ney
from asr.transcript import Final, Partial
from asr.transcription.encoding import encode
from asr.transcription.endpoints import FINALS_IN, EndpointOptions, after_silence, between
from asr.transcription.live import transcribe_live
from asr.transcription.options import SearchOptions
from asr.transcription.streams import ENDED, Stream, Streams

JOINT = SearchOptions(beam=3, ctc_weight=0.9)  # the decoder is random
CHUNKS, WHOLE_SEGMENT = (EndpointOptions(finals=name) for name in FINALS_IN)


@pytest.fixture
def streams(recognizer):
    return Streams(recognizer, HOW)


def finals(events):
    return [event.segment.text for event in events if isinstance(event, Final)]


def run_of(streams, samples):
    """The events of samples that come at once."""
    stream = streams.open()
    return stream.push(samples) + stream.finish()


def cut_at(seconds, recognizer, waveform, searched="chunks"):
    """The texts of segments of no more than so many seconds."""
    how = EndpointOptions(longest=seconds, finals=searched)
    return finals(run(Streams(recognizer, HOW, how).open(), waveform))


def test_partials_become_finals_with_times(streams):
    events = run(streams.open(), say(TEXT))
    assert finals(events) == FINALS
    *partials, last = [e for e in events if e.number == 0]
    assert {type(e) for e in partials} == {Partial} and isinstance(last, Final)
    pairs = itertools.pairwise(e.text for e in partials)
    assert all(b.startswith(a) for a, b in pairs)  # these tones are clear
    words = [w for e in events if isinstance(e, Final) for w in e.segment.words]
    starts = [TEXT.index(w) * 0.2 for w in ("AB_", "CDA", "EB_", "D----", "C-C", "A_E", "E--")]
    assert [w.start for w in words] == pytest.approx(starts, abs=0.09)


def test_tokens_have_the_times_of_their_tones(streams):
    """Each lasts to the next one of its word; the first begins and the last ends with it."""
    words = [
        w for e in run(streams.open(), say(TEXT)) if isinstance(e, Final) for w in e.segment.words
    ]
    for word in words:
        assert "".join(token.text for token in word.tokens) == word.text
        edges = [edge for token in word.tokens for edge in (token.start, token.end)]
        assert [word.start, *edges[2::2], word.end] == [edges[0], *edges[1::2]]
        confidences = [token.confidence for token in word.tokens]
        assert word.confidence == pytest.approx(np.prod(confidences))
    tones = [0.2 * n for n, sound in enumerate(TEXT) if sound not in ("-", SPACE)]
    starts = [token.start for word in words for token in word.tokens]
    assert starts == pytest.approx(tones, abs=0.09)


def cuttings(seeds, length):
    """Portions of one sample to some seconds, and empty ones."""
    for seed in seeds:
        draw = np.random.default_rng(seed)
        portions = length // draw.choice([50, 400, 2000, 20_000])
        yield np.sort(draw.integers(0, length, portions))


@each("how", [HOW, JOINT])
def test_any_cutting_gives_the_same(recognizer, how):
    streams, waveform = Streams(recognizer, how), say(TEXT[:20])
    whole = run(streams.open(), waveform)
    for cuts in cuttings(range(10), len(waveform)):
        assert run(streams.open(), waveform, cuts) == whole  # to the bit: chunks are the same


def run_together(streams, portions):
    """Open a stream for each list of portions, let all hear their next ones side by side; the events of each."""
    opened = [streams.open() for _ in portions]
    for parts in itertools.zip_longest(*portions, fillvalue=np.zeros(0, np.float32)):
        for stream, samples in zip(opened, parts, strict=True):
            stream.feed(samples)
        streams.advance()
    for stream in opened:
        stream.end()
    streams.advance()
    return [stream.take() for stream in opened]


@slow
def test_a_thousand_cuttings_give_the_same(recognizer):
    streams, waveform = Streams(recognizer, HOW), say(TEXT[:20])
    whole = run(streams.open(), waveform)
    portions = [np.split(waveform, cuts) for cuts in cuttings(range(1000), len(waveform))]
    for found in run_together(streams, portions):
        assert_alike(found, whole)


def test_finals_of_the_whole_segment_are_the_same_from_any_cutting_and_in_company():
    streams, waveform = Streams(fit("[4, whole]"), JOINT, WHOLE_SEGMENT), say(TEXT)
    whole = run(streams.open(), waveform)
    for cuts in cuttings(range(5), len(waveform)):
        assert_alike(run(streams.open(), waveform, cuts), whole)
    others = [waveform, waveform[: 9 * RATE // 2], np.concatenate([waveform, waveform[RATE:]])]
    alone = [run(streams.open(), samples) for samples in others]
    for found, expected in zip(run_together(streams, [[x] for x in others]), alone, strict=True):
        assert_alike(found, expected)


@each("company, number, how", partly([(7, 3, HOW), (1, 1, HOW), (31, 1, HOW), (3, 1, JOINT)], 3))
def test_a_stream_in_company_is_as_if_alone(recognizer, threads, company, number, how):
    """Threads each encode some of the streams."""
    threads(number)
    streams, draw, texts = Streams(recognizer, how), random.Random(company), [TEXT]
    for _ in range(company):
        texts.append("".join(draw.choices([*SOUNDS, *"-----"], k=draw.randint(2, 20))))
    waiting, rest, found = list(map(say, texts)), {}, []
    while waiting or rest:
        if waiting and draw.random() < 0.5:  # streams come and go
            found.append(streams.open())
            rest[found[-1]] = waiting.pop(0)
        for stream, samples in list(rest.items()):
            size = draw.randint(0, 3000)
            stream.feed(samples[:size])
            rest[stream] = samples[size:]
            if not len(samples):
                stream.end()
                del rest[stream]
        streams.advance()
    for stream, text in zip(found, texts, strict=True):
        assert_alike(stream.take(), run(Streams(recognizer, how).open(), say(text)))


@each("chunks, more, frames, endpoints", [
    ("4", {}, 4, CHUNKS),
    ("[2, 8, whole]", {}, 8, CHUNKS),  # the longest that isn't the whole
    ("[2, 8, whole]", {"chunk": 0.08}, 2, CHUNKS),
    ("[2, 8, whole]", {"chunk": 0.08}, 2, WHOLE_SEGMENT),
    ("4", {"lm": "lm.arpa", "lm_weight": 0.8}, 4, CHUNKS),
])  # fmt: skip
def test_finals_are_what_the_search_finds_in_the_whole_encoded_at_once(
    tmp_path, monkeypatch, chunks, more, frames, endpoints
):
    """All that was read of a segment: with chunks, more would change nothing of them."""
    monkeypatch.chdir(tmp_path)
    sentences = map(LETTERS.encode, ["AB CDA", "EB D", "CC A E", "A EB"])
    kneser_ney.write_arpa(
        "lm.arpa", kneser_ney.estimate(sentences, LETTERS.vocabulary, 3), LETTERS.symbols()
    )
    recognizer, joint = fit(chunks), SearchOptions(ctc_weight=0.7, beam=4, **more)
    waveform, streams = say(TEXT), Streams(recognizer, joint, endpoints)
    searched, heard = [], []
    assert streams.chunk == frames and list(streams.prefixes.scorers) == ["lm"] * ("lm" in more)
    add, begin = streams._finals.add, 0.0

    def spy(keys, H, H_lens):
        searched.append(H[0, : H_lens[0]])
        add(keys, H, H_lens)

    def listen(segment, frames):
        heard.append(streams._most + (segment.frames - streams.chunk) * streams._hop)
        return encoded(segment, frames)

    encoded = streams.encoded
    monkeypatch.setattr(streams, "encoded", listen)
    monkeypatch.setattr(streams._finals, "add", spy)
    chunk = frames if endpoints is CHUNKS else WHOLE
    for final in (e for e in run(streams.open(), waveform) if isinstance(e, Final)):
        read = waveform[round(begin * RATE) :][: heard[final.number]]
        H, T = encode(recognizer, [read], chunk=chunk).H, len(searched[final.number])
        near(searched[final.number], H[0, :T], 1e-5)
        [[best, *_]] = streams.searcher.search(H[:, :T], torch.tensor([T]))
        found = final.segment.nbest[0]
        assert best.tokens == found.tokens and ("lm" in found.scores) == ("lm" in more)
        assert best.score == pytest.approx(found.score, abs=1e-4)
        begin = final.position
    assert len(searched) == 3


def test_the_next_segment_is_read_while_the_last_one_is_searched(recognizer):
    """Steps of the search come at random times; the events stay the same, in the same order."""
    draw, waveform = random.Random(0), say(TEXT)
    streams = Streams(recognizer, SearchOptions(beam=3))
    stream, events, behind = streams.open(), [], 0
    for samples in np.array_split(waveform, 60):
        stream.feed(samples)
        streams.read()
        if draw.random() < 0.3:
            streams.search()
        events += stream.take()
        behind += stream.position < stream._now
    stream.end()
    assert not stream.is_over
    streams.advance()
    assert_alike(events + stream.take(), run(streams.open(), waveform))
    assert behind > 10 and stream.is_over and not streams.is_busy


@each("searched", FINALS_IN)
def test_speech_without_a_pause_is_cut_between_words_and_nothing_is_lost_or_doubled(searched):
    draw = random.Random(1)
    words = ["".join(draw.sample("ABCDE", draw.randint(2, 5))) for _ in range(20)]
    found = cut_at(4, fit("[4, whole]"), say(SPACE.join(words)), searched)
    assert len(found) > 3 and " ".join(found).split() == words


@each("searched", FINALS_IN)
@each("text", ["-".join(13 * "BADEC"), "BA_" * 2 + "-".join(13 * "CEDAB") + "_AB"])
def test_a_word_that_is_longer_than_a_segment_loses_and_doubles_no_token(text, searched):
    found = cut_at(3, fit("[4, whole]"), say(text), searched)
    assert len(found) > 7
    assert "".join(found).replace(" ", "") == text.replace(SPACE, "").replace("-", "")


class Early:
    """Boundaries that know that words begin and end some frames of features before CTC emits them."""

    bias = torch.zeros(1)

    def __init__(self, frames):
        self.frames = frames

    def refine(self, X, X_lens, words):
        def earlier(frame):
            return max(0, frame - self.frames)

        return [
            [w._replace(first=earlier(w.first), end=earlier(w.end)) for w in row] for row in words
        ]


def be_late(monkeypatch, frames):
    """Let CTC, and all else in the encoder, read some frames of noise before each segment."""
    samples, window = frames * 320, Stream._window
    noise = (1e-3 * np.random.default_rng(9).standard_normal(samples)).astype(np.float32)

    def late(stream, first, size):
        lead = noise[first : min(samples, first + size)]
        rest = window(stream, max(0, first - samples), size - len(lead))
        return np.concatenate([lead, rest])

    monkeypatch.setattr(Stream, "_window", late)


@each("delay", [3, 5])
def test_a_cut_loses_and_doubles_nothing_where_ctc_is_late(recognizer, monkeypatch, delay):
    draw = random.Random(1)
    words = ["".join(draw.sample("ABCDE", draw.randint(2, 5))) for _ in range(12)]
    spoken = "--" + SPACE.join(words) + "----"
    waveform = np.concatenate([say(x, 0.08 if x == SPACE else 0.2) for x in spoken])
    be_late(monkeypatch, delay)
    monkeypatch.setattr(recognizer, "boundaries", Early(4 * delay))
    stream = Streams(recognizer, HOW, EndpointOptions(longest=4)).open()
    found = [e for e in run(stream, waveform) if isinstance(e, Final)]
    assert len(found) > 2 and " ".join(e.segment.text for e in found).split() == words
    times = [t for e in found for w in e.segment.words for t in (w.start, w.end)]
    assert times == sorted(times) and all(e.segment.end <= e.position for e in found)


def test_a_token_that_the_beam_holds_in_silence_is_in_its_final(streams, monkeypatch):
    # as if CTC were sure of the blank in all frames: tokens alone tell where something is spoken
    monkeypatch.setattr("asr.transcription.streams.SILENT", 1e-30)
    assert finals(run(streams.open(), say(TEXT))) == FINALS


def test_a_segment_without_words_that_is_too_long_loses_nothing_of_what_follows(recognizer):
    hum = say("A", 5.0)  # one letter, so no gap between words
    found = cut_at(2, recognizer, np.concatenate([hum, say("-AB-CD-E")]))
    assert "".join(found).strip("A") == "BCDE"


@slow
def test_any_cutting_with_cuts_of_segments_gives_the_same(short):
    """Up to the whole twelve seconds in one portion, of which three are a segment at most; side by side."""
    streams, waveform = (
        Streams(short, HOW, EndpointOptions(longest=3)),
        say(2 * "--AB_CDA_EB_DCA_EC_AED_BA_CE--"),
    )
    whole = run(streams.open(), waveform)
    assert sum(isinstance(e, Final) for e in whole) >= 4
    portions = [np.split(waveform, cuts) for cuts in cuttings(range(20), len(waveform))]
    for found in run_together(streams, portions):
        assert_alike(found, whole)


@each("rate", [16_000, 44_100, 48_000, 11_025])
def test_samples_are_resampled_alike_from_any_cutting(rate):
    waveform = say(TEXT, rate=rate)
    expected = resample(waveform, rate, RATE)
    for cuts in cuttings(range(8), len(waveform)):
        made = Resampler(RATE)
        parts = [made(part, rate) for part in np.split(waveform, cuts)]
        near(np.concatenate([*parts, made.flush()]), expected, 1e-6)


def test_another_rate_is_resampled_in_stream(streams):
    waveform = say(TEXT, rate=44100)
    expected = run(streams.open(), resample(waveform, 44100, RATE))
    cuts = np.random.default_rng(0).integers(1, 5000, 130).cumsum()
    assert run(streams.open(), waveform, cuts, 44100) == expected


def test_a_rate_that_changes_goes_on(streams):
    stream = streams.open()
    events = stream.push(say("--AB-", rate=16000), 16000) + stream.push(say("CD-------"))
    assert finals(events + stream.finish()) == ["ABCD"]


def test_int16_is_as_floats(streams):
    waveform = pcm(say("--AB_CDA-----"))
    assert run(streams.open(), waveform) == run(streams.open(), waveform / np.float32(32768))


@each(
    "samples, rate, said",
    [
        (np.array([0.0, np.nan]), None, "samples: got NaN"),
        (np.array([0.0, 1e300]), None, "samples: got NaN or infinite"),  # as float32
        (np.zeros((2, 2)), None, r"shape \(2, 2\)"),
        (np.zeros(2, np.int32), None, "int32"),
        (np.zeros(2), 0, "sample_rate: got 0 Hz"),
        (np.zeros(2), "8000", "sample_rate: got '8000' Hz"),
    ],
)
def test_bad_samples_are_refused_and_the_stream_goes_on(streams, samples, rate, said):
    stream, waveform = streams.open(), say("--AB_CDA-----")
    events = stream.push(waveform[:9000])
    refused(said, stream.push, samples, rate)
    events += stream.push(waveform[9000:]) + stream.finish()
    assert events == run(streams.open(), waveform)
    refused("end", stream.push, waveform)


@slow
def test_an_hour_of_silence_gives_nothing_and_keeps_nothing():
    stream = Streams(fit("64"), HOW).open()
    assert not any(stream.push(say("-" * 100)) for _ in range(180)) and stream.position > 3590
    assert len(stream._samples) < 8 * RATE
    late = stream.push(say("AB-------")) + stream.finish()
    assert finals(late) == ["AB"]
    assert late[-1].segment.words[0].start == pytest.approx(3600, abs=0.09)


NOT_LIVE = """
encoder: {channels: 4} |  |  | encoder.chunk
encoder: {chunk: {frames: 4, left: 4}}, ctc_weight: 0.0 |  |  | CTC was not trained
encoder: {chunk: {frames: 4, left: 4}} | cmvn: utterance |  | features.cmvn is utterance
encoder: {chunk: {frames: [4, whole], left: 4}} |  | chunk: whole | whole
encoder: {chunk: {frames: 4, left: 4}} |  | chunk: 0.5 | 0.16
encoder: {chunk: {frames: 4, left: 4}} |  | chunk: 0 | chunk: got 0
encoder: {chunk: {frames: 4, left: 4}} |  | finals: whole | finals: got whole, .* chunks alone
encoder: {chunk: {frames: 4, left: 4}} |  | finals: all | finals: got 'all', expected one of chunks, whole
"""


@each("model, features, chunk, said", rows(NOT_LIVE))
def test_what_cant_read_streams_is_refused(model, features, chunk, said):
    settings = FEATURES.model_copy(update=options(features))
    made = Recognizer(settings, sizes(model), LETTERS).eval()
    refused(said, asr.stream, made, **options(chunk))


def test_hotwords_take_part_in_partial_results_and_finals(recognizer, tmp_path):
    (tmp_path / "words.txt").write_text("AB\nEB\n")
    how = SearchOptions(mode="ctc", hotwords=str(tmp_path / "words.txt"), hotword_weight=1.5)
    streams = Streams(recognizer, how)
    assert list(streams.prefixes.scorers) == ["hotwords"]
    found = [e for e in run(streams.open(), say(TEXT)) if isinstance(e, Final)]
    assert [e.segment.nbest[0].scores["hotwords"] > 0 for e in found] == [True, True, False]


def test_an_ngram_decides_between_likely_partial_results(recognizer, tmp_path):
    """The last sound is half a B and half a D."""
    waveform = np.concatenate([say("--A-C-"), 0.5 * say("B") + 0.5 * say("D")])
    shown = []
    for known in ("ACB", "ACD"):
        lm = kneser_ney.estimate([LETTERS.encode(known)] * 9, LETTERS.vocabulary, 3)
        kneser_ney.write_arpa(tmp_path / known, lm, LETTERS.symbols())
        how = SearchOptions(mode="ctc", beam=8, lm=str(tmp_path / known), lm_weight=2.0)
        stream = Streams(recognizer, how).open()
        shown.append(stream.push(np.concatenate([waveform, say("--")]))[-1].text)
    assert shown == ["ACB", "ACD"]


@each("seconds", [0.0, 0.02, 0.03, 0.05, 0.3])
def test_a_short_stream_is_as_a_short_file(recognizer, streams, seconds):
    waveform, expected = say("A-C")[: int(seconds * RATE)], ""
    if seconds > 0.025:  # else not a frame of features
        expected = asr.transcribe(recognizer, waveform, **vars(HOW)).text
    assert finals(run(streams.open(), waveform)) == [expected] * bool(expected)


ENDPOINTS = """
_____.........           | 2 | -
_____..........          | 2 | 8 12
__...._..........        | 2 | 10 14
__...............        | 8 | -
__................       | 8 | 11 15
...................      | 0 | -
....................     | 0 | 3 17
____.................... | 0 | 7 21
"""


@each("silent, spoken, expected", rows(ENDPOINTS))
def test_endpoints_in_silence(silent, spoken, expected):
    """In frames of 0.1 s; 1 s of silence ends, 2 s are forgotten."""
    frames, expected = np.array([frame == "." for frame in silent]), expected.strip("-").split()
    found = after_silence(frames, int(spoken), 0.1, EndpointOptions(1.0, 2.0))
    assert list(found or ()) == list(map(int, expected))


GAPS = """
0-0.5 0.9-1.0 1.1-1.4 1.6-2.0 | 15 | the widest of the second half
0.0-0.1 0.3-0.5 0.7-2.0       | 6  | the last one
0-0.1 0.8-0.9                 | 17 | nothing yet of what may begin at the end
-                             | 17 | no word
0.7-2.0                       | 4  | one alone, which began late
0-1.9                         | -  | no gap
"""


def pairs(text, kind):
    return [tuple(map(kind, span.split("-"))) for span in text.strip("-").split()]


@each("spans, expected, _", rows(GAPS))
def test_a_segment_that_is_too_long_is_cut_in_a_gap(spans, expected, _):
    """In 2 s."""
    spans = pairs(spans, float)
    frames = [(round(10 * start), round(10 * end)) for start, end in spans]
    assert between(spans, frames, 20, 0.1) == (None if expected == "-" else (int(expected),) * 2)


LATE = """
0-5 9-10 11-17 18-20 | 17 15 | the kept word is emitted after the cut
0-5 9-10 11-13 14-20 | 14 15 | the next one before it
0-5 9-10 11-14 17-20 | 15 15 | neither
0-5 9-10 11-20 11-20 | 10 10 | two words of one token aren't parted
"""


@each("emitted, expected, _", rows(LATE))
def test_a_cut_parts_what_ctc_emits(emitted, expected, _):
    spans = pairs("0-0.5 0.9-1.0 1.1-1.4 1.6-2.0", float)
    expected = tuple(map(int, expected.split()))
    assert between(spans, pairs(emitted, int), 20, 0.1) == expected


def test_a_stable_text_is_not_taken_back_when_a_hotword_breaks(recognizer, tmp_path):
    """ABCD is worth much, until it is known not to go on as the hotword does."""
    (tmp_path / "words.txt").write_text("ABCDEABC\n")
    hotwords = {"hotwords": str(tmp_path / "words.txt"), "hotword_weight": 4.0}
    streams = Streams(recognizer, SearchOptions(mode="ctc", beam=10, **hotwords))
    both = 0.6 * say("--C_DAEE_BA_AD-----") + 0.4 * say("--ABCCCAAAAEDD-----")
    cuts = range(1000, len(both), 1000)
    partials = [e for e in run(streams.open(), both, cuts) if isinstance(e, Partial)]
    assert "ABCD" in [e.text for e in partials] and partials[-1].stable
    assert all(b.text.startswith(a.stable) for a, b in itertools.pairwise(partials))


def test_a_partial_result_comes_when_only_its_stable_part_is_new(streams):
    stream = streams.open()
    for stable in ("", "A", "A"):
        stream._tell("A B", stable, 1.0)
    assert [(e.text, e.stable) for e in stream.take()] == [("A B", ""), ("A B", "A")]


def test_one_large_portion_is_copied_once(streams, monkeypatch):
    seen, conclude = [], Stream._conclude

    def spy(stream, *arguments):
        seen.append(stream._samples)
        return conclude(stream, *arguments)

    monkeypatch.setattr(Stream, "_conclude", spy)
    stream = streams.open()
    assert finals(stream.push(say(TEXT + 7 * "-"))) == FINALS
    assert len(seen) == 3 and all(samples is seen[0] for samples in seen)
    assert len(stream._samples) < 2 * RATE  # what was read is gone
    for _ in range(9):
        stream.feed(np.zeros(0, np.float32))
    assert not stream._arrived


def test_of_a_large_portion_few_segments_wait_for_the_search(recognizer, monkeypatch):
    streams, waiting, conclude = Streams(recognizer, HOW), [], Streams._conclude

    def spy(self, ends):
        conclude(self, ends)
        waiting.append(len(self._finals))

    monkeypatch.setattr(Streams, "_conclude", spy)
    waveform = say("".join(f"--{word}-------" for word in 10 * ("AB", "EB_D", "C")))
    beside, stream = streams.open(), streams.open()
    beside.feed(waveform[: len(waveform) // 3])
    events = stream.push(waveform) + stream.finish()
    assert len(stream._sought) <= ENDED  # what was found holds no memory
    assert 2 * ENDED in waiting and max(waiting) <= 2 * ENDED and len(finals(events)) == 30
    assert_alike(events, run(Streams(recognizer, HOW).open(), waveform))


@each(
    "at",
    [{"position": x} for x in (float("nan"), -5.0, "1", 1e9)] + [{"number": "1"}, {"number": -1}],
)
def test_a_place_to_go_on_from_that_is_none_is_refused(recognizer, at):
    [(name, value)] = at.items()
    refused(f"{name}: got {value!r}", asr.stream, recognizer, **at)


def test_bf16_samples_are_as_floats(streams):
    samples = torch.from_numpy(say("--AB_CDA-----")).bfloat16()
    assert run_of(streams, samples) == run_of(streams, samples.float())


@slow
def test_sources_side_by_side(recognizer, streams):
    def portions(text):
        for part in np.array_split(say(text), len(text)):
            yield part, RATE
        if text == texts[3]:
            raise UserError("gone")

    texts = [TEXT[n:] for n in range(5)]
    found = list(transcribe_live(streams, ((text, portions(text)) for text in texts), at_once=2))
    for text in texts:
        own = [event for of, event in found if of == text]
        if text == texts[3]:
            own.remove(failure := next(e for e in own if not isinstance(e, Partial | Final)))
            assert failure.reason == "gone"
        assert_alike(own, run(Streams(recognizer, HOW).open(), say(text)))
