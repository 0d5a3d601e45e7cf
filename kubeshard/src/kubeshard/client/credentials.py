"""Credentials that stay valid: the current value of the `Authorization` header.

Guaranteed: a rotated token file is noticed within a minute, and at once after a 401; other rotated files (the
authority, the client's certificate, the kubeconfig) within seconds, and at once after a 401 or a failed connection;
calls are cheap between changes; any number of concurrent requests cause one renewal. Not guaranteed: that the server
accepts the credentials: a 401 after a renewal is final. An instance belongs to one event loop; every client creates its
own from the `ClusterConfig`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from kubeshard.client.config import ClusterConfig, ExecPlugin, Files, TokenFile
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import Struct
from kubeshard.core.times import parse_time
from kubeshard.runtime import environ
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.loop import set_within
from kubeshard.runtime.open_files import exhausted
from kubeshard.runtime.tls import Tls

TOKEN_FILE_AGE = 60.0
"""Seconds after which a token file is read again; the kubelet renews bound tokens long before they expire."""

FILES_AGE = 5.0
"""Seconds after which the files of a configuration are read again. A server may close connections with an expired
certificate without any response that would trigger a renewal, and a leader has 10 s to renew its Lease.
"""


class Credential(NamedTuple):
    """`authorization` is the header's value, `certificate` PEM texts of a client certificate and its key, `tls` the
    settings in place of the configuration's. The same object as long as nothing has changed.
    """

    authorization: str | None = None
    certificate: tuple[str, str] | None = None
    tls: Tls | None = None


ANONYMOUS = Credential()


class Credentials(Protocol):
    @property
    def at_hand(self) -> Credential | None:
        """What `current` would return without waiting or reading anything; None if it would not."""
        ...

    async def current(self) -> Credential:
        """What to send now. Raises ConfigurationError if there is none."""
        ...

    async def renew(self, rejected: Credential) -> bool:
        """Called after a 401 for `rejected`. Returns whether there is another credential to try."""
        ...

    def reread(self) -> bool:
        """Called when a connection failed. Returns whether files say something else now."""
        ...


class FixedCredentials:
    """A token, user name and password, or nothing (anonymous, or the certificate of the TLS settings)."""

    def __init__(self, authorization: str | None = None) -> None:
        self.at_hand = Credential(authorization)

    async def current(self) -> Credential:
        return self.at_hand

    async def renew(self, rejected: Credential) -> bool:
        return False

    def reread(self) -> bool:
        return False


class TokenFileCredentials:
    """A token in a file that is rotated externally. If reading it fails, the last good token is used."""

    def __init__(self, source: TokenFile, clock: Clock) -> None:
        self._path = source.path
        self._clock = clock
        self._credential = Credential(f"Bearer {source.fallback}") if source.fallback else None
        self._known = False
        self._read_at = 0.0

    @property
    def at_hand(self) -> Credential | None:
        return self._credential if self._known and not self._is_old() else None

    async def current(self) -> Credential:
        return self.at_hand or self._read()

    async def renew(self, rejected: Credential) -> bool:
        return self._read() != rejected

    def reread(self) -> bool:
        return False

    def _is_old(self) -> bool:
        return self._clock.monotonic() - self._read_at >= TOKEN_FILE_AGE

    def _read(self) -> Credential:
        self._read_at = self._clock.monotonic()
        self._known = True
        try:
            token = self._path.read_text().strip()
            if not token:
                raise ConfigurationError(f"{self._path}: the token file is empty")
        except (OSError, UnicodeDecodeError, ConfigurationError) as error:
            if self._credential is not None:
                return self._credential
            problem = f"{self._path}: {error.strerror}" if isinstance(error, OSError) else error
            raise ConfigurationError(f"cannot read the token file: {problem}") from error
        if self._credential is None or self._credential.authorization != f"Bearer {token}":
            self._credential = Credential(f"Bearer {token}")
        return self._credential


class FollowedCredentials:
    """The credentials and TLS settings of a configuration whose files are rotated externally. While these cannot be
    used together (a rotation replaces them one after the other) what was read last is used.
    """

    def __init__(
        self, config: ClusterConfig, files: Files, make: Callable[[ClusterConfig], Credentials], clock: Clock
    ) -> None:
        self._config = config
        self._files = files
        self._make = make
        self._clock = clock
        self._inner = make(config)
        self._contents: tuple[bytes | None, ...] = ()
        self._read_at = clock.monotonic()
        self._wrapped: Credential | None = None
        self._credential = ANONYMOUS
        """What is made of `_wrapped`."""

    @property
    def at_hand(self) -> Credential | None:
        old = self._clock.monotonic() - self._read_at >= FILES_AGE
        return (
            None
            if old or self._wrapped is None or self._inner.at_hand is not self._wrapped
            else self._credential
        )

    async def current(self) -> Credential:
        if self._clock.monotonic() - self._read_at >= FILES_AGE:
            self.reread()
        inner = await self._inner.current()
        if inner is not self._wrapped:
            self._wrapped, self._credential = inner, inner._replace(tls=self._config.tls)
        return self._credential

    async def renew(self, rejected: Credential) -> bool:
        changed = self.reread()
        return await self._inner.renew(rejected._replace(tls=None)) or changed

    def reread(self) -> bool:
        self._read_at = self._clock.monotonic()
        contents = tuple(map(_contents, self._files.paths))
        if contents == self._contents or None in contents:
            return False
        try:
            found = self._files.read()
            found.tls.check()
        except (ConfigurationError, ValueError, OSError):
            return False
        self._contents, known = contents, self._config
        if found.files is not None:  # it may name others now
            self._files = self._files._replace(paths=found.files.paths)
        if found.server != known.server or (found.tls, found.auth) == (known.tls, known.auth):
            return False
        self._config = replace(known, tls=found.tls, auth=found.auth)
        if found.auth != known.auth:
            self._inner = self._make(self._config)
        self._wrapped = None
        return True


def _contents(path: Path) -> bytes | None:
    """None for what cannot be read now, or only once: a pipe would be waited for."""
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError:
        return None


RUN_TIMEOUT = 60.0
END_TIMEOUT = 1.0
"""Seconds in which what a process has written is there once it has ended, or it has ended once it is killed."""
EXPIRY_MARGIN = 10.0
"""Seconds before its expiry after which a credential is no longer used: it must stay valid during the request.
"""


class _Status(Struct):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(Struct):
    api_version: str = ""
    kind: str = ""
    status: _Status | None = None


class ExecCredentials:
    """Credentials printed by a command (client.authentication.k8s.io v1 and v1beta1).

    Guaranteed: the command runs as a subprocess without blocking the loop, one at a time, with its standard input
    closed and a deadline, at which it ends with all that it has started; what it answers, be it expired, refused
    before or a failure, is the answer to all who asked while it ran, whoever of them has been cancelled meanwhile; its
    output is used until shortly before `expirationTimestamp` (without one: until a 401). A failure is a
    ConfigurationError in one line with the last line the command wrote and its `installHint`; the next request tries
    again. What it leaves running in the background, with its output open, is not waited for.
    """

    def __init__(self, config: ClusterConfig, plugin: ExecPlugin, clock: Clock) -> None:
        self._config = config
        self._plugin = plugin
        self._clock = clock
        self._running: asyncio.Task[Credential] | None = None
        """The last run. It goes on without those who wait: a Lease is renewed in attempts that may be shorter."""
        self._credential: Credential | None = None
        self._expires: float | None = None

    def reread(self) -> bool:
        return False

    async def current(self) -> Credential:
        return self.at_hand or await self._renewed()

    async def renew(self, rejected: Credential) -> bool:
        if self._credential is None or self._credential == rejected:
            await self._renewed()
        return self._credential != rejected

    @property
    def at_hand(self) -> Credential | None:
        if self._expires is not None and self._clock.wall() >= self._expires - EXPIRY_MARGIN:
            return None
        return self._credential

    async def _renewed(self) -> Credential:
        running = self._running
        if running is None or running.done():
            running = self._running = asyncio.create_task(self._answer(), name="credential plugin")
            running.add_done_callback(_noted)
        return await asyncio.shield(running)

    async def _answer(self) -> Credential:
        answer = self._parsed(await self._run())
        status = answer.status
        if status is None or not (status.token or status.client_certificate_data):
            raise self._failed("its answer has neither a token nor a client certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._failed("its answer has only one of clientCertificateData and clientKeyData")
        certificate = (status.client_certificate_data or "", status.client_key_data or "")
        self._expires = parse_time(status.expiration_timestamp)
        self._credential = Credential(
            f"Bearer {status.token}" if status.token else None, certificate if all(certificate) else None
        )
        return self._credential

    async def _run(self) -> bytearray:
        plugin, loop = self._plugin, asyncio.get_running_loop()
        try:
            process, output = await loop.subprocess_exec(
                _Output,
                plugin.command,
                *plugin.args,
                stdin=asyncio.subprocess.DEVNULL,
                env={**environ.variables(), **plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(self._info())},
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise self._failed("executable not found") from error
        except OSError as error:
            raise self._failed(exhausted() or error.strerror or str(error)) from error
        try:
            if not await set_within(output.exited, RUN_TIMEOUT):
                raise self._failed(f"no answer within {RUN_TIMEOUT:.0f} s")
            await set_within(output.closed, END_TIMEOUT)
        finally:
            if not output.exited.is_set():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.get_pid(), signal.SIGKILL)
                await set_within(output.exited, END_TIMEOUT)
            process.close()
        if code := process.get_returncode():
            lines = output.written[2].decode(errors="replace").strip().splitlines()
            raise self._failed(f"exit code {code}" + (f": {lines[-1].strip()}" if lines else ""))
        return output.written[1]

    def _parsed(self, out: bytearray) -> _ExecCredential:
        try:
            answer = msgspec.json.decode(out, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise self._failed(f"its answer is not an ExecCredential: {error}") from error
        if (answer.kind, answer.api_version) != ("ExecCredential", self._plugin.api_version):
            raise self._failed(
                f"its answer is {answer.kind or 'nothing'} of {answer.api_version or 'no apiVersion'}, "
                f"not ExecCredential of {self._plugin.api_version}"
            )
        return answer

    def _info(self) -> dict[str, Any]:
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.provide_cluster_info:
            tls = self._config.tls
            cluster = {
                "server": self._config.server,
                "tls-server-name": tls.server_name,
                "insecure-skip-tls-verify": tls.insecure or None,
                "certificate-authority-data": msgspec.to_builtins(tls.ca.encode()) if tls.ca else None,
                "proxy-url": self._config.proxy,
                "config": self._plugin.cluster_config,
            }
            spec["cluster"] = {name: value for name, value in cluster.items() if value is not None}
        return {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}

    def _failed(self, problem: str) -> ConfigurationError:
        hint = " ".join(self._plugin.install_hint.split())
        return ConfigurationError(
            f"exec plugin {self._plugin.command}: {problem}" + (f" ({hint})" if hint else "")
        )


class _Output(asyncio.SubprocessProtocol):
    """What a process writes, by its descriptor."""

    def __init__(self) -> None:
        self.written = {1: bytearray(), 2: bytearray()}
        self.exited, self.closed = asyncio.Event(), asyncio.Event()
        self._open = len(self.written)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.written[fd] += data

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open -= 1
        if not self._open:
            self.closed.set()

    def process_exited(self) -> None:
        self.exited.set()


def _noted(run: asyncio.Task[Credential]) -> None:
    """Nobody may be left who waits for its failure."""
    if not run.cancelled():
        run.exception()
