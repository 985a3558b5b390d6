"""Many processes and parts: the same bytes whatever their number, and whichever of them die.

Expected outputs are those of one process that nothing disturbed. Processes die by signals, and by a recording at which
a process ends (sitecustomize.py, which each new interpreter runs).
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs import end, in_group, status_of
from small import each, rows, slow
from tones import write_corpus

from asr.cli import decode
from asr.errors import UserError
from asr.parts import Part, parse
from asr.transcription.processes import Workers
from asr.transcription.recordings import Recording, find

FATAL = """
import os
if os.path.exists("fatal"):
    from asr.audio import load as audio
    load = audio.load
    def fatal(path, *more):
        if os.path.exists("fatal") and str(path) == open("fatal").read():
            {action}
        return load(path, *more)
    audio.load = fatal
"""
ONCE, ALWAYS, FAULT = "os.remove('fatal'); os._exit(9)", "os._exit(9)", "raise LookupError(path)"


@pytest.fixture
def run(ready, tmp_path, stderr, monkeypatch):
    """Run asr-decode in a folder that has 16 recordings in wavs/; its exit status and messages."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "wavs", {"file": 16}, seed=5)

    def run(*arguments):
        return status_of(decode.main, *command(ready)[3:], *arguments), stderr()

    return run


def command(ready, mode="ctc-greedy"):
    """Pieces of a second: about as many as recordings."""
    words = ["-m", "asr.cli.decode", "--model", ready / "model", "--mode", mode]
    return [sys.executable, *map(str, words), "--batch-seconds", "0.4"]


def outputs(name):
    return [Path(f"{name}.{kind}").read_bytes() for kind in ("txt", "json")]


def to(name):
    return ["--out", f"{name}.txt", "--json", f"{name}.json"]


def fatal(monkeypatch, path, action):
    """Have new processes end, or fail, at a recording."""
    Path("sitecustomize.py").write_text(FATAL.format(action=action))
    Path("fatal").write_text(path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.getcwd(), str(Path(__file__).parents[1])]))


# --- pieces


DURATIONS = st.lists(st.floats(0.01, 4000), max_size=40)


@given(DURATIONS, st.sampled_from([None, 0.5, 120.0, 2000.0]), st.booleans())
def test_pieces_are_the_list_and_depend_on_it_alone(durations, batch_seconds, gpus):
    recordings = [Recording(f"{n}", "x", 0.0, d) for n, d in enumerate(durations)]
    pieces = Workers(1, gpus).pieces(recordings, batch_seconds)
    assert sorted((r for p in pieces for r in p), key=lambda r: int(r.id)) == recordings
    assert Workers(9, gpus).pieces(recordings, batch_seconds) == pieces and all(pieces)
    most = 3 * (batch_seconds or (2000.0 if gpus else 120.0))
    assert all(len(p) == 1 or sum(r.duration for r in p) <= most * 1.001 for p in pieces)


# --- processes


@slow
def test_two_processes_give_the_bytes_of_one_and_the_texts_of_none(run):
    """Also where a recording is bad, and what was finished isn't done again."""
    assert run("wavs", *to("none"))[0] == run("wavs", "--processes", 1, *to("one"))[0] == 0
    assert run("wavs", "--processes", 2, *to("two"))[0] == 0
    assert outputs("two") == outputs("one") and outputs("none")[0] == outputs("one")[0]
    assert "up to date" in run("wavs", "--processes", 3, *to("two"))[1]
    Path("bad.wav").touch()
    status, err = run("bad.wav", "wavs", "--processes", 2, *to("three"))
    assert status == 3 and "bad.wav: is empty" in err and outputs("three") == outputs("one")
    assert run("wavs", "--processes", 2, "--out", "x", "--model", "none")[0] == 2


