"""Long recordings: pieces are cut at constructed pauses, and joined without losing or doubling a word."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from small import each
from spoken import write_folder

from asr.data.columns import Table
from asr.data.manifest import Utterance
from asr.failures import Failure
from asr.models.recognizer import load
from asr.tasks.utterances import edge_seconds
from asr.transcript import Alternative, Segment, Transcript, Word
from asr.transcription import long, segmentation
from asr.transcription.long import SURE, SURE_CTC, Cutting, Pieces, in_pieces, joined, merged
from asr.transcription.options import SearchOptions
from asr.transcription.recordings import Recording
from asr.transcription.segmentation import (
    CONTEXT,
    MARGIN,
    OVERLAP,
    PAUSE,
    Piece,
    cut,
    finish,
    segment,
)

RATE = 8000


def clock(seconds):
    """The time of each sample."""
    return np.arange(round(seconds * RATE)) / RATE


def silence(seconds):
    return 0.0 * clock(seconds)


def gliding(seconds):
    """A tone between 400 and 1600 Hz: no note of music."""
    frequency = 1000 + 600 * np.sin(clock(seconds) * 2 * np.pi * 3.3)
    return np.sin(np.cumsum(frequency) * 2 * np.pi / RATE)


def syllables(seconds):
    """The same, rising and falling."""
    return (0.6 + 0.4 * np.sin(clock(seconds) * 2 * np.pi * 5)) * gliding(seconds)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def recorded(tmp_path, rng):
    """Write parts of a waveform, over noise; a recording of them."""

    def recorded(*parts, noise=0.0, name="x"):
        path, waveform = str(tmp_path / f"{name}.wav"), np.concatenate(parts)
        waveform += noise * rng.standard_normal(len(waveform))
        soundfile.write(path, waveform, RATE, subtype="FLOAT")
        return Recording(name, path, 0.0, len(waveform) / RATE)

    return recorded


@pytest.fixture
def pieces_of(recorded):
    """The pieces of such a recording."""

    def pieces_of(*parts, noise=0.0, rate=RATE, start=0.0, seconds=None, longest=10.0, **more):
        one, more = recorded(*parts, noise=noise), {"longest": longest, **more}
        found = segment(one.path, rate, start, seconds or one.duration, None, **more)
        return finish(found)

    return pieces_of


@each("together", [2, 4, 50])
def test_blocks_that_threads_read_at_once_give_the_same_pieces(
    recorded, rng, threads, monkeypatch, together
):
    monkeypatch.setattr(segmentation, "READ", 3.2)
    threads(3)
    spans = rng.uniform((0.5, 0.2), (4, 2), (20, 2))
    one = recorded(*(part for a, b in spans for part in (syllables(a), silence(b))), noise=1e-4)
    how = one.path, RATE, 0.0, one.duration, None, 8.0
    assert [*segment(*how, together=together)] == [3.2] * math.ceil(one.duration / 3.2)
    pieces = finish(segment(*how, together=together))
    assert pieces == finish(segment(*how)) and len(pieces) > 10


@each("noise", [0.0, 1e-4, 1e-2])
def test_stretches_between_pauses_are_pieces(pieces_of, rng, noise):
    parts, loud, at = [silence(1)], [], 1.0
    for spoken, pause, amplitude in rng.uniform((0.5, PAUSE + 0.1, 0.1), (6, 3, 0.5), (60, 3)):
        parts += [amplitude * syllables(spoken), silence(pause)]
        loud.append((at, at + spoken))
        at += spoken + pause
    pieces = pieces_of(*parts, noise=noise, longest=8.0)
    part = pieces_of(*parts, noise=noise, start=30.0, seconds=60.0, longest=8.0)
    for piece, (start, end) in zip(pieces, loud, strict=True):
        assert start - 0.35 <= piece.start <= start + 0.03 and end - 0.03 <= piece.end <= end + 0.35
    assert all(one.end <= next.start for one, next in itertools.pairwise(pieces))
    assert all(30.0 <= piece.start < piece.end <= 90.0 for piece in part)


def test_shorter_silence_than_a_pause_is_within_a_piece(pieces_of):
    """Around the pieces are pauses that are longer by 0.05 s, within them some that are shorter by as much."""
    long, short = (silence(PAUSE + by) for by in (0.05, -0.05))
    parts = [x for gap in (short, long) * 5 for x in (0.3 * syllables(0.8), gap)]
    pieces = pieces_of(silence(1), *parts, noise=1e-4)
    starts = 1.0 + 2 * (0.8 + PAUSE) * np.arange(5)
    np.testing.assert_allclose([p.start for p in pieces], starts - MARGIN, rtol=0, atol=0.05)


@each("options, heard, expected", [
    ({}, 0.0, (0.0, "energy", SURE)),
    ({"mode": "ctc-greedy"}, 0.3, (0.3, "energy", SURE_CTC)),
    ({"vad": "silero"}, 0.9, (CONTEXT, "silero", SURE)),
])  # fmt: skip
def test_recordings_are_cut_into_what_the_model_has_heard(
    recognizer, monkeypatch, options, heard, expected
):
    monkeypatch.setattr(recognizer, "edges", heard)
    cutting = Cutting.suited_to(recognizer, SearchOptions(**options))
    assert cutting == Cutting(20.0, recognizer.sample_rate, *expected)
    assert cutting.is_long(Recording("x", "x", 0.0, 30.1))
    assert not cutting.is_long(Recording("x", "x", 0.0, 30.0))


def test_a_model_knows_from_its_folder_what_it_has_heard(recognizer, tmp_path):
    write_folder(tmp_path, recognizer)
    for facts, known in (
        ({"longest_seconds": 9.5, "edge_seconds": 0.25}, (9.5, 0.25)),
        ({}, (math.inf, 0.0)),
    ):
        (tmp_path / "model/versions.json").write_text(json.dumps(facts))
        model = load(tmp_path / "model")
        assert (model.longest, model.edges) == known


@each("noise", [0.0, 1e-3])
def test_silence_around_the_speech_of_most_training_recordings_is_measured(recorded, noise):
    """The median of the edges; a click is no speech, silence has no edges, noise alone none of silence."""
    click = np.concatenate([silence(0.1), 0.3 * syllables(0.03), silence(0.1)])
    edges_of = [(0.1, 0.7), (0.2, 0.5), (0.3, 0.3), (0.6, 0.4), (0.23, 0.23)]
    utterances = []
    for n, (before, after) in enumerate(edges_of):
        parts = (silence(before), 0.3 * syllables(2), silence(after)) if n < 4 else (silence(1),)
        parts = (click, *parts) if n == 3 else parts
        one = recorded(silence(1), *parts, silence(1), noise=noise, name=f"{n}")
        samples = round((one.duration - 2) * RATE)
        utterances.append(Utterance(str(n), one.path, RATE, samples, 1, 1.0, samples / RATE, "a"))
    edges = [*np.ravel(edges_of[:3]), 0.6 + len(click) / RATE, 0.4, *([0, 0] if noise else [])]
    found = edge_seconds(Table.of(utterances))
    assert found == pytest.approx(np.median(edges), abs=0.03)
    assert edge_seconds(Table.of(utterances[4:])) == 0
    lost = replace(utterances[0], path="none.wav")
    assert edge_seconds(Table.of([*utterances, lost])) == found


def test_silence_around_a_piece_is_searched_with_it_and_shared(pieces_of):
    """Up to the speech beside it, the recording's end, and what the model has heard; told as left out all the same."""
    gaps, spoken = (0.2, PAUSE + 0.02, 2.0), 2.0
    parts = [x for gap in gaps for x in (silence(gap), 0.3 * gliding(spoken))]
    pieces = pieces_of(*parts, silence(0.05), noise=1e-4, context=0.3)
    starts = np.cumsum(gaps) + spoken * np.arange(3)
    before = [piece.start - piece.before for piece in pieces]
    after = [piece.end + piece.after for piece in pieces]
    np.testing.assert_allclose(before, starts - (0.2, 0.3, 0.3), rtol=0, atol=0.05)
    ends = starts + spoken
    np.testing.assert_allclose(after, ends + (0.3, 0.3, 0.05), rtol=0, atol=0.05)
    assert before[1] < after[0] and pieces[0].end <= pieces[1].start
    longest = spoken + 0.3
    for piece in pieces_of(*parts, noise=1e-4, longest=longest, context=0.3):
        assert piece.end - piece.start + piece.before + piece.after <= longest + 0.01
    for rest in (0.0, 0.003, 0.137):  # seconds that make no frame
        end = 1.0 + spoken + 0.2 + rest
        [piece] = pieces_of(silence(1), 0.3 * gliding(spoken), silence(0.2 + rest), context=0.3)
        assert piece.end + piece.after <= end + 1e-6 and piece.after >= 0
    [one] = Pieces(Recording("x", "x", 5.0, 9.0), (Piece(6.0, 8.0, 0.0, False, 0.1, 0.2),), 1).parts
    assert (one.id, one.start, one.duration) == ("x#0", 5.9, pytest.approx(2.3))


