"""Tell sound and text by the first bytes of a file."""


def looks_like_sound(head: bytes) -> bool:
    """Recognize the usual kinds of sound by their first bytes."""
    return head.startswith(
        (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"NIST_1A")
    )


def is_text(head: bytes) -> bool:
    """Tell text by its first bytes: UTF-8 (the last character may be cut) without control characters."""
    text = head.decode("utf-8", errors="ignore")
    return len(text.encode()) > len(head) - 4 and all(c.isprintable() or c.isspace() for c in text)
