"""The address of a Qdrant server and the name of a collection, checked before anything is sent."""

import ssl
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

LOCAL = ":memory:"
"""The URL of the client's own in-process store, for tests."""
REST_PORT, GRPC_PORT = 6333, 6334
LOOPBACK = ("localhost", "127.0.0.1", "::1")
MAX_NAME = 255
"""Maximum characters of the name of a collection, by the server's rule."""
_REFUSED = frozenset('<>:"/\\|?*\0\x1f')
"""Characters that a server refuses in the name of a collection."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where a collection is, and how its server is reached.

    Args:
        url, collection, prefer_grpc, grpc_port, verify: as for `QdrantIndex`.

    Raises:
        ValueError: an argument cannot be used; the message names the fix.
    """

    url: str
    collection: str
    prefer_grpc: bool = False
    grpc_port: int | None = None
    verify: bool | str = True

    def __post_init__(self) -> None:
        _check_collection(self.collection)
        if self.url not in (LOCAL, ""):
            _check_url(self.url)
        if isinstance(self.verify, str) and not Path(self.verify).is_file():
            raise ValueError(f"verify names {self.verify!r}, which is not a file: give a CA file")
        if self.prefer_grpc and self.verify is False:
            raise ValueError("gRPC always checks certificates: name the CA file with verify=")
        if self.prefer_grpc and self.url not in (LOCAL, ""):
            _ = self._grpc_port

    @property
    def _grpc_port(self) -> int:
        if self.grpc_port is not None:
            return self.grpc_port
        if _rest_port(self.url) not in (None, REST_PORT):
            raise ValueError(
                f"the gRPC port of a server whose REST port is not {REST_PORT} is not known: "
                "give grpc_port="
            )
        return GRPC_PORT

    @property
    def is_readable_on_the_way(self) -> bool:
        """Whether others on the network can read what is sent: it is neither encrypted nor for
        this machine.
        """
        parts = _split(self.url)
        return parts.scheme != "https" and parts.hostname not in LOOPBACK

    def settings(self) -> dict[str, Any]:
        """Return the arguments of `QdrantIndex` that this address was made from, except those with
        their default value.
        """
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in given.items() if value != defaults[name]}

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of a client for this address, without those for gRPC limits."""
        found: dict[str, Any] = {"url": self.url, "prefer_grpc": self.prefer_grpc}
        if _has_path(self.url):
            found["port"] = None  # a proxy listens on the port of the scheme
        if self.prefer_grpc:
            found["grpc_port"] = self._grpc_port
        if isinstance(self.verify, str):
            found["verify"] = ssl.create_default_context(cafile=self.verify)
        elif not self.verify:
            found["verify"] = False
        elif _split(self.url).scheme == "http":  # no TLS: the CAs need not be read
            found["verify"] = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return found

    def grpc_target(self) -> tuple[str, int] | None:
        """Return the host and the port of the gRPC connection; None if there is none."""
        if not self.prefer_grpc or self.url in (LOCAL, ""):
            return None
        return _split(self.url).hostname or "", self._grpc_port

    def certificates(self) -> dict[str, bytes]:
        """Return the gRPC option that names the CA."""
        if isinstance(self.verify, str):
            return {"root_certificates": Path(self.verify).read_bytes()}
        return {}


def checked_key(key: str | SecretStr | None) -> SecretStr | None:
    """Return an API key without the white space around it; None if nothing is left.

    Raises:
        ValueError: it has a character that no header can carry; the key is not quoted.
    """
    written = key.get_secret_value() if isinstance(key, SecretStr) else key
    written = (written or "").strip()
    if not (written.isascii() and written.isprintable()):
        raise ValueError(
            "the API key has a character that no HTTP header can carry: give printable ASCII as "
            "api_key, or in QDRANT_API_KEY for the command line"
        )
    return SecretStr(written) if written else None


def same_server(one: str, other: str) -> bool:
    """Return whether two URLs name the same server: they may differ in the case of the host, the
    default port, and slashes at the end.
    """
    return one == other or _place(one) == _place(other)


def _place(url: str) -> tuple[str | int | None, ...]:
    """Return what identifies the server of a URL; the URL itself if it cannot be used."""
    try:
        _check_url(url)
    except ValueError:
        return (url,)
    if not url.isprintable() or any(character.isspace() or character == "\\" for character in url):
        return (url,)  # parsers differ about these
    parts = _split(url)
    default = None if _has_path(url) else REST_PORT
    path = parts.path.rstrip("/")
    return parts.scheme or "http", parts.hostname, parts.port or default, path


def _check_collection(name: str) -> None:
    if not name or len(name) > MAX_NAME:
        raise ValueError(f"the name of a collection has 1 to {MAX_NAME} characters")
    if refused := sorted(_REFUSED.intersection(name)):
        raise ValueError(f"the name of a collection must not contain {refused[0]!r}: {name!r}")


def _split(url: str) -> SplitResult:
    """Return the parts of a URL, which may lack its scheme."""
    return urlsplit(url if "://" in url else f"//{url}")


def _check_url(url: str) -> None:
    parts = _split(url)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            "the URL of a Qdrant server holds no user, password or query: "
            "give the key as api_key=, or in QDRANT_API_KEY for the command line"
        )
    if parts.scheme not in ("http", "https") and (parts.scheme or parts.hostname != "localhost"):
        raise ValueError(f"the URL of a Qdrant server begins with http:// or https://: {url!r}")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(f"the port of the URL {url!r} is not a number from 0 to 65535") from None
    if not parts.hostname:
        raise ValueError(f"the URL {url!r} names no host: write http://host:{REST_PORT}")


def _rest_port(url: str) -> int | None:
    return _split(url).port


def _has_path(url: str) -> bool:
    parts = _split(url)
    return parts.port is None and parts.path not in ("", "/")