@each("rate", [RATE, 11025])
def test_the_last_minute_is_judged_as_the_first(pieces_of, rng, rate):
    """Speech and noise in turn, with pauses, for 20 minutes."""
    noise, pause = 0.2 * rng.standard_normal(RATE // 2), 1e-4 * rng.standard_normal(RATE // 2)
    once = [0.4 * syllables(0.5), pause, noise, pause]
    starts = [piece.start for piece in pieces_of(*once * 600, rate=rate)]
    np.testing.assert_allclose(starts, 2.0 * np.arange(600), rtol=0, atol=0.15)


def test_speech_without_a_pause_is_cut_where_it_is_quietest_and_overlaps():
    levels = -20 + 4 * np.sin(np.arange(6000) / 3)
    levels[[500, 1100, 4100]] = -60.0  # too short for pauses
    levels[:200] = levels[-200:] = -80.0
    pieces = cut(levels, longest=10.0)
    assert all(piece.end - piece.start <= 10.0 for piece in pieces)
    assert pieces[0].start < 2.0 < 58.0 < pieces[-1].end
    for one, next in itertools.pairwise(pieces):
        assert next.overlap == pytest.approx(one.end - next.start) and 0 < next.overlap <= OVERLAP
    assert any(abs(piece.end - 11.0) < 0.1 for piece in pieces)


@each("level", [-120.0, -95.0])
def test_silence_has_no_pieces(level):
    assert cut(np.full(3000, level), longest=10.0) == []


def colored(rng, n, slope):
    """Noise whose power goes with frequency to the power of `slope`; its standard deviation is 1."""
    spectrum = np.fft.rfft(rng.standard_normal(n))
    shaped = np.fft.irfft(spectrum * np.maximum(np.arange(len(spectrum)), 60) ** (slope / 2), n)
    return shaped / shaped.std()


@each("slope", [0, -1, -2, 1, 2])
def test_noise_has_no_pieces_and_speech_after_it_shares_nothing_with_it(pieces_of, rng, slope):
    """Noise of any color, as loud always and swelling by 25 dB within seconds."""
    noise = 0.05 * colored(rng, 60 * RATE, slope)
    assert pieces_of(noise) == pieces_of(noise * swelling(60)) == []
    noise[30 * RATE :] += 0.3 * gliding(30)
    found = pieces_of(noise)
    assert all(piece.end - piece.start < 1 for piece in found if piece.doubtful)  # swells
    first, *rest = [piece for piece in found if not piece.doubtful]
    assert first.overlap == 0 and first.start >= 19.0 and first.end > 30.0
    assert rest and all(piece.overlap > 0 for piece in rest) and rest[-1].end > 59.0


def swelling(seconds):
    """Levels between -25 and 0 dB."""
    levels = np.random.default_rng(1).uniform(-25, 0, seconds + 1)
    return 10 ** (np.interp(clock(seconds), np.arange(len(levels)), levels) / 20)


def test_a_hum_that_swells_has_no_pieces_and_clicks_are_doubted(pieces_of, rng):
    hum = sum(0.1 / k * np.sin(2 * np.pi * 50 * k * clock(60)) for k in range(1, 8))
    pieces = pieces_of(hum * swelling(60), noise=0.003)
    assert all(piece.doubtful and piece.end - piece.start < 1 for piece in pieces)  # swells
    clicks = silence(60)
    clicks[rng.integers(0, len(clicks), 400)] = rng.uniform(-0.5, 0.5, 400)
    ringing = np.exp(-np.arange(200) / 30) * np.sin(np.arange(200) * 1.2)
    pieces = pieces_of(np.convolve(clicks, ringing, "same"), noise=0.003)
    assert len(pieces) > 5 and all(piece.doubtful for piece in pieces)


@each("beyond", [0.2, 0.32])
def test_a_piece_ends_before_noise_that_ends_at_once(pieces_of, rng, beyond):
    """A noise gate that opens some tenths of a second before speech, and closes as long after it: a step of 40 dB."""
    parts, steps, at = [], [], 0.0
    for seconds in rng.uniform(1, 3, 20):
        open_gate = np.concatenate([silence(beyond), 0.3 * gliding(seconds), silence(beyond)])
        open_gate += 0.01 * rng.standard_normal(len(open_gate))
        parts += [1e-4 * rng.standard_normal(RATE), open_gate]
        spoken = at + 1.0 + beyond
        steps.append((spoken - 0.2, spoken + seconds + 0.2))
        at += 1.0 + len(open_gate) / RATE
    pieces = pieces_of(*parts, parts[0])
    for piece, (start, end) in zip(pieces, steps, strict=True):
        assert start <= piece.start <= start + 0.2 and end - 0.2 <= piece.end <= end


def test_faint_sounds_at_the_ends_of_clean_speech_are_kept(pieces_of, rng):
    """As the S of SIX and of NIGHTS: 35 dB below the vowels, with a closure of 0.1 s before the last one."""
    first, last = 0.005 * rng.standard_normal((2, RATE // 5))
    spoken = first, 0.3 * gliding(2), silence(0.1), last
    [piece] = pieces_of(silence(1), *spoken, silence(1), noise=1e-5)
    assert piece.start <= 1.0 and piece.end >= 3.5


def test_a_quiet_reply_behind_loud_speech_with_noise_is_kept(pieces_of, rng):
    """By the threshold of the piece alone it would be silent; but it isn't noise."""
    loud = 0.3 * gliding(3) * (clock(3) // 0.25 % 3 > 0) + 0.05 * rng.standard_normal(3 * RATE)
    spoken = loud, silence(0.15), 0.03 * gliding(0.5)
    pieces = pieces_of(silence(2), *spoken, silence(2), noise=1e-4)
    assert pieces[0].start <= 2.0 and pieces[-1].end >= 5.65


def test_music_is_doubted_and_believed_where_the_model_is_sure(pieces_of, rng):
    """Notes of 0.3 s with their harmonics, a pause after each twenty, are doubtful; a gliding voice isn't."""
    time, gap = clock(0.3), silence(1)
    notes = [
        sum(np.sin(2 * np.pi * pitch * k * time) / k for k in (1, 2, 3)) * np.exp(-3 * time)
        for pitch in 220 * 2 ** (rng.integers(0, 24, 200) / 12)
    ]
    music = [0.2 * x for n in range(0, 200, 20) for x in [*notes[n : n + 20], gap]]
    voice = [gap, 0.2 * gliding(1.5), gap]

    def doubtful(*parts):
        return [piece.doubtful for piece in pieces_of(*parts)]

    assert doubtful(*music) == [True] * 10 and not any(doubtful(*voice))
    assert doubtful(*music, *voice, *music) == [True] * 21
    after = doubtful(*music, *voice * 12)
    assert after[:10] == [True] * 10 and not any(after[12:])


@each("confidence, token, text", [
    (SURE + 0.01, SURE + 0.01, "spoken"),
    (SURE - 0.01, SURE + 0.01, "spoken"),
    (SURE + 0.01, SURE - 0.01, "spoken"),  # the blanks are certain
    (SURE + 0.01, SURE + 0.01, "t"),  # in a second
])  # fmt: skip
def test_a_doubtful_piece_counts_if_the_model_is_sure(confidence, token, text):
    """If not, it is told as nonspeech, and the piece that overlaps it keeps all its words."""
    sure = min(confidence, token) > SURE and text == "spoken"
    pieces = [Piece(0.0, 1.0), Piece(2.0, 3.1, doubtful=True), Piece(2.5, 4.0, 0.6)]
    best = Alternative(text, [1], 0.0, confidences=[token], uncalibrated=confidence)
    some = ((0, "a"), (0.7, "b")), ((2, "c"), (2.7, "d")), ((2.6, "e"), (3.3, "f"))
    made = whole(pieces, *(heard(*words, nbest=(best,)) for words in some))
    assert made.text == ("a b c f" if sure else "a b e f")
    assert made.nonspeech == (((1.0, 2.0),) if sure else ((1.0, 2.5),))


@each("text, counts", [("t", False), ("no", False), ("yes", True), ("我", True)])
def test_a_letter_or_two_of_a_short_doubtful_piece_dont_count(text, counts):
    best = Alternative(text, [1], 0.0, confidences=[1.0], uncalibrated=1.0)
    found = heard((0.1, text), nbest=(best,))
    assert whole([Piece(0.0, 0.4, doubtful=True)], found).text == text * counts


def whole(pieces, *transcripts):
    """The transcript of a recording of these pieces."""
    return joined(Recording("x", "x", 0.0, pieces[-1].end), pieces, transcripts)


def segment_of(*timed):
    """A segment of words of 0.3 s: (start, text)."""
    words = tuple(Word(start, start + 0.3, text) for start, text in timed)
    text = " ".join(word.text for word in words)
    return Segment(words[0].start, words[-1].end, text, 1.0, words)


def heard(*timed, **more):
    """A transcript of one segment."""
    part = segment_of(*timed)
    return Transcript("x", part.text, (part,), **more)


@each("shift", [-0.2, 0.0, 0.2])
def test_a_word_of_an_overlap_is_neither_lost_nor_doubled(shift):
    """All ways of dividing ten words among two pieces that share some of them, heard a little apart."""
    spoken = [(n / 2, f"w{n % 4}") for n in range(10)]
    for first, last in itertools.combinations(range(2, 9), 2):
        one = segment_of(*spoken[: last + 1])
        later = segment_of(*((at + shift, text) for at, text in spoken[first:]))
        start, end = spoken[first][0], spoken[last][0] + 0.3
        left, right = merged(one, later, start, end - start)
        got = [word.text for part in (left, right) for word in part.words]
        assert got == [text for _, text in spoken] == f"{left.text} {right.text}".split()


def test_pieces_are_searched_among_short_recordings_and_joined_in_order(recorded):
    parts = silence(0.5), *[0.3 * syllables(2), silence(1)] * 5
    long, silent = recorded(*parts, noise=1e-4, name="long"), recorded(silence(20), name="silent")
    short, lost = Recording("short", "x.wav", 0.0, 2.0), Recording("lost", "none.wav", 0.0, 30.0)

    def search(recordings, times):
        assert times
        for recording in reversed(list(recordings)):
            yield recording, heard((recording.start + 0.2, recording.id.replace("#", "")))

    results = dict(in_pieces([long, short, silent, lost], Cutting(8.0, RATE), search, False))
    assert results[long].text == "long0 long1 long2 long3 long4"
    starts = [part.start for part in results[long].segments]
    assert starts == sorted(starts) and results[long].duration == 15.5
    assert results[short].text == "short" and results[silent].text == ""
    assert results[silent].nonspeech == ((0.0, 20.0),) and results[short].nonspeech == ()
    told = results[long].nonspeech
    assert len(told) == 6 and all(a < b for a, b in told) and told[-1][1] == 15.5
    assert results[long].as_json()["nonspeech"][0] == list(told[0])
    assert isinstance(results[lost], Failure) and "none.wav" in results[lost].reason


def test_recordings_are_cut_when_the_one_search_of_all_asks_for_more(recorded, monkeypatch):
    """Not hour by hour: each hour's last batch would be small, and the first hour's cuts would wait for all others."""
    parts = [0.3 * syllables(2), silence(1)] * 5
    some = [recorded(*parts, noise=1e-4, name=name) for name in "abc"]
    opened, searches = [], []

    def watched(path, *how):
        opened.append(path)
        return segment(path, *how)

    def search(recordings, times):
        searches.append(times)
        for recording in recordings:
            yield recording, heard((recording.start + 0.2, recording.id))

    monkeypatch.setattr(long, "segment", watched)
    results = in_pieces(some, Cutting(8.0, RATE), search, False)
    for n, (recording, result) in enumerate(results):
        assert recording == some[n] and len(result.segments) == 5
        assert opened == [one.path for one in some[: n + 1]]
    assert searches == [True] and len(opened) == 3


def test_spaces_between_chinese_pieces_are_none():
    pieces = [Piece(0.0, 1.0), Piece(2.0, 3.0)]
    assert whole(pieces, heard((0.0, "我")), heard((2.0, "用"))).text == "我用"


def test_a_piece_without_times_or_words_loses_no_word_of_its_neighbors():
    """An overlap is divided only between pieces whose words both have times."""
    first, last = heard((0.0, "a"), (1.0, "b")), heard((3.2, "c"), (4.0, "d"))
    pieces = [Piece(0.0, 2.0), Piece(1.5, 3.5, 0.5), Piece(3.0, 5.0, 0.5)]
    for text in ("", "untimed"):
        made = whole(pieces, first, Transcript("x", text), last)
        assert made.text == f"a b {text} c d".replace("  ", " ")


def test_a_short_recording_has_times_or_not_whatever_its_company(recorded):
    long = recorded(*[0.3 * syllables(2), silence(1)] * 4, name="long")
    short = Recording("short", "x.wav", 0.0, 2.0)

    def search(recordings, times):
        for recording in recordings:
            part = segment_of((recording.start, "a"))
            yield recording, Transcript(recording.id, "a", (part,) * times)

    for times in (True, False):
        alone, together = (
            dict(in_pieces(some, Cutting(4.0, RATE), search, times))
            for some in ([short], [long, short])
        )
        assert alone[short] == together[short] and bool(alone[short].segments) == times
        assert len(together[long].segments) == 4
