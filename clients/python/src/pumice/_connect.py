"""Targets, and the settings of a channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

DEFAULT_TARGET = "127.0.0.1:7461"
_DEFAULT_PORT = ":7461"
_LARGEST_RESPONSE = 256 << 20

ChannelOptions = Sequence[tuple[str, Any]]

DEFAULTS: ChannelOptions = (
    ("grpc.max_receive_message_length", _LARGEST_RESPONSE),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # Calls go directly to the service, whatever proxy the environment names.
    ("grpc.enable_http_proxy", 0),
    # This library repeats calls itself: it knows which ones may be repeated.
    ("grpc.enable_retries", 0),
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Arguments of a channel; without credentials it is not encrypted."""

    target: str
    credentials: grpc.ChannelCredentials | None
    options: ChannelOptions


class _TokenFile(grpc.AuthMetadataPlugin):
    """Sends the token in a file, which is read for each call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, _context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        try:
            token = self.path.read_text().strip()
        except OSError as error:
            callback((), error)
        else:
            callback((("authorization", f"Bearer {token}"),), None)


def with_token(
    credentials: grpc.ChannelCredentials | None, token_file: str | Path, host: str
) -> grpc.ChannelCredentials:
    """Adds the token in a file to each call; it is read for each, so that a new token counts at once."""
    path = Path(token_file)
    if not path.read_text().strip():
        raise ValueError(f"token_file: {path} has no token")
    if credentials is None:
        name = host.rsplit(":", 1)[0].strip("[]")
        if host.startswith(("/", "unix:")):
            credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.UDS)
        elif name in {"localhost", "127.0.0.1", "::1"}:
            credentials = grpc.local_channel_credentials(grpc.LocalConnectionType.LOCAL_TCP)
        else:
            raise ValueError(f"token_file: everybody on the way to {host} could read the token; use https://")

    return grpc.composite_channel_credentials(credentials, grpc.metadata_call_credentials(_TokenFile(path)))


def split(target: str | Sequence[str]) -> list[str]:
    """Splits a target into addresses, in the order of preference; none may stand twice."""
    addresses = [one.strip() for one in (target.split(",") if isinstance(target, str) else target)]
    if not addresses or len(set(addresses)) < len(addresses):
        raise ValueError(f"target {target!r}: give addresses that differ, in the order of preference")
    return addresses


def resolve(
    target: str,
    credentials: grpc.ChannelCredentials | None,
    options: ChannelOptions,
    token_file: str | Path | None = None,
    *,
    several: bool = False,
) -> Endpoint:
    """Makes the arguments of a channel to `target`, which `connect` describes.

    Among several addresses the credentials are for those that do not say otherwise.
    """
    if several and target.startswith(("http://", "unix:", "/")):
        credentials = None
    if target.startswith("https://"):
        credentials = credentials or grpc.ssl_channel_credentials()
    plain, secure = target.startswith("http://"), target.startswith("https://")
    host = target.removeprefix("https://").removeprefix("http://").rstrip("/")
    if not host:
        raise ValueError(f"target {target!r}: the host is missing; give HOST:PORT, https://HOST or unix:PATH")
    if token_file is not None:
        credentials = with_token(credentials, token_file, host)
    target = host
    if ":" not in target and not Path(target).is_absolute():
        target += ":443" if secure else ":80" if plain else _DEFAULT_PORT
    settings = [*DEFAULTS, *options]
    if Path(target).is_absolute():
        target = f"unix:{target}"
    if target.startswith("unix:"):
        # Else the path would be the authority of each call, which HTTP/2 does not allow.
        settings.insert(0, ("grpc.default_authority", "localhost"))
    return Endpoint(target, credentials, settings)