@slow
@each("action, status", [(ONCE, 0), (ALWAYS, 2), (FAULT, None)])
def test_a_process_that_dies_has_its_piece_done_by_another(run, monkeypatch, action, status):
    path = "wavs/file007.wav"
    run("wavs", "--processes", 1, *to("one"))
    fatal(monkeypatch, path, action)
    again = ["wavs", "--processes", 2, *to("two")]
    if action == FAULT:  # no user's mistake
        with pytest.raises(RuntimeError, match=f"(?s)process [12] failed:.*LookupError: {path}"):
            run(*again)
    else:
        found, err = run(*again)
        assert found == status and "died with status 9; another takes over" in err
        assert "Traceback" not in err and (status == 0 or "3 processes died while" in err)
        assert status == 0 or path in err.splitlines()[-1]
    if status != 0:
        assert Path(".two.txt.journal").exists()  # what is finished
        Path("fatal").unlink()
        assert run(*again)[0] == 0
    assert outputs("two") == outputs("one")


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def children(pid):
    """Worker processes: pids."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    lines = ((int(child), Path(f"/proc/{child}/cmdline")) for child in listed)
    return [pid for pid, line in lines if line.exists() and b"spawn_main" in line.read_bytes()]


def journaled(name):
    path = Path(f".{name}.txt.journal")
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def wait_for_lines(process, name, number):
    while journaled(name) < number:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.002)


def deaf_to_interrupts(pid):
    """Whether a process blocks or ignores SIGINT."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigBlk", "SigIgn"))]
    return any(mask >> (signal.SIGINT - 1) & 1 for mask in masks)


@slow
@needs_proc
@each("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_stopped_command_ends_its_processes_and_goes_on(ready, heeded, run, number, status):
    """The signal comes to the whole group, as from a terminal, or SIGKILL to the collecting process alone."""
    run("wavs", "--mode", "joint", "--processes", 1, *to("joint"))
    process = in_group([*command(ready, "joint"), "wavs", "--processes", "2", *to("two")])
    wait_for_lines(process, "two", 2)
    workers = children(process.pid)
    assert workers and all(deaf_to_interrupts(worker) for worker in workers)
    (os.kill if number == signal.SIGKILL else os.killpg)(process.pid, number)
    assert "Traceback" not in end(process, status)
    last = time.monotonic() + 30
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < last, "a process is left"
        time.sleep(0.05)
    kept = journaled("two")
    found, err = run("wavs", "--mode", "joint", "--processes", 2, *to("two"))
    assert found == 0 and f"going on: {kept} recordings" in err
    assert outputs("two") == outputs("joint")


@slow
@needs_proc
def test_200_pieces_on_four_processes_of_which_three_are_killed(ready, run, tmp_path):
    write_corpus(tmp_path / "many", {"file": 400}, seed=6)
    assert len(Workers(4).pieces(find("many"), 0.4)) >= 200
    run("many", "--mode", "joint", "--processes", 1, *to("one"))
    process = in_group([*command(ready, "joint"), "many", "--processes", "4", *to("four")])
    killed = set()
    for finished in (20, 60, 100):
        wait_for_lines(process, "four", finished)
        victim = next(pid for pid in children(process.pid) if pid not in killed)
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)
    said = end(process, 0, seconds=300)
    assert said.count("died by SIGKILL") == len(killed) == 3, said
    assert outputs("four") == outputs("one")


@slow
def test_a_log_says_how_far_it_is_and_how_long_it_will_take(run, monkeypatch):
    monkeypatch.setattr("asr.transcription.decoding.REPORT_SECONDS", 0.0)
    reports = [x for x in run("wavs", "--out", "x")[1].splitlines() if "of audio; about" in x]
    assert len(reports) == 16 and reports[-1].startswith("16 of 16 recordings, 0.0 of 0.0 h")
    assert reports[-1].endswith("about 0 min left")


# --- parts


@given(st.integers(0, 50), st.integers(1, 60))
def test_parts_joined_are_the_list_and_of_one_size(length, count):
    parts = [Part(n, count).of(list(range(length))) for n in range(1, count + 1)]
    assert [one for part in parts for one in part] == list(range(length))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


