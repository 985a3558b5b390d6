"""The engine: in a crowd each gets what it gets alone, nobody starves, and a fault is its own request's.

What is expected is what `asr.transcribe` gives for the same file. The recognizer is that of spoken.py, whose letters
are tones.
"""

import asyncio
import random
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import soundfile
import torch
from refusals import refused
from served import wait_until
from small import each
from spoken import HOW, RATE, SOUNDS, assert_alike, say

import asr
from asr.audio import load as audio
from asr.errors import UserError
from asr.serving import batches, jobs, streams
from asr.serving.batches import BETWEEN, LONG_EVERY, LONG_SHARE
from asr.serving.clients import Closed, Full
from asr.serving.engine import Bounds, Engine
from asr.serving.fairness import FairQueue
from asr.serving.readers import Readers
from asr.transcript import Final
from asr.transcription import segmentation
from asr.transcription.encoding import encode
from asr.transcription.options import SearchOptions
from asr.transcription.recordings import Recording
from asr.transcription.searcher import Running, Searcher
from asr.transcription.streams import ENDED, Streams

JOINT = SearchOptions(beam=3, nbest=2)
ALL = [HOW, replace(HOW, hotwords=("CDA", "E")), replace(HOW, nbest=3)]
ALL += [replace(JOINT, ctc_weight=0.9)]  # the decoder is random
ALL += [SearchOptions(mode=m, beam=3) for m in ("ctc-beam", "rescoring", "ctc-greedy")]


@pytest.fixture
def engine(short):
    with Engine(short, HOW) as made:
        yield made


def alone(recognizer, audio, *rate):
    """What the function makes of it."""
    return asr.transcribe(recognizer, audio, *rate, **vars(HOW))


def spoken(seed, length):
    draw = random.Random(seed)
    return "-" + "".join(draw.choices([*SOUNDS, "---"], k=length)) + "-"


def write(folder, name, sounds):
    path = folder / f"{name}.wav"
    soundfile.write(path, say(sounds), RATE)
    return str(path)


def test_a_crowd_of_64_gets_what_each_gets_alone(short, tmp_path):
    """Files of 0.6 to 10 s, some cut into pieces, of 9 clients in 8 threads, with seven kinds of options."""
    draw, lengths = random.Random(3), [3, 6, 12, 30]
    paths = [write(tmp_path, n, spoken(n, lengths[n % 4])) for n in range(21)]
    kinds = list(zip(paths, ALL * 3, strict=True))
    work = draw.choices(kinds, k=64)
    with ThreadPoolExecutor(8) as pool, Engine(short, HOW, bounds=Bounds(64, 1e4)) as engine:
        ask = pool.map(lambda n: engine.submit(*work[n], client=n % 9), range(64))
        got = [future.result(60) for future in list(ask)]
        assert engine.load == (0, 0, 0, 0)
    expected = {(path, how): asr.transcribe(short, path, **vars(how)) for path, how in kinds}
    for kind, found in zip(work, got, strict=True):
        assert_alike(found, expected[kind])
    assert sum(len(found.segments) > 1 for found in expected.values()) > 3
    assert len({found.text for found in expected.values()}) > 17


def test_samples_are_transcribed_as_by_the_function_and_long_ones_as_their_file(
    short, engine, tmp_path
):
    brief, long = (say(spoken(1, length)) for length in (10, 60))
    soundfile.write(tmp_path / "long.wav", long, RATE, "FLOAT")
    twice = np.repeat(brief, 2)
    found = [engine.submit(brief), engine.submit(twice, sample_rate=2 * RATE)]
    found = [one.result(30) for one in (*found, engine.submit(long))]
    assert list(Path(engine._readers._folder.name).iterdir()) == []
    refused("expected floating-point samples", engine.submit, brief.astype(np.int16))
    refused("got 0 Hz", engine.submit, brief, sample_rate=0)
    assert_alike(found[0], alone(short, brief))
    assert_alike(found[1], alone(short, twice, 2 * RATE))
    expected = alone(short, tmp_path / "long.wav")
    assert_alike(replace(found[2], id=expected.id, path=expected.path), expected)


