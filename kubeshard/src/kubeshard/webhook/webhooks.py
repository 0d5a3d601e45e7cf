"""The webhooks of an operator: served, registered, with their own certificate.

    run(Manager([...], servers=[Webhooks("apps", [no_latest, one_replica, upgrade, downgrade])]))

Guaranteed: a webhook is registered once the server listens, and again when the certificate's authority changes. Every
minute it is looked whether somebody has removed it or led it elsewhere, which is put right; a configuration with this
name and no functions left is emptied. Every replica registers the same. A failing registration is logged and retried;
serving does not depend on it.
Not guaranteed: that a webhook is called during the first start of a new operator; `failurePolicy` applies then as in
any failure.

| what for | RBAC |
|---|---|
| registration | `get`, `create`, `patch` on `validatingwebhookconfigurations` and `mutatingwebhookconfigurations` |
| conversion | `get`, `patch` on `customresourcedefinitions` |
| certificate | in the namespace: `create` on `secrets`, `get` and `update` on the Secret `<name>-webhook-cert` |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from kubeshard.client.client import Client
from kubeshard.core.builtin import Secret
from kubeshard.core.errors import ApiError, ConfigurationError, KubeshardError
from kubeshard.core.grants import Grant
from kubeshard.core.kinds import GroupResource
from kubeshard.core.names import is_dns_label, is_dns_subdomain
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import set_within
from kubeshard.runtime.notices import Notices
from kubeshard.webhook.app import Routes
from kubeshard.webhook.call_check import RegistrationProbe
from kubeshard.webhook.certificates import CertificateSource
from kubeshard.webhook.conversion import Conversion
from kubeshard.webhook.registrar import CLASSES, Registrar
from kubeshard.webhook.registration import (
    CONFIGURATIONS,
    Address,
    Manifest,
    configuration,
    conversion_path,
    conversion_stanza,
    path_of,
)
from kubeshard.webhook.server import DEFAULT_PORT, WebhookServer
from kubeshard.webhook.shared_certificate import LocalCertificate, SharedCertificate, service_names
from kubeshard.webhook.typed import Admits, Converts, says_of, webhook_of

REGISTERED_EVERY = 60.0
RETRIED_AFTER = 5.0

_LOG = get_logger("kubeshard.webhook")


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        if not url or (parts.scheme == "https" and parts.hostname and parts.port != 0):
            return url
    except ValueError:
        pass
    raise ValueError(
        f"webhooks: the API server cannot call url={url!r}: give one such as https://127.0.0.1; without "
        "a port, that of this server is added"
    )


class Webhooks:
    """Serves functions decorated with `validates`, `defaults` and `converts`; for a manager's `servers`.

    `name`: the operator's name, used for its webhook configurations, its Service (`service`), which forwards port 443
    to `port` here, and the Secret of its certificate. `namespace`: the Service's; default: the pod's. Outside a
    cluster set `url` to the URL at which the API server reaches this process, as in `https://127.0.0.1`; without a
    port, that of the server is added, and the certificate is kept in memory.

    `certificates`: files instead of a self-managed certificate. Then `annotations` of the configurations determine who
    injects the authority (`cert-manager.io/inject-ca-from`), and no other authority is registered. `client_authority`:
    see `WebhookServer`. `register=False`: you apply `manifests` yourself.

    Raises TypeError and ValueError for functions that cannot be served, ValueError for a `url` that cannot be called,
    or beside a `service`.
    """

    def __init__(
        self,
        name: str,
        functions: Sequence[Callable[..., Any]],
        *,
        namespace: str | None = None,
        service: str = "",
        url: str = "",
        host: str = "",
        port: int = DEFAULT_PORT,
        certificates: CertificateSource | None = None,
        client_authority: str | Path = "",
        annotations: Mapping[str, str] | None = None,
        register: bool = True,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.name = name
        self.served = True
        self._reuse_port = False
        """Set to False, before it runs, to neither serve nor register anything."""
        self._functions = {does: list(_that(does, functions)) for does in CONFIGURATIONS}
        self._conversions = _conversions(functions)
        self._namespace = namespace
        self._service = service or name
        if not is_dns_subdomain(name):
            raise ValueError(
                f"webhooks {name!r}: the name is that of their configurations: lower case letters, digits, '-' and '.'"
            )
        if not url and not is_dns_label(self._service):
            raise ValueError(
                f"webhooks {name}: {self._service!r} cannot be the name of a Service, which has no dots and at most 63 "
                "characters: give another one with service="
            )
        self._url = _checked(url)
        if url and service:
            raise ValueError(
                f"webhooks {name}: the API server calls either a Service or a URL: give service={service!r} or "
                f"url={url!r}, not both"
            )
        self._place = host, port
        self._given = certificates
        self._client_authority = client_authority
        self._annotations = dict(annotations or {})
        self._register = register
        self._temporary = self._strict = False
        self._names_are_known = True
        self._ca_bundle: str | None = None
        self._registered_once = asyncio.Event()
        self.why_uncalled = ""
        """Why a temporary registration is not called, or why that could not be tried; "" if it is called."""
        self._registry = registry
        self._server: WebhookServer | None = None
        self.routes: Routes = self._routes()
        """For a `WebhookServer` or an `AdmissionApp` of your own."""

    @property
    def port(self) -> int:
        """The actual port; 0 while the server does not listen."""
        return self._server.port if self._server else 0

    @property
    def registry(self) -> CollectorRegistry | None:
        """Where its requests are counted; a manager shows it on its page. None while the server does not run."""
        return self._server.registry if self._server else None

    @property
    def behind(self) -> tuple[str, int, str | None] | None:
        """The Service whose port 443 leads to this port, and its namespace if it was given; None with a `url`."""
        return None if self._url else (self._service, self._place[1], self._namespace)

    def call_at(
        self,
        url: str,
        *,
        certificates: CertificateSource | None = None,
        ca_bundle: str | None = None,
        temporary: bool = True,
        strict: bool = False,
    ) -> None:
        """Has the API server call this process at `url`, wherever it was to be called; before it runs. `certificates`:
        instead of a certificate for the URL's host that is made at the start. `ca_bundle`: what the API server has to
        trust instead of that certificate's authority, base64 of PEM; `""` are the authorities that its host trusts.

        `temporary`: all webhooks are registered with the failure policy `Ignore`, also without `register`, and when
        this process ends, what was registered before is registered again (`kubeshard.webhook.registrar`). `strict`:
        their own failure policies hold all the same, for a cluster of tests.

        Raises ValueError for a `url` that cannot be called.
        """
        self._url, self._given, self._ca_bundle = _checked(url), certificates, ca_bundle
        self._temporary, self._strict = temporary, strict
        self._register = self._register or temporary

    def listen_on(self, port: int, host: str | None = None) -> None:
        """Serves at this port instead, 0 for a free one, and at this address; before it runs."""
        self._place = self._place[0] if host is None else host, port

    def share(self, number: int) -> None:
        """Serves at the port together with other processes of this machine, of which this one has the number; before it
        runs. If the certificate is made at the start, instead of one that all find in a Secret, only the first serves.
        """
        self._reuse_port = True
        if number and self._url and self._given is None:
            self.served = False

    def only_serve(self, certificates: CertificateSource) -> None:
        """Serves with these certificates, for whatever names they are, and registers nothing; before it runs. For
        installations in which another program does both.
        """
        self._given, self._register, self._names_are_known = certificates, False, False

    async def registered(self) -> None:
        """Returns once the API server knows where to call; if that is temporary, once it was tried whether it does
        (`why_uncalled`).
        """
        if self._register and self.served:
            await self._registered_once.wait()

    def unready(self) -> str | None:
        """Why API servers cannot call, or None; a manager adds it as a readiness check."""
        ready = not self.served or (self._server is not None and self._server.ready())
        return None if ready else "the webhooks are not served"

    def manifests(self, ca_bundle: str = "", *, namespace: str | None = None) -> list[Manifest]:
        """The webhook configurations to apply; conversion is part of a definition (`conversion`). `ca_bundle` is base64
        of PEM; without it, something else has to inject it, such as cert-manager.
        """
        address = self._address(namespace)
        metadata = {"annotations": self._annotations} if self._annotations else {}
        return [
            configuration(does, self.name, functions, address, ca_bundle, metadata)
            for does, functions in self._functions.items()
            if functions
        ]

    def conversion(self, kind: str, ca_bundle: str = "", *, namespace: str | None = None) -> Manifest:
        """The stanza `spec.conversion` of the CustomResourceDefinition of that name, as in `apps.example.com`."""
        return conversion_stanza(self._conversions[kind], self._address(namespace), ca_bundle)

    @property
    def converted(self) -> Collection[str]:
        """The names of the definitions between whose versions it converts."""
        return self._conversions.keys()

    def converting(self, definition: str, namespace: str | None, ca_bundle: str = "") -> Manifest:
        """The part of the definition of that name that has the API server call this conversion. Without `ca_bundle`,
        each conversion fails until the operator or the annotations bring it: no field is lost.
        """
        metadata = {"metadata": {"annotations": self._annotations}} if self._annotations else {}
        stanza = self.conversion(definition, ca_bundle, namespace=self._namespace or namespace)
        return {**metadata, "spec": {"conversion": stanza}}

    def grants(self, controllers: Iterable[object], scope_of: object = None) -> Iterator[Grant]:
        """The RBAC rules that they need (`kubeshard.manager.roles`)."""
        if self._given is None and not self._url:
            namespace = self._namespace or None
            yield Grant.on(Secret, "create", namespace=namespace)
            yield Grant.on(Secret, "get", "update", namespace=namespace, name=f"{self.name}-webhook-cert")
        if not self._register:
            return
        for kind in CONFIGURATIONS.values():
            resource = GroupResource("admissionregistration.k8s.io", f"{kind.lower()}s")
            yield Grant.on(resource, "create")
            yield Grant.on(resource, "get", "patch", name=self.name)
        for name in self._conversions:
            crds = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
            yield Grant.on(crds, "get", "patch", name=name)

    async def run_with(self, client: Client) -> None:
        """Serves until cancelled. Raises ConfigurationError if nobody could call them, and like `WebhookServer.run`."""
        if not self.served:
            await asyncio.Event().wait()
        world = client.world
        namespace = self._namespace or world.host.pod_namespace()
        placed = bool(self._url or namespace)
        if not placed and (self._register or self._given is None):
            raise ConfigurationError(
                f"webhooks {self.name}: outside a pod, set the Service's namespace=, or where API servers call this "
                "process: `kubeshard run` with --embedded or --webhook-url, or url="
            )
        certificates = self._certificates(client, namespace)
        host, port = self._place
        probes = list(self._probes(client)) if self._temporary else []
        self._server = server = WebhookServer(
            {**self.routes, **{probe.path: probe.handler for probe in probes}},
            certificates,
            host=host,
            port=port,
            server_name=self._names(namespace)[0] if placed and self._names_are_known else "",
            client_authority=self._client_authority,
            registry=self._registry,
            reuse_port=self._reuse_port,
        )
        async with server.running(world):
            if self._register:
                await self._registering(client, certificates, namespace, probes)
            await asyncio.Event().wait()

    async def _registering(
        self,
        client: Client,
        certificates: CertificateSource,
        namespace: str | None,
        probes: Sequence[RegistrationProbe] = (),
    ) -> None:
        rng, changed = client.world.rng, asyncio.Event()
        own = certificates if isinstance(certificates, LocalCertificate) else None
        if own is not None:
            own.on_change(changed.set)
        writer = client.with_field_manager(f"{self.name}-webhooks")
        registrar = Registrar(
            writer, annotations=self._annotations, temporary=self._temporary, strict=self._strict
        )
        notices = Notices()
        try:
            while True:
                changed.clear()
                try:
                    await self._write(registrar, own.ca_bundle if own else "", namespace)
                    pause = REGISTERED_EVERY
                    notices.clear()
                    if probes:
                        address = self._address(namespace)
                        _LOG.info(
                            "Webhooks lead to this program until it ends",
                            url=address.url,
                            failure_policy="as declared" if self._strict else "Ignore",
                            registered=registrar.registered,
                        )
                        trusted = self._trusted(own.ca_bundle if own else "")
                        self.why_uncalled = await _probe(probes, address, trusted)
                        probes = ()
                    self._registered_once.set()
                except KubeshardError as error:
                    if notices.due("registering", str(error)):
                        _LOG.warning("Cannot register the webhooks yet; trying again", error=error)
                    pause = RETRIED_AFTER
                await set_within(changed, pause * rng.uniform(0.9, 1.1))
        finally:
            await registrar.restore()

    async def _write(self, registrar: Registrar, ca_bundle: str, namespace: str | None) -> None:
        ca_bundle = self._trusted(ca_bundle)
        made = {each["kind"]: each for each in self.manifests(ca_bundle, namespace=namespace)}
        for kind in CONFIGURATIONS.values():
            await registrar.configure(made.get(kind) or {"kind": kind, "metadata": {"name": self.name}})
        for name in self._conversions:
            await registrar.convert(name, self.conversion(name, ca_bundle, namespace=namespace))

    def _probes(self, client: Client) -> Iterator[RegistrationProbe]:
        """One for each kind of configuration, and one if there is only a conversion."""
        does = [does for does, functions in self._functions.items() if functions] or ["validate"]
        for kind in (CONFIGURATIONS[each] for each in does):
            yield RegistrationProbe(client, self.name, CLASSES[kind])

    def _trusted(self, made: str) -> str:
        """What the API server has to trust: what was given instead of what is `made`."""
        return made if self._ca_bundle is None else self._ca_bundle

    def _certificates(self, client: Client, namespace: str | None) -> CertificateSource:
        if self._given is not None:
            return self._given
        names, world = self._names(namespace), client.world
        if self._url:
            return LocalCertificate(names, clock=world.clock, rng=world.rng)
        assert namespace is not None, "else there is a url"
        return SharedCertificate(
            client,
            names,
            namespace=namespace,
            secret=f"{self.name}-webhook-cert",
            app=self.name,
            clock=world.clock,
            rng=world.rng,
        )

    def _names(self, namespace: str | None) -> tuple[str, ...]:
        if self._url:
            return (urlsplit(self._url).hostname or "localhost",)
        assert namespace is not None, "else there is a url"
        return service_names(self._service, namespace)

    def _address(self, namespace: str | None) -> Address:
        if not self._url:
            return Address(self._service, namespace or self._namespace or "")
        url, port = urlsplit(self._url), self.port or self._place[1]
        if port and not url.port:  # a free port is not known before the server listens
            url = url._replace(netloc=f"{url.netloc}:{port}")
        return Address(url=url.geturl())

    def _routes(self) -> Routes:
        routes: dict[str, Any] = {}
        for functions in self._functions.values():
            for function in functions:
                if routes.setdefault(path_of(function), function) is not function:
                    raise ValueError(f"webhooks {self.name}: two functions are named {function.__name__}")
        found: dict[str, Any] = {path: webhook_of(function) for path, function in routes.items()}
        return found | {conversion_path(conversion): conversion for conversion in self._conversions.values()}


async def _probe(probes: Sequence[RegistrationProbe], address: Address, ca_bundle: str) -> str:
    """Says whether the API server calls, and returns why it does not: under "Ignore" nobody notices."""
    for probe in probes:
        try:
            called = await probe.by_api_server(address, ca_bundle)
        except ApiError as error:
            _LOG.info("Not probed whether the API server calls this program", error=error)
            return f"whether the API server calls the webhooks could not be tried: {error}"
        if not called:
            break
    else:
        _LOG.info("The API server calls this program", url=address.url)
        return ""
    cause = await probe.from_here(address, ca_bundle)
    cause = f"a call from here fails, too: {cause}" if cause else "a call from here arrives"
    _LOG.warning(
        "The API server does not call this program; nothing is checked", url=address.url, cause=cause
    )
    return f"the API server does not call the webhooks: {cause}"


def _that(does: str, functions: Sequence[Any]) -> Iterator[Any]:
    for function in functions:
        says = says_of(function)
        if says is None:
            raise TypeError(
                f"{function!r} is not decorated: validates(App), defaults(App) or converts(Old, App)"
            )
        if isinstance(says, Admits) and says.does == does:
            yield function


def _conversions(functions: Sequence[Any]) -> dict[str, Conversion]:
    found: dict[str, Conversion] = {}
    for function in functions:
        says = says_of(function)
        if isinstance(says, Converts):
            kind = says.new.KIND
            found.setdefault(str(kind.group_resource), Conversion(kind.group_kind)).add(function)
    for conversion in found.values():
        conversion.check()
    return found
