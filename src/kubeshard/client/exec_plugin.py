"""Credentials printed by a command (client.authentication.k8s.io v1 and v1beta1).

Guaranteed: the command runs as a subprocess without blocking the loop, one at a time, with its standard input
closed and a deadline; its output is used until shortly before `expirationTimestamp` (without one: until a
401). A failure is a ConfigurationError in one line with the last line the command wrote and its
`installHint`; the next request tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import msgspec

from kubeshard.client.config import ClusterConfig, ExecPlugin
from kubeshard.client.credentials import Credential
from kubeshard.core.errors import ConfigurationError
from kubeshard.core.objects import Struct
from kubeshard.core.times import parse_time
from kubeshard.runtime import environ
from kubeshard.runtime.clock import Clock

RUN_TIMEOUT = 60.0
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
    """The cached output of an exec plugin; belongs to one event loop."""

    def __init__(self, config: ClusterConfig, plugin: ExecPlugin, clock: Clock) -> None:
        self._config = config
        self._plugin = plugin
        self._clock = clock
        self._running = asyncio.Lock()
        self._credential: Credential | None = None
        self._expires: float | None = None

    async def current(self) -> Credential:
        if (valid := self._valid()) is not None:
            return valid
        async with self._running:
            return self._valid() or await self._renewed()

    async def renew(self, rejected: Credential) -> bool:
        async with self._running:
            if self._credential is None or self._credential == rejected:
                await self._renewed()
            return self._credential != rejected

    def _valid(self) -> Credential | None:
        if self._expires is not None and self._clock.wall() >= self._expires - EXPIRY_MARGIN:
            return None
        return self._credential

    async def _renewed(self) -> Credential:
        answer = self._parsed(await self._run())
        status = answer.status
        if status is None or not (status.token or status.client_certificate_data):
            raise self._failed("its answer has neither a token nor a client certificate")
        if bool(status.client_certificate_data) != bool(status.client_key_data):
            raise self._failed("its answer has only one of clientCertificateData and clientKeyData")
        certificate = (status.client_certificate_data or "", status.client_key_data or "")
        self._credential = Credential(
            f"Bearer {status.token}" if status.token else None, certificate if all(certificate) else None
        )
        self._expires = parse_time(status.expiration_timestamp)
        return self._credential

    async def _run(self) -> bytes:
        plugin = self._plugin
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**environ.variables(), **plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(self._info())},
            )
        except FileNotFoundError as error:
            raise self._failed("executable not found") from error
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from error
        try:
            async with asyncio.timeout(RUN_TIMEOUT):
                out, err = await process.communicate()
        except TimeoutError as error:
            raise self._failed(f"no answer within {RUN_TIMEOUT:.0f} s") from error
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if process.returncode:
            lines = err.decode(errors="replace").strip().splitlines()
            raise self._failed(
                f"exit code {process.returncode}" + (f": {lines[-1].strip()}" if lines else "")
            )
        return out

    def _parsed(self, out: bytes) -> _ExecCredential:
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
            }
            spec["cluster"] = {name: value for name, value in cluster.items() if value is not None}
        return {"apiVersion": self._plugin.api_version, "kind": "ExecCredential", "spec": spec}

    def _failed(self, problem: str) -> ConfigurationError:
        hint = " ".join(self._plugin.install_hint.split())
        return ConfigurationError(
            f"exec plugin {self._plugin.command}: {problem}" + (f" ({hint})" if hint else "")
        )
