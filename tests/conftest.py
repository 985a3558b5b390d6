"""What all tests share."""

import os
from pathlib import Path

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # tiny models: threads would wait for each other; before torch is imported

import pytest  # noqa: E402


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real recordings beside the checkout; tests that need it are skipped where it's absent."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real recordings: {folder} is absent")
    return folder