ARRAYS = rows("""
3/200    |                                                                                 | 3/200
auto     | SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=9             | 7/9
auto     | SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_MAX=9             | auto/N
auto     | SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=9 SLURM_ARRAY_TASK_STEP=2 | auto/N
auto/20  | SLURM_ARRAY_TASK_ID=7 SLURM_ARRAY_TASK_MIN=3 SLURM_ARRAY_TASK_MAX=9             | 7/20
auto     | SGE_TASK_ID=2 SGE_TASK_FIRST=1 SGE_TASK_LAST=4 SGE_TASK_STEPSIZE=1              | 2/4
auto     | SGE_TASK_ID=undefined                                                           | no task of an array
auto     | PBS_ARRAY_INDEX=2                                                               | auto/N
auto/5   | PBS_ARRAY_INDEX=2                                                               | 2/5
auto/5   | PBS_ARRAY_INDEX=0                                                               | got 0/5
auto     | LSB_JOBINDEX=2 LSB_JOBINDEX_END=4                                               | 2/4
auto     | LSB_JOBINDEX=0                                                                  | no task of an array
auto     |                                                                                 | no task of an array
0/3      |                                                                                 | got 0/3
4/3      |                                                                                 | got 4/3
3        |                                                                                 | expected I/N
""")


@each("text, environment, expected", ARRAYS)
def test_parts_are_named_or_known_from_a_scheduler(text, environment, expected):
    environment = dict(word.split("=") for word in environment.split())
    if expected.replace("/", "").isdecimal():
        assert str(parse(text, environment)) == expected
    else:
        with pytest.raises(UserError, match=expected) as error:
            parse(text, environment)
        assert error.value.argument == "part"


@slow
def test_parts_are_joined_and_those_that_are_missing_named(run):
    """More parts than recordings, a bad recording alone in its part, a part of other options."""
    Path("bad.wav").touch()
    given = ["bad.wav", "wavs", "--channel", "0"]
    assert run(*given, *to("whole"))[0] == 3
    found = [run(*given, *to("parts"), "--part", f"{n}/20")[0] for n in range(1, 20)]
    assert sorted(found) == [0] * 18 + [3]
    assert run(*given, *to("parts"), "--part", "20/20", "--nbest", 2, "--mode", "ctc")[0] == 0
    status, err = run(*given, *to("parts"), "--join", 20)
    assert status == 2 and "1 of 20 parts are missing" in err and "(20/20)" in err
    assert not Path("parts.txt").exists()
    assert run(*given, *to("parts"), "--part", "20/20")[0] == 0
    status, err = run(*given, *to("parts"), "--join", 20)
    assert status == 3
    parts, whole = map(outputs, ("parts", "whole"))
    assert parts[0] == whole[0]
    found, expected = ([json.loads(x)["text"] for x in j.splitlines()] for _, j in (parts, whole))
    assert found == expected
    assert Path("parts.txt.failed.tsv").read_text() == Path("whole.txt.failed.tsv").read_text()


@slow
def test_a_join_without_failures_is_the_work_of_the_undivided_command(run):
    for n in (2, 1):
        assert run("wavs", *to("x"), "--part", f"{n}/2", "--processes", 1)[0] == 0
    assert run("wavs", *to("x"), "--join", 2)[0] == 0
    assert "up to date" in run("wavs", *to("x"))[1]
    assert "up to date" in run("wavs", *to("x"), "--part", "1/2")[1]


UNDIVIDED = """
--part 1/2
--part 1/2 --out -
--part 1/2 --join 2 --out x
--join 0 --out x
--processes 0
--processes 2 --gpus 1
--processes 2 --device cuda
--gpus 3 --out x
"""


@each("more", UNDIVIDED.split("\n")[1:-1])
def test_what_cannot_be_divided_is_refused(run, more):
    status, err = run("wavs", *more.split())
    assert status == 2 and err.count("\n") == 1 and "--" in err
