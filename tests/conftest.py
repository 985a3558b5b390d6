"""What all tests share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real recordings beside the checkout; tests that need it are skipped where it's absent."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"no real recordings: {folder} is absent")
    return folder
