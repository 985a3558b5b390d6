"""What all tests share."""

import os
import signal
import sys
from pathlib import Path

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # tiny models: threads would wait for each other; before torch is imported

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from servers import Server  # noqa: E402

from asr import logging  # noqa: E402

settings.register_profile("same each time", deadline=None, derandomize=True)
settings.load_profile("same each time")


@pytest.fixture(autouse=True)
def shown_messages():
    """Show the library's messages on stderr, as commands do, for `capsys` to see them."""
    logging.show()


@pytest.fixture(autouse=True)
def no_training_left():
    """Kill the trainings (runs.py) that a test which failed has left running."""
    yield
    if "runs" in sys.modules:
        sys.modules["runs"].kill_launched()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real recordings beside the checkout; tests that need it are skipped where it's absent."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real recordings: {folder} is absent")
    return folder


@pytest.fixture(scope="session")
def root(tmp_path_factory) -> Path:
    """The folder of a corpus to train on (runs.py), where a file of tests makes none of its own."""
    from runs import make_root

    return make_root(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="session")
def whole(root):
    """A run on it: its folder, and the weights that it makes."""
    from runs import train, weights

    return root / "whole", weights(train(root, root / "whole"))


@pytest.fixture(scope="session")
def recognizer():
    """A recognizer for streams whose letters are tones (spoken.py)."""
    from spoken import fit

    return fit()


@pytest.fixture
def short(recognizer, monkeypatch):
    """The same, as if its training had known three seconds: more than four and a half are cut."""
    monkeypatch.setattr(recognizer, "longest", 3.0)
    for judge in ("is_noise", "is_doubtful"):  # tones hold their pitch as music does
        monkeypatch.setattr(f"asr.transcription.nonspeech.Spectra.{judge}", lambda *_: False)
    return recognizer


@pytest.fixture(scope="session")
def folder(recognizer, tmp_path_factory) -> Path:
    """The folder of its model, with recordings beside it."""
    from spoken import write_folder

    return write_folder(tmp_path_factory.mktemp("spoken"), recognizer)


@pytest.fixture(scope="module")
def transcribed(recognizer, tmp_path_factory):
    """What the function makes of a file's bytes."""
    from spoken import HOW

    import asr

    path = tmp_path_factory.mktemp("expected") / "x"

    def transcribed(content, recognizer=recognizer, **more):
        path.write_bytes(content)
        return asr.transcribe(recognizer, path, **vars(HOW) | more)

    return transcribed


@pytest.fixture(scope="module")
def client(recognizer):
    """A client of the application of posted.py, without a socket between them."""
    from fastapi.testclient import TestClient
    from posted import application

    with TestClient(application(recognizer), raise_server_exceptions=False) as made:
        yield made


@pytest.fixture(scope="module")
def address(recognizer):
    """Where a server of the same application listens."""
    from posted import application
    from served import serving

    from asr.serving import guard

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "DRAIN_SECONDS", 0.3)
        with serving(application(recognizer)) as address:
            yield address


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Commands in processes of their own, with a home that is empty."""
    from forks import Forks

    made = Forks(tmp_path_factory.mktemp("home"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def ready(tmp_path_factory):
    """Recordings in corpus/, and a model of one epoch, which knows next to nothing, in model/."""
    from runs import make_root, train

    root = make_root(tmp_path_factory.mktemp("ready"))
    train(root, root / "model", "training.epochs=1")
    return root


@pytest.fixture
def heeded():
    """SIGINT and SIGUSR1 as they come in processes that a test starts.

    What a process inherits as ignored it keeps so: SIGINT, where the tests are a job in the background of a script;
    SIGUSR1, which commands of earlier tests have ignored.
    """
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGUSR1: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def stderr(capsys):
    """What has been written on stderr since it was asked last."""
    return lambda: capsys.readouterr().err


@pytest.fixture
def server():
    """A server on this machine that misbehaves as told."""
    with Server() as server:
        yield server


@pytest.fixture
def second():
    """Another."""
    with Server() as server:
        yield server


@pytest.fixture
def waits(monkeypatch) -> list[float]:
    """The seconds that a download would have waited between its tries."""
    waits = []
    monkeypatch.setattr("asr.download.fetch.time.sleep", waits.append)
    return waits


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Escape lone surrogates (names that aren't UTF-8) in what was captured: xdist sends UTF-8."""
    report = yield
    report.sections = [
        (title, text.encode("utf-8", "backslashreplace").decode())
        for title, text in report.sections
    ]
    return report


@pytest.fixture
def threads():
    """Set the number of threads; it is put back."""
    import torch

    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def lettered(tmp_path_factory) -> Path:
    """The folder of a translator's texts to train on (lettered.py)."""
    from lettered import make_root

    return make_root(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="session")
def translator(lettered):
    """A training on it: its folder, and the weights that it makes."""
    from runs import train, weights

    return lettered / "whole", weights(train(lettered, lettered / "whole"))
