"""Where to connect to, and with which settings of the channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

DEFAULT_TARGET = "127.0.0.1:7461"
_LARGEST_REPLY = 256 << 20

ChannelOptions = Sequence[tuple[str, Any]]

DEFAULTS: ChannelOptions = (
    ("grpc.max_receive_message_length", _LARGEST_REPLY),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # A decision is asked for directly, whatever proxy the environment names.
    ("grpc.enable_http_proxy", 0),
    # Retries are this library's: it knows which questions may be asked twice.
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a channel is made of; without credentials it is not encrypted."""

    target: str
    credentials: grpc.ChannelCredentials | None
    options: ChannelOptions


def resolve(target: str, credentials: grpc.ChannelCredentials | None, options: ChannelOptions) -> Endpoint:
    """`HOST:PORT`, `http://…`, `https://…`, `unix:PATH` or the path of a socket, as gRPC takes it."""
    if target.startswith("https://"):
        credentials = credentials or grpc.ssl_channel_credentials()
    target = target.removeprefix("https://").removeprefix("http://").rstrip("/")
    if not target:
        raise ValueError("the target is empty")
    settings = [*DEFAULTS, *options]
    if Path(target).is_absolute():
        target = f"unix:{target}"
    if target.startswith("unix:"):
        # Else the path would be the authority of each call, which HTTP/2 does not allow.
        settings.insert(0, ("grpc.default_authority", "localhost"))
    return Endpoint(target, credentials, settings)
