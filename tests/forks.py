"""Commands in processes of their own, forked from one that has imported everything and computed nothing.

A command takes 0.1 s so, where a new interpreter takes seconds to import torch. The forked process ends as the
interpreter ends one, uncaught exceptions and streams that can't be flushed included, but for the seconds that it takes
to take all of torch apart.

Run as a program, this is the process that forks: it reads a request a line, JSON, and answers a line each.
"""

import atexit
import contextlib
import faulthandler
import importlib
import io
import json
import os
import pkgutil
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

MEMORY = 4 << 30  # bytes beyond what the imports take, unless a request says otherwise
LINUX_CAPABILITY_VERSION_3, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER = 0x20080522, 1, 2, 3


@dataclass(frozen=True)
class Result:
    """status: of the exit; -9 and such after a signal, None where the time was over. Seconds, and what was said."""

    status: int | None
    out: str
    err: str
    seconds: float


class Forks:
    """The process that forks. `run` takes a command's arguments, and how its process is to be (bad_inputs/)."""

    def __init__(self, home: Path):
        nobody = "http://127.0.0.1:9"  # nobody listens there: no test asks a server of the world
        proxies = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        paths = f"{Path(__file__).parents[1]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        self.env = {
            **os.environ,
            **dict.fromkeys(proxies, nobody),
            **dict.fromkeys(threads, "1"),
            "PYTHONPATH": paths,
            "no_proxy": "127.0.0.1",
            "HOME": str(home),
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.env
        )

    def run(self, arguments: list[str], cwd: Path, seconds: float = 60, **how) -> Result:
        """Run a command to its end, or for a number of seconds; with `env` in a new interpreter."""
        if "env" in how or how.pop("real", False):
            return self._anew(arguments, cwd, seconds, how.get("env", {}))
        request = {"arguments": arguments, "cwd": str(cwd), "seconds": seconds, **how}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        return Result(**json.loads(self._process.stdout.readline()))

    def _anew(self, arguments: list[str], cwd: Path, seconds: float, changes: dict) -> Result:
        """Run a command in a new interpreter."""
        env = {name: value for name, value in (self.env | changes).items() if value is not None}
        name, *rest = arguments
        script = f"import sys; sys.argv[0] = {name!r}; from {module(name)} import main; main()"
        begun = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, "-c", script, *rest],
                cwd=cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            return Result(None, "", "", seconds)
        took = time.monotonic() - begun
        return Result(done.returncode, text(done.stdout), text(done.stderr), took)

    def close(self) -> None:
        """End."""
        self._process.stdin.close()
        self._process.wait(60)


def module(name: str) -> str:
    """Where a command's main stands; `planted-NAME` are faults, for the tests of the tests."""
    return "planted" if name.startswith("planted-") else f"asr.cli.{name.removeprefix('asr-')}"


