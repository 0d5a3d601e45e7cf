"""A self-managed webhook certificate, if neither files nor cert-manager provide one.

All replicas share one Secret with the authorities, the serving pair and their keys (`webhook.selfsigned`). Every
replica reads it, and the first one that finds a renewal due writes it; the API server's compare-and-swap lets one
of them win, and the others read what it wrote. The authorities' certificates are the caBundle of the webhook
configurations, whose writer gets the bundle from a `CaBundleSource`.

Guaranteed: all replicas converge on one identity; a replica that loses its Secret or finds it damaged makes a
new one, within a bound, so that nobody who keeps changing it is fought (`kubeshard.runtime.repairs`); a Secret of that
name that another program made is never overwritten. A routine renewal drops no
call (`webhook.selfsigned`). Not guaranteed: that calls succeed between the very first serving and the first
caBundle in the configurations; failurePolicy Ignore lets these requests pass.

RBAC, in the Secret's namespace: create on secrets, get and update on the Secret.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Callable
from typing import Protocol

import msgspec

from kubeshard.client.terminating_namespaces import is_terminating
from kubeshard.core.builtin import Secret
from kubeshard.core.errors import (
    AlreadyExists,
    ApiError,
    ConfigurationError,
    Conflict,
    Forbidden,
    KubeshardError,
    NotFound,
    Unauthorized,
    Unprepared,
)
from kubeshard.core.objects import ObjectMeta
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.repairs import Repairs
from kubeshard.runtime.rng import Rng
from kubeshard.runtime.tls import CertificatePair
from kubeshard.webhook.certificates import Identity, ServingCertificate

APP_LABEL = "app.kubernetes.io/name"
"""The label of the Secret that names its program."""

_LOG = get_logger("kubeshard.webhook")


class CaBundleSource(Protocol):
    """What the API server must trust when it calls the webhook."""

    @property
    def ca_bundle(self) -> str:
        """The value of `clientConfig.caBundle`: base64 of PEM. `""` while it is unknown."""
        ...

    def on_change(self, callback: Callable[[], None]) -> None:
        """Registers a callback, called in the event loop whenever the bundle has changed, to apply all
        configurations again."""
        ...


class SecretAccess(Protocol):
    """The part of `kubeshard.client.Client` that this module uses."""

    async def get(self, target: type[Secret], name: str, namespace: str) -> Secret: ...

    async def create(self, obj: Secret) -> Secret: ...

    async def replace(self, obj: Secret) -> Secret: ...


class LocalCertificate:
    """A `CertificateSource` for the webhook server and a `CaBundleSource` for the registration of its webhooks, for one
    process and in memory: for development outside a cluster. No RBAC.

    `names`: the DNS names of the certificate (`service_names`). It is checked every `interval` seconds, +-10 %.
    """

    def __init__(self, names: tuple[str, ...], *, clock: Clock, rng: Rng, interval: float = 3600.0) -> None:
        from kubeshard.webhook.selfsigned import renewed  # loads cryptography, which is not needed with files

        self._renewed = renewed
        self._names = names
        self._clock = clock
        self._rng = rng
        self._interval = interval
        self._identity: Identity | None = None
        self._callbacks: list[Callable[[], None]] = []

    @property
    def ca_bundle(self) -> str:
        return base64.b64encode(self._identity.bundle).decode() if self._identity else ""

    def on_change(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def load(self, serving: ServingCertificate) -> None:
        await self._synchronise(serving)

    async def run(self, serving: ServingCertificate) -> None:
        while True:
            await asyncio.sleep(self._interval * self._rng.uniform(0.9, 1.1))
            try:
                await self._synchronise(serving)
            except KubeshardError as error:
                _LOG.warning("Cannot renew the webhook certificate, serving the last one", error=error)

    async def _wanted(self) -> Identity:
        """The identity, renewed if that was due. Raises ApiError, ConfigurationError."""
        return self._renewed(self._identity, self._names, self._clock.wall())

    async def _synchronise(self, serving: ServingCertificate) -> None:
        before, self._identity = self.ca_bundle, await self._wanted()
        if self.ca_bundle != before:
            for callback in self._callbacks:
                callback()
        serving.reads.inc()
        try:
            serving.install(self._identity.serving)
        except KubeshardError:
            serving.errors.inc()
            raise


class SharedCertificate(LocalCertificate):
    """Like `LocalCertificate`, but kept in a Secret, for all replicas.

    `app`: the program's name, the Secret's label `app.kubernetes.io/name`.
    """

    def __init__(
        self,
        client: SecretAccess,
        names: tuple[str, ...],
        *,
        namespace: str,
        secret: str,
        app: str,
        interval: float = 60.0,
        clock: Clock,
        rng: Rng,
    ) -> None:
        super().__init__(names, clock=clock, rng=rng, interval=interval)
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._app = app
        self._repairs = Repairs(clock)

    async def load(self, serving: ServingCertificate) -> None:
        """Waits for the API server. Raises Unprepared, and ConfigurationError for a foreign Secret."""
        notices = Notices()
        while True:
            try:
                return await self._synchronise(serving)
            except (Forbidden, Unauthorized, NotFound) as error:
                raise Unprepared(
                    f"webhook certificate: secret {self._namespace}/{self._secret}: {error}; {self._remedy(error)}"
                ) from error
            except ApiError as error:
                if notices.due("loading", type(error)):
                    _LOG.warning("Cannot get the webhook certificate yet; trying again", error=error)
                await asyncio.sleep(self._rng.uniform(1.0, 3.0))

    def _remedy(self, error: ApiError) -> str:
        if is_terminating(error):
            return f"wait until the namespace {self._namespace} is gone, and install again"
        if isinstance(error, NotFound):
            return f"create the namespace {self._namespace}, or configure certificate files"
        if isinstance(error, Unauthorized):
            return "renew the credentials"
        return "grant create, get and update on secrets there, or configure certificate files"

    async def _wanted(self) -> Identity:
        """The identity in the Secret, renewed if that was due."""
        while True:
            try:
                found: Secret | None = await self._client.get(Secret, self._secret, self._namespace)
            except NotFound:
                found = None
            known = _read(found, self._app) if found is not None else None
            wanted = self._renewed(known, self._names, self._clock.wall())
            if wanted is known:
                return wanted
            place = f"{self._namespace}/{self._secret}"
            if self._repairs.wait(place):
                raise ApiError(f"somebody else keeps changing the Secret {place}: exclude it there")
            try:
                if found is None:
                    await self._client.create(_new_secret(self._secret, self._namespace, self._app, wanted))
                else:
                    await self._client.replace(_with_identity(found, wanted))
            except (AlreadyExists, Conflict):
                continue  # another replica was faster: take what it wrote
            except NotFound:
                if found is None:
                    raise  # the namespace is missing
                continue
            self._repairs.repaired(place)
            _LOG.info("Webhook certificate written", secret=place)
            return wanted


def service_names(name: str, namespace: str) -> tuple[str, ...]:
    """The names under which API servers call a Service, first the one that they verify."""
    service = f"{name}.{namespace}"
    return (f"{service}.svc", service, f"{service}.svc.cluster.local")


def _new_secret(name: str, namespace: str, app: str, identity: Identity) -> Secret:
    meta = ObjectMeta(name=name, namespace=namespace, labels={APP_LABEL: app})
    return _with_identity(Secret(metadata=meta, type="kubernetes.io/tls"), identity)


def _with_identity(secret: Secret, identity: Identity) -> Secret:
    data = {
        "tls.crt": identity.serving.certificate,
        "tls.key": identity.serving.private_key,
        "ca.crt": identity.bundle,
        "ca.key": b"".join(authority.private_key for authority in identity.authorities),
    }
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    return msgspec.structs.replace(secret, data={**(secret.data or {}), **encoded})


def _read(secret: Secret, app: str) -> Identity | None:
    """None if the Secret is damaged. Raises ConfigurationError if it is not ours."""
    if secret.metadata.label(APP_LABEL) != app:
        raise ConfigurationError(
            f"secret {secret.key} exists and does not belong to {app}: delete it, or configure certificate files"
        )
    try:
        parts = {key: base64.b64decode(value, validate=True) for key, value in (secret.data or {}).items()}
        certificates, keys = _PEM.findall(parts["ca.crt"]), _PEM.findall(parts["ca.key"])
        serving = CertificatePair(parts["tls.crt"], parts["tls.key"])
    except (KeyError, binascii.Error):
        return None
    if not certificates or len(certificates) != len(keys):
        return None
    authorities = tuple(CertificatePair(*pair) for pair in zip(certificates, keys, strict=True))
    return Identity(authorities, serving)


_PEM = re.compile(rb"-----BEGIN [A-Z0-9 ]+-----[^-]+-----END [A-Z0-9 ]+-----\n?")