def test_turns_give_each_client_the_same_and_within_one_each_request():
    """Whoever has work has had at most one piece more than another that had work all the time."""
    draw, queue, had = random.Random(0), FairQueue(), [0.0] * 12
    clients = ["a", "b", "b"] * 4  # by request
    for request, client in enumerate(clients):
        queue.add(client, request)
    for _ in range(900):
        request, seconds = queue.next(lambda one: True), draw.uniform(0.1, 20)
        queue.charge(clients[request], request, seconds)
        had[request] += seconds
    own = {c: [s for of, s in zip(clients, had, strict=True) if of == c] for c in "ab"}
    assert abs(sum(own["a"]) - sum(own["b"])) <= 20
    assert all(max(some) - min(some) <= 20 for some in own.values())
    queue.add("new", "last")  # is next, and has no claim on the time before it came
    first = queue.next(lambda one: True)  # the other that has had the least
    queue.charge(clients[first], first, 20)
    assert queue.next(lambda one: True) == "last"
    queue.charge("new", "last", 41)
    assert queue.next(lambda one: True) != "last"
    queue.remove("new", "last")
    queue.remove("new", "last")
    assert "last" not in [queue.next(lambda one, n=n: one == n) for n in ("last", 1)]


def test_a_long_recording_does_not_starve_a_short_one(short, tmp_path):
    """The short one waits for what has entered before it, not for the rest."""
    long, brief = write(tmp_path, "long", spoken(5, 400)), write(tmp_path, "brief", spoken(6, 5))
    with Engine(short, HOW, bounds=Bounds(batch_seconds=8.0)) as engine:
        begun, seen = threading.Event(), []
        waiting = engine.submit(long, client="a", progress=lambda s: (seen.extend(s), begun.set()))
        assert begun.wait(30)
        before = len(seen)
        for client in ("b", "a"):
            engine.submit(brief, client=client).result(30)
        meanwhile = len(seen) - before
        whole = waiting.result(60)
    assert not waiting.cancelled() and len(whole.segments) > 40
    assert meanwhile < 16, f"{meanwhile} of {len(whole.segments)}"
    assert [one.text for one in whole.segments][: len(seen)] == [one.text for one in seen]
    assert len(seen) == len(whole.segments)


def test_recordings_enter_a_running_search_some_steps_apart(short, tmp_path, monkeypatch):
    """An empty one at once. The first is held until the others wait, and each is read before the next step."""
    path, batch, entries, steps = write(tmp_path, "a", spoken(1, 8)), jobs.RunningBatch, [], [0]

    def read(self, job, begin=Readers.read_ahead):
        begin(self, job)
        wait([part.waveform for part in job.ahead])

    def add(self, parts, enter=batch.add):
        entries.append((len(self.encoded), steps[-1]))
        wait_until(lambda: len(engine._posted) == 11 or len(entries) > 1)
        steps.append(0)
        enter(self, parts)

    def step(self, go_on=batch.step):
        steps[-1] += 1
        return go_on(self)

    monkeypatch.setattr(Readers, "read_ahead", read)
    monkeypatch.setattr(batch, "add", add)
    monkeypatch.setattr(batch, "step", step)
    with Engine(short, JOINT, bounds=Bounds(batch_seconds=6.0)) as engine:
        first = engine.submit(path)
        wait_until(lambda: entries)
        wait([first, *(engine.submit(path) for _ in range(11))])
    apart = [since for running, since in entries if running]
    assert len(apart) > 2 and min(apart) == BETWEEN


