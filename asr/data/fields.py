"""What ids, speakers, paths and texts can hold, so that lines of `id<TAB>text` can be read again.

Names are written to text files, terminals and archives. So they have no control characters (some
control a terminal), no line ends of any kind, no halves of surrogate pairs (which UTF-8 can't
write), and no white space at their ends.
"""

import re

LONGEST = 4096  # characters of a name
IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
IN_TEXTS = re.compile(
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ud800-\udfff]"
)  # other control characters are white space


def fault(name: str) -> str | None:
    """Describe what is wrong with an id or a speaker's name; None if it is valid.

    >>> fault("a\\tb")
    'has a control character (U+0009)'
    """
    if not name:
        return "is empty"
    if name != name.strip() or name[0] == "\ufeff":
        return "begins or ends with white space"
    if len(name) > LONGEST:
        return f"has {len(name):,} characters, expected at most {LONGEST:,}"
    return hidden(name, IN_NAMES)


def fault_of_text(text: str) -> str | None:
    """Describe what is wrong with a text, where all white space counts as spaces; None if it is valid."""
    return hidden(text, IN_TEXTS)


def hidden(text: str, characters: re.Pattern = IN_NAMES) -> str | None:
    """Describe the first forbidden character of a text; None if it has none."""
    if not (found := characters.search(text)):
        return None
    code = ord(found[0])
    if 0xDC80 <= code < 0xDD00:  # Python's way of reading a file name
        return f"isn't UTF-8 (byte 0x{code - 0xDC00:02x})"
    kind = "half a surrogate pair" if 0xD800 <= code < 0xE000 else "a control character"
    return f"has {kind} (U+{code:04X})"


def shown(name: str, most: int = 100) -> str:
    """Make a name printable, whatever it holds.

    >>> shown("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    name = name if len(name) <= most else f"{name[:most]}…"
    return IN_NAMES.sub(lambda found: ascii(found[0])[1:-1], name)
