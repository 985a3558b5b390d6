"""What is a mistake of the user's: an error that says what is wrong."""

import pytest

from asr.errors import UserError


def refused(says, call, *arguments, **options):
    """Call what must end in a UserError, whose one line has this pattern, or "" for any; the line."""
    with pytest.raises(UserError, match=says or None) as error:
        call(*arguments, **options)
    line = str(error.value)
    assert len(line.splitlines()) == 1
    return line