def test_a_long_recording_leaves_room_and_steps_to_short_ones(short, tmp_path, monkeypatch):
    long, path = (write(tmp_path, *x) for x in [("long", spoken(1, 200)), ("a", spoken(2, 12))])
    batch, steps, most = jobs.RunningBatch, [], [0]

    def step(self, go_on=batch.step):
        steps.append(any(part.job.recording.duration > 30 for part in self.encoded))
        most.append(self.seconds * steps[-1])
        return go_on(self)

    monkeypatch.setattr(batch, "step", step)
    with Engine(short, JOINT, bounds=Bounds(batch_seconds=30.0)) as engine:
        hours = engine.submit(long)
        wait_until(lambda: True in steps)
        engine.submit(path).result(30)
        assert not hours.done()
    beside = steps[steps.index(False) : -steps[::-1].index(False)]
    assert beside.count(False) >= (LONG_EVERY - 1) * (beside.count(True) - 1) > 0
    assert 10 < max(most) <= LONG_SHARE * 30


class Steps:
    """A batch that takes three steps for each second."""

    by_label = True

    def __init__(self, searcher):
        self.running, self.encoded, self.steps = self, {}, 0

    def __len__(self):
        return len(self.encoded)

    @property
    def seconds(self):
        return sum(part.seconds for part in self.encoded)

    def add(self, parts):
        self.steps, self.encoded = 0, self.encoded | {part: 3 * part.seconds for part in parts}

    def step(self):
        self.steps += 1
        self.encoded = {part: left - 1 for part, left in self.encoded.items() if left > 1}
        return ()


def test_long_and_short_recordings_have_a_share_each():
    room = batches._Room(100.0, short=60.0, long=30.0)
    assert not room.take(20.0, True) and room.is_awaited and not room.take(5.0, False)
    room = batches._Room(100.0, short=10.0, long=70.0)
    assert not room.take(10.0, True) and room.take(15.0, False) and not room.take(1.0, False)


@each("most", [30.0, 120.0])
@each("pieces", [{"a": 4, "b": 20}, {"a": 25, "b": 25, "c": 7}, {"a": 35, "b": 3}], ids=str)
@each("count", [1, 30])
def test_nobody_waits_for_long(monkeypatch, pieces, most, count):
    """Uploads, and short recordings of other clients, which always have a next one."""
    monkeypatch.setattr(batches, "RunningBatch", Steps)
    searchers = Mock(device=torch.device("cpu"))
    made = batches.Batches(searchers, Mock(), most, lambda *_: None)
    seconds = pieces | {n: 1 + n % 3 for n in range(count)}
    own = {
        client: jobs.Job(client, Recording("", "", 0.0, 999.0 if client in pieces else x), JOINT)
        for client, x in seconds.items()
    }
    for job in own.values():
        made.begin(job)
    entered, read = dict.fromkeys(own, 0.0), Future()
    read.set_result(np.zeros(1))
    for _ in range(4000):
        for client, job in own.items():
            if not job.ahead:
                entered[client] += seconds[client]
                part = Recording("", "", entered[client], seconds[client])
                job.ahead.append(jobs.JobPart(job, part, read))
        made.admit()
        made.step()
    uploads = [entered[client] for client in pieces]
    assert min(uploads) > max(uploads) - 4 * max(seconds.values()) > 0
    assert min(entered.values()) > 50


@each("client", ["a", "b"])
def test_recordings_are_cut_in_turns(short, engine, tmp_path, monkeypatch, client):
    """While the first block of a long one is read a shorter one comes: from then on they take turns."""
    long, brief = write(tmp_path, "long", spoken(5, 80)), write(tmp_path, "brief", spoken(6, 23))
    monkeypatch.setattr(segmentation, "READ", 2.0)
    order, both = [], threading.Event()

    def load(path, *span):
        order.append(Path(path).stem)
        assert both.wait(30)
        return audio.load(path, *span)

    monkeypatch.setattr(segmentation, "audio", SimpleNamespace(load=load))
    futures = [engine.submit(long, client="a"), engine.submit(brief, client=client)]
    both.set()
    found = [future.result(60) for future in futures]
    count = order.count("brief")
    assert 2 <= count < len(order) // 2
    assert order == ["long", "brief"] * count + ["long"] * (len(order) - 2 * count)
    for got, path in zip(found, (long, brief), strict=True):
        assert_alike(got, alone(short, path))


