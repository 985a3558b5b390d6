"""Standard streams that are full, closed or left, signals, memory: one line and the right status, by whole commands."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
from runs import status_of

from asr import memory
from asr.cli.command import command
from asr.logging import logger, printable

each = pytest.mark.parametrize
PRINTS = """
import sys
from asr.cli.command import command, emit, parser
from asr.logging import logger
@command
def main(argv):
    logger.info("a word to the person")
    for n in range(int(argv[0])): {print}
    open(argv[1], "w").write("done")
main()
"""


def shell(redirected, folder, count=1, how="emit('result')", **environment):
    """Run a command that prints with its streams redirected by a shell; its status, and what it said and did."""
    (folder / "x.py").write_text(PRINTS.format(print=how), "utf-8")
    line = f"{sys.executable} {folder}/x.py {count} {folder}/file {redirected}"
    given = ["env", "-u", "PYTHONUNBUFFERED", "bash", "-c", line]
    env = os.environ | environment
    done = subprocess.run(given, capture_output=True, text=True, timeout=60, env=env)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr, done.stderr
    return done


@each("count, how", [(1, "emit('result')"), (9999, "emit('result')"), (1, "sys.stdout.write('x')")])
def test_a_full_or_closed_stdout_is_one_line_and_status_2(tmp_path, count, how):
    for redirected, why in ((">/dev/full", "No space left on device"), (">&-", "it is closed")):
        done = shell(redirected, tmp_path, count, how)
        said = f"standard output can't be written ({why}); what was printed isn't complete\n"
        assert done.returncode == 2 and done.stderr.endswith(said), done.stderr


@each(
    "redirected, count, stdout, stderr",
    [
        (">&-", 0, "", "a word to the person\n"),
        ("2>&-", 1, "result\n", ""),
        ("2>/dev/full", 1, "result\n", ""),
        ("0<&- 2>&-", 1, "result\n", ""),
        ("<&- >&- 2>&-", 0, "", ""),
    ],
)
def test_closed_streams_leave_the_rest_as_it_is(tmp_path, redirected, count, stdout, stderr):
    """Where nothing is to be written on them; and no file that is opened takes their place."""
    done = shell(redirected, tmp_path, count)
    assert (done.returncode, done.stdout, done.stderr) == (0, stdout, stderr)
    assert (tmp_path / "file").read_text() == "done"


def test_results_are_utf8_whatever_the_locale(tmp_path):
    done = shell("", tmp_path, 1, "emit('é 漢')", LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.stdout == "é 漢\n"


def interrupted(main, *signals, **more):
    """A command whose main is given, sent the signals as it prints lines; its status and what it wrote on stderr."""
    script = f"""
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from asr.cli.command import command
from asr.files import replacing
@command(hint='it was little')
def main(argv):
{textwrap.indent(main, "    ")}
main([])
"""
    more |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], text=True, **more) as process:
        for number in signals:
            process.stdout.readline()
            process.send_signal(number)
        error = process.communicate(timeout=30)[1]
    return process.returncode, error


@each("number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_command_with_their_status_and_clean_up(tmp_path, number, status):
    main = """
with replacing('out') as path:
    path.write_text('half')
    print(flush=True)
    time.sleep(60)
"""
    returned, error = interrupted(main, number, cwd=tmp_path)
    assert returned == status
    assert error.endswith("stopped; it was little\n") and error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_second_sigterm_ends_at_once():
    main = """
try:
    print(flush=True)
    time.sleep(60)
finally:
    print(flush=True)
    time.sleep(60)
"""
    assert interrupted(main, signal.SIGTERM, signal.SIGTERM)[0] == -signal.SIGTERM


def run(capsys, act):
    """Run a command in this process that calls `act`; its exit status and what it wrote on stderr."""
    return status_of(command(lambda argv: act())), capsys.readouterr().err


def throw(error):
    raise error


def test_a_handler_that_was_there_stays():
    before = signal.getsignal(signal.SIGTERM)
    command(lambda argv: None)([])
    assert signal.getsignal(signal.SIGTERM) == before


@each("error, fact", [(MemoryError(), "out of memory"), (RecursionError(), "nested too deeply")])
def test_memory_and_depth_are_one_line(capsys, error, fact):
    status, log = run(capsys, lambda: throw(error))
    assert status == 2 and fact in log and log.count("\n") == 1


def test_a_fault_of_the_program_is_a_traceback():
    with pytest.raises(ValueError, match="ours"):
        command(lambda argv: throw(ValueError("ours")))([])


def test_a_main_s_status_is_the_command_s(capsys):
    assert run(capsys, lambda: 3) == (3, "")


def test_nothing_said_can_steer_a_terminal(stderr):
    logger.info("a\x1b[2Jb\x9bc\u202ed\ue000é\udce9\n  second line")
    assert stderr() == "a\\x1b[2Jb\\x9bc\\u202ed\ue000é\\udce9\n  second line\n"
    assert printable("plain é 漢\t1") == "plain é 漢\t1"


LIMITED = """
import torch, resource
from asr import memory
before = resource.getrlimit(resource.RLIMIT_DATA)
memory.available = lambda: 2 << 30
try:
    with memory.limited():
        torch.zeros(3 << 30, dtype=torch.uint8).fill_(1)
except (RuntimeError, MemoryError) as error:
    assert memory.is_oom(error), error
else:
    raise SystemExit('no error')
assert resource.getrlimit(resource.RLIMIT_DATA) == before
torch.zeros(3 << 30, dtype=torch.uint8)
"""


@pytest.mark.slow
def test_the_limit_of_memory_makes_its_end_an_error_and_is_lifted_again():
    done = subprocess.run([sys.executable, "-c", LIMITED], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr


@each(
    "names, limit, free",
    [
        ("max current", 4000, 4000 - 3950 + 1200 + 700),
        ("limit_in_bytes usage_in_bytes", 3000, 950),
        ("max current", "max", None),
    ],
)
def test_files_in_the_cache_of_a_container_are_free(tmp_path, names, limit, free):
    """`current` counts them, and the kernel gives them back."""
    files = "anon 1000\ninactive_file 1200\nactive_file 700\nslab 5"
    for name, content in zip([*names.split(), "stat"], (limit, 3950, files), strict=True):
        (tmp_path / f"memory.{name}").write_text(f"{content}\n")
    assert memory.container_free(tmp_path) == free


@pytest.mark.usefixtures("heeded")
@each("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_that_a_library_makes_another_error_of_is_a_stop(capsys, number):
    """As pydantic does of a Ctrl-C while its classes are made."""

    def act():
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        except KeyboardInterrupt:
            raise ValueError("a class can't be built: KeyboardInterrupt") from None

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        status, log = run(capsys, act)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert status == 128 + number and "stopped" in log
