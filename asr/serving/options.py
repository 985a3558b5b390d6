"""What a server allows: the same names in Python and as options of asr-serve."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from asr.options import check, option

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class ServingOptions:
    """Limits of requests, and what is shown to whom."""

    max_megabytes: float = option(512.0, "of an upload; 413 beyond", least=0.001, most=1e6)
    max_minutes: float = option(240.0, "of audio in a file; 413 beyond", least=0.001, most=6000)
    max_requests: int = option(
        64, "transcriptions that arrive, wait or run; 429 beyond", least=1, most=100_000
    )
    max_hours: float = option(
        24.0, "of audio that wait or run together; 429 beyond", least=0.01, most=1e4
    )
    max_streams: int = option(16, "live streams at once; 429 beyond", least=1, most=10_000)
    max_connections: int = option(256, "open connections; 503 beyond", least=1, most=100_000)
    requests_per_minute: int = option(600, "of an address; 429 beyond", least=1, most=10**6)
    receive_seconds: float = option(
        20.0, "without a byte of a request; 408 then", least=0.05, most=3600
    )
    upload_seconds: float = option(
        900.0, "that an upload may take in all; 408 then", least=0.05, most=86_400
    )
    transcribe_seconds: float = option(
        7200.0, "that a request may wait and run; 504 then", least=0.05, most=86_400
    )
    shutdown_seconds: float = option(
        30.0, "that running requests have to end after SIGTERM", least=0, most=3600
    )
    cors: str | None = option(
        None, "origins of other pages that may ask, such as https://a.org,https://b.org; or *"
    )
    hosts: str | None = option(
        None,
        "names by which it may be asked, such as asr.a.org, beside addresses; * for any; "
        "without a token also localhost and the name of --host",
    )
    log_text: bool = option(False, "log what was recognized, too")

    def __post_init__(self):
        check(self)

    @property
    def origins(self) -> list[str]:
        """Pages elsewhere that may ask."""
        return _list(self.cors)

    @property
    def names(self) -> list[str]:
        """Names by which it may be asked; none: by any."""
        return [name.lower() for name in _list(self.hosts)]

    def answers_to(self, name: str) -> bool:
        """Whether it may be asked by a name; an address is always right, for no DNS can lead it elsewhere."""
        return not self.names or bool({"*", name} & {*self.names}) or _is_address(name)

    @property
    def most_bytes(self) -> int:
        """Of an upload."""
        return round(self.max_megabytes * 1e6)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name[1:-1] if name[:1] + name[-1:] == "[]" else name)
    except ValueError:
        return False
    return True


def _list(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]