def text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def serve() -> None:
    """Fork for each request."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import_all()
    base = memory_of_data()
    for line in requests:
        request = json.loads(line)
        out, err = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            requests.close()
            answers.close()
            become(request, out[1], err[1], base)
            os._exit(finished(importlib.import_module(module(request["arguments"][0])).main))
        os.close(out[1])
        os.close(err[1])
        answers.write(json.dumps(watch(child, out[0], err[0], request["seconds"])).encode() + b"\n")
        answers.flush()


def import_all() -> None:
    """Import all that commands import late."""
    import asr

    sys.path.insert(0, str(Path(__file__).parent))
    own = (each.name for each in pkgutil.walk_packages(asr.__path__, "asr."))
    others = "matplotlib.backends.backend_agg", "sentencepiece"
    for name in (*own, "torch._dynamo", "torch.utils.tensorboard", *others):
        importlib.import_module(name)
    tasks = Path("/proc/self/task")
    assert not tasks.is_dir() or len(list(tasks.iterdir())) == 1, "a fork would lose threads"


def memory_of_data() -> int:
    """Bytes of this process that RLIMIT_DATA counts."""
    try:
        return int(Path("/proc/self/status").read_text().split("VmData:")[1].split()[0]) << 10
    except (OSError, IndexError):
        return 0


def become(request: dict, out: int, err: int, base: int) -> None:
    """Make a forked process what the request says, up to its standard streams."""
    os.setsid()
    os.chdir(request["cwd"])
    os.environ.update(request.get("more_env", {}))
    piped, feeding = os.pipe()
    os.write(feeding, request.get("stdin", "").encode())
    os.close(feeding)
    os.dup2(piped if "stdin" in request else os.open(os.devnull, os.O_RDONLY), 0)
    for number, name, usual in ((1, "stdout", out), (2, "stderr", err)):
        given = request.get(name, "")
        if given is None:
            os.close(number)
        else:
            os.dup2(os.open(given, os.O_WRONLY) if given else usual, number)
    os.close(out)
    os.close(err)
    streams()
    faulthandler.register(signal.SIGUSR2)
    if "cwd_in" in request:
        folder = request["cwd_in"]
        os.chdir(folder.removesuffix("!"))
        if folder.endswith("!"):
            os.rmdir(os.getcwd())
    limit(resource.RLIMIT_DATA, base + request.get("memory", MEMORY))
    limit(resource.RLIMIT_CORE, 0)
    if "file_bytes" in request:
        limit(resource.RLIMIT_FSIZE, request["file_bytes"])
    if request.get("user"):
        without_roots_rights()
    if request.get("hasty"):
        from asr.download import fetch

        fetch.SILENCE = 1
        time.sleep = lambda seconds: None
    sys.argv = request["arguments"]


def streams() -> None:
    """The standard streams, as the interpreter opens them when it begins."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            raw = io.FileIO(number, mode, closefd=False)
        except OSError:  # closed
            stream = None
        else:
            buffer = io.BufferedReader(raw) if mode == "r" else io.BufferedWriter(raw)
            errors = "backslashreplace" if number == 2 else "strict"
            stream = io.TextIOWrapper(buffer, "utf-8", errors, line_buffering=number == 2)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def limit(what: int, most: int) -> None:
    """Set a limit of this process."""
    resource.setrlimit(what, (most, resource.getrlimit(what)[1]))


def without_roots_rights() -> None:
    """Give up what lets root read and write whatever the permissions say."""
    import ctypes

    if os.geteuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    head, data = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    assert libc.capget(head, data) == 0
    for n in (0, 1, 2):  # effective, permitted, inheritable
        data[n] &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH | 1 << FOWNER)
    assert libc.capset(head, data) == 0


def finished(main) -> int:
    """Run a command to its end as the interpreter does a script, and its exit status."""
    try:
        main()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if not isinstance(error.code, int | None):
            print(error.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - whatever it is
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception as error:  # noqa: BLE001 - as the interpreter has it
            status = 120
            with contextlib.suppress(Exception):
                said = f"{type(error).__name__}: {error}"
                print(f"Exception ignored in: {stream!r}\n{said}", file=sys.stderr)
    return status & 0xFF


def watch(child: int, out: int, err: int, seconds: float) -> dict:
    """Read what a forked process says until it ends, or its time is over; then end all that it has begun."""
    begun, said, status = time.monotonic(), {out: b"", err: b""}, None
    open_ = {out, err}

    def read(patience: float) -> bool:
        ready = select.select(list(open_), [], [], patience)[0]
        for number in ready:
            block = os.read(number, 1 << 16)
            said[number] += block
            if not block:
                open_.discard(number)
        return bool(ready)

    while status is None and time.monotonic() - begun < seconds:
        read(0.01)
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            status = os.waitstatus_to_exitcode(code)
    if status is None:
        os.kill(child, signal.SIGUSR2)  # it says where it is
        time.sleep(0.3)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if status is None:
        os.waitpid(child, 0)
    while read(0):
        pass
    os.close(out)
    os.close(err)
    took = round(time.monotonic() - begun, 3)
    return {"status": status, "out": text(said[out]), "err": text(said[err]), "seconds": took}


if __name__ == "__main__":
    serve()