def test_canceling_frees_what_waits_and_what_runs_and_changes_nobody_else(short, engine, tmp_path):
    long, other = write(tmp_path, "long", spoken(5, 400)), write(tmp_path, "other", spoken(7, 30))
    begun = threading.Event()
    future = engine.submit(long, progress=lambda _: begun.set())
    rest = engine.submit(other, client="b")
    assert begun.wait(30) and future.cancel()
    assert_alike(rest.result(30), alone(short, other))
    wait_until(lambda: engine.load == (0, 0, 0, 0))
    pytest.raises(CancelledError, future.result)


def test_utterances_that_are_dropped_leave_the_others_as_they_are(recognizer):
    searcher = Searcher(recognizer, replace(JOINT, length_bonus=0.5))
    encoded = encode(recognizer, [say(spoken(n, 12)) for n in range(6)])
    expected = dict(searcher.stream([(range(6), encoded.H, encoded.H_lens)]))
    running, found = Running(searcher), {}
    running.add(range(6), encoded.H, encoded.H_lens)
    for n in range(200):
        if n == 3:
            running.drop({1, 4})
        found |= dict(running.step())
    assert sorted(found) == [0, 2, 3, 5] and not len(running)
    for n, nbest in found.items():
        assert [one.tokens for one in nbest] == [one.tokens for one in expected[n]]
    running.add(range(2), encoded.H[:2], encoded.H_lens[:2])
    running.drop({0, 1})
    assert not len(running) and running.step() == []


def test_what_is_too_much_is_refused_and_what_is_closed_takes_nothing(short, tmp_path):
    path = write(tmp_path, "x", spoken(1, 20))
    with Engine(short, HOW, bounds=Bounds(requests=2, seconds=1e9)) as engine:
        running = [engine.submit(path), engine.submit(path)]
        pytest.raises(Full, engine.submit, path).match("2 recordings wait")
        texts = {one.result(30).text for one in running}
        assert engine.submit(path).result(30).text in texts
    pytest.raises(Closed, engine.submit, path)
    pytest.raises(Closed, engine.open, print)
    with Engine(short, HOW, bounds=Bounds(seconds=5.0)) as engine:
        first = engine.submit(path)
        pytest.raises(Full, engine.submit, path).match("hours of audio wait")
        first.result(30)


def test_closing_finishes_what_runs_or_gives_it_up(short, tmp_path):
    long = write(tmp_path, "long", spoken(5, 300))
    engine = Engine(short, HOW)
    future = engine.submit(long)
    engine.close()
    assert_alike(future.result(0), alone(short, long))
    engine, begun = Engine(short, HOW), threading.Event()
    future = engine.submit(long, progress=lambda _: begun.set())
    begun.wait(30)
    engine.close(0.0)
    pytest.raises(Closed, future.result, 1)
    assert not engine._thread.is_alive() and not Path(engine._readers._folder.name).exists()


@each(
    "planted, told",
    [(RuntimeError("planted"), RuntimeError), (MemoryError(), UserError), (MemoryError(), None)],
)
def test_a_fault_is_that_of_the_request_which_has_it(
    short, engine, tmp_path, monkeypatch, planted, told
):
    """The encoder's, with one of the recordings; or, where memory is short, with all that aren't alone."""

    def failing(recognizer, waves, *how):
        if any(abs(wave).max() > 0.8 for wave in waves) if told else len(waves) > 1:
            raise planted
        return encode(recognizer, waves, *how)

    paths = [write(tmp_path, n, spoken(n, 12)) for n in range(6)]
    soundfile.write(paths[3], say(spoken(3, 12)) * 3, RATE)
    expected = [alone(short, path) for path in paths]
    monkeypatch.setattr(jobs, "encode", failing)
    futures = [engine.submit(path, client=path) for path in paths]
    if told:
        assert isinstance(futures.pop(3).exception(30), told) and expected.pop(3)
    for future, found in zip(futures, expected, strict=True):
        assert_alike(future.result(30), found)


