"""The limits of a server: the same names in Python and as options of asr-serve."""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass

from asr.options import check, option

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True)
class ServingOptions:
    """Limit requests, and say who may use the server."""

    max_megabytes: float = option(512.0, "largest upload; 413 if larger", least=0.001, most=1e6)
    max_minutes: float = option(240.0, "longest recording; 413 if longer", least=0.001, most=6000)
    max_requests: int = option(
        64,
        "requests at once, running or waiting; 429 if more, or if more than three quarters are from one address",
        least=1,
        most=100_000,
    )
    max_hours: float = option(
        24.0, "hours of audio of all requests at once; 429 if more", least=0.01, most=1e4
    )
    max_streams: int = option(16, "live streams at once; 429 if more", least=1, most=10_000)
    max_connections: int = option(256, "open connections; 503 if more", least=1, most=100_000)
    requests_per_minute: int = option(
        600, "requests from one address; 429 if more", least=1, most=10**6
    )
    receive_seconds: float = option(
        20.0, "wait for the next bytes of a request; 408 after that", least=0.05, most=3600
    )
    upload_seconds: float = option(
        900.0, "time for a whole upload; 408 after that", least=0.05, most=86_400
    )
    transcribe_seconds: float = option(
        7200.0, "time for a request to wait and run; 504 after that", least=0.05, most=86_400
    )
    shutdown_seconds: float = option(
        30.0, "time for running requests to finish after SIGTERM", least=0, most=3600
    )
    cors: str | None = option(
        None, "origins of other pages that may use the API, as in https://a.org,https://b.org, or *"
    )
    hosts: str | None = option(
        None,
        "host names to answer to, as in asr.a.org, or * for any; IP addresses always work; "
        "without a token, localhost and --host are added",
    )
    log_text: bool = option(False, "write the recognized text to the log")

    def __post_init__(self):
        check(self)

    @property
    def origins(self) -> list[str]:
        """Origins of other pages that may use the API."""
        return _list(self.cors)

    @property
    def names(self) -> list[str]:
        """Host names to answer to; empty: any."""
        return [name.lower() for name in _list(self.hosts)]

    def answers_to(self, name: str) -> bool:
        """Whether to answer to a host name; always to an address, which no DNS can redirect."""
        return not self.names or bool({"*", name} & {*self.names}) or _is_address(name)

    @property
    def requests_of_one(self) -> int:
        """Requests at once from one address, so that others find room."""
        return math.ceil(0.75 * self.max_requests)

    @property
    def most_bytes(self) -> int:
        """Bytes of the largest upload."""
        return round(self.max_megabytes * 1e6)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name[1:-1] if name[:1] + name[-1:] == "[]" else name)
    except ValueError:
        return False
    return True


def _list(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]