def test_a_file_that_is_lost_or_unreadable_fails_alone(engine, tmp_path):
    good, gone = (write(tmp_path, name, spoken(1, 60)) for name in ("good", "gone"))
    (tmp_path / "text.wav").write_text("no sound")
    refused("is text, not sound", engine.submit, tmp_path / "text.wav")
    recording = asr.transcription.find(gone)[0]
    (tmp_path / "gone.wav").unlink()
    lost, fine = engine.submit(recording), engine.submit(good)
    assert isinstance(lost.exception(30), UserError) and fine.result(30).text


def test_asyncio_awaits_and_cancels(short, engine, tmp_path):
    path, long = write(tmp_path, "x", spoken(1, 9)), write(tmp_path, "long", spoken(5, 400))

    async def ask(engine):
        texts = await asyncio.gather(*(engine.transcribe(path, client=n) for n in range(5)))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(engine.transcribe(long), 0.2)
        return {one.text for one in texts}

    assert asyncio.run(ask(engine)) == {alone(short, path).text}
    assert engine.submit(path).result(30).text  # soon, for the long one was left


def test_streams_beside_files_and_a_listener_that_fails(short, tmp_path):
    waveform, stream = say("--AB_CDA-------"), asr.stream(short, **vars(HOW))
    expected = [e for e in stream.push(waveform) + stream.finish() if hasattr(e, "segment")]
    path, seen, ended = write(tmp_path, "x", spoken(1, 9)), [], threading.Event()

    def listen(event):
        seen.append(event)
        ended.set() if event is None else None
        raise RuntimeError("planted")

    with Engine(short, HOW, bounds=Bounds(streams=1)) as engine:
        live, file = engine.open(listen).result(10), engine.submit(path)
        assert isinstance(engine.open(listen).exception(10), Full)
        live.feed(waveform)
        live.end()
        assert ended.wait(20) and file.result(20).text and live.backlog == 0
        engine.open(seen.append).result(10).feed(np.full(RATE, np.nan, np.float32))
        wait_until(lambda: isinstance(seen[-1], UserError))
    texts = [e.segment.text for e in seen if hasattr(e, "segment")]
    assert texts == [e.segment.text for e in expected]


def test_a_stream_is_read_no_further_while_final_results_are_searched_for(short, monkeypatch):
    """One label a turn is searched, and all that was said has arrived."""
    monkeypatch.setattr(streams, "FINALS", 0)
    searched, ended, seen = [0], threading.Event(), []

    def search(self, go_on=Streams.search):
        searched.append(len(self._finals))
        return go_on(self)

    def listen(event):
        seen.append(event)
        ended.set() if event is None else None

    monkeypatch.setattr(Streams, "search", search)
    with Engine(short, JOINT) as engine:
        live = engine.open(listen).result(10)
        live.feed(say("-ABCD-----" * 10))
        live.end()
        assert ended.wait(20)
    assert sum(isinstance(event, Final) for event in seen) == 10
    assert max(searched) == ENDED


def test_who_leaves_too_early_or_fails_to_listen_disturbs_nobody(short, engine, tmp_path):
    """Streams are canceled before the engine opens them; one who hears the results of a long file fails."""
    long, other = write(tmp_path, "long", spoken(1, 60)), write(tmp_path, "other", spoken(2, 6))
    failed = engine.submit(long, progress=lambda segments: 1 / 0)
    opened = [engine.open(print) for _ in range(50)]
    assert any(future.cancel() for future in opened)
    canceled = engine.submit(long)
    canceled.cancel()
    assert wait([canceled], 20).done == {canceled}
    assert isinstance(failed.exception(60), ZeroDivisionError)
    assert_alike(engine.submit(other).result(60), alone(short, other))
