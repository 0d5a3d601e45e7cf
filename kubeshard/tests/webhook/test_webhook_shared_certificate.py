from __future__ import annotations

import asyncio
import base64

import msgspec
import pytest

from kubeshard.core.builtin import Namespace, Secret
from kubeshard.core.errors import (
    AlreadyExists,
    ApiError,
    ConfigurationError,
    Conflict,
    Forbidden,
    NotFound,
    Unavailable,
    Unprepared,
)
from kubeshard.core.objects import ObjectMeta
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.repairs import FREE
from kubeshard.runtime.rng import SystemRng
from kubeshard.webhook.certificates import ServingCertificate
from kubeshard.webhook.selfsigned import DAY
from kubeshard.webhook.shared_certificate import SecretAccess, SharedCertificate, service_names
from kubeshard_apiserver.testing import MemoryApi

NAMES = service_names("apps", "apps-system")
SECRET_NAME = "apps-webhook-cert"


class Secrets:
    """The part of an API server that stores one Secret, with compare-and-swap."""

    def __init__(self) -> None:
        self.secret: Secret | None = None
        self.version = 0
        self.failures: list[Exception] = []
        self.before_write: list[Secret] = []
        """Writes of other replicas just before this one."""

    async def get(self, target: type[Secret], name: str, namespace: str) -> Secret:
        assert (name, namespace) == (SECRET_NAME, "apps-system")
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if self.secret is None:
            raise NotFound("no")
        return self.secret

    async def create(self, obj: Secret) -> Secret:
        self._others_first()
        if self.secret is not None:
            raise AlreadyExists("taken")
        return self._put(obj)

    async def replace(self, obj: Secret) -> Secret:
        self._others_first()
        if self.secret is None:
            raise NotFound("gone")
        if obj.metadata.resource_version != self.secret.metadata.resource_version:
            raise Conflict("changed")
        return self._put(obj)

    def _others_first(self) -> None:
        if self.before_write:
            self._put(self.before_write.pop(0))

    def _put(self, obj: Secret) -> Secret:
        self.version += 1
        meta = msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
        self.secret = msgspec.structs.replace(obj, metadata=meta)
        return self.secret


class Clock(SystemClock):
    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset

    def wall(self) -> float:
        return SystemClock().wall() + self.offset


class NoWait(SystemRng):
    def uniform(self, low: float, high: float) -> float:
        return 0.0


def replica(secrets: SecretAccess, clock: Clock | None = None) -> SharedCertificate:
    return SharedCertificate(
        secrets,
        NAMES,
        namespace="apps-system",
        secret=SECRET_NAME,
        app="apps",
        clock=clock or Clock(),
        rng=NoWait(),
    )


async def served(shared: SharedCertificate) -> ServingCertificate:
    serving = ServingCertificate(NAMES[0], clock=SystemClock())
    await shared.load(serving)
    return serving


def data(secrets: Secrets, key: str) -> bytes:
    assert secrets.secret is not None
    assert secrets.secret.data is not None
    return base64.b64decode(secrets.secret.data[key])


async def test_the_first_replica_makes_the_secret_and_serves_what_is_in_it() -> None:
    secrets = Secrets()
    shared = replica(secrets)
    assert shared.ca_bundle == ""
    assert (await served(shared)).ready()
    assert base64.b64decode(shared.ca_bundle) == data(secrets, "ca.crt")
    assert secrets.secret is not None
    assert secrets.secret.type == "kubernetes.io/tls"
    assert secrets.secret.metadata.labels == {"app.kubernetes.io/name": "apps"}


async def test_replicas_that_start_together_agree() -> None:
    secrets = Secrets()
    replicas = [replica(secrets) for _ in range(3)]
    await asyncio.gather(*(served(shared) for shared in replicas))
    assert secrets.version == 1
    assert len({shared.ca_bundle for shared in replicas}) == 1


async def test_a_due_renewal_is_made_by_one_replica_and_taken_over_by_the_other() -> None:
    secrets = Secrets()
    first, second = replica(secrets), replica(secrets)
    await served(first)
    bundle = data(secrets, "ca.crt")
    before = data(secrets, "tls.crt")

    later = [replica(secrets, Clock(61 * DAY)) for _ in range(2)]
    for shared in later:
        await shared._wanted()
    assert secrets.version == 2
    assert data(secrets, "tls.crt") != before
    assert data(secrets, "ca.crt") == bundle
    await served(second)
    assert base64.b64decode(second.ca_bundle) == bundle


async def test_a_lost_race_for_a_renewal_takes_what_the_winner_wrote() -> None:
    secrets, elsewhere = Secrets(), Secrets()
    await served(replica(secrets))
    elsewhere.secret = secrets.secret
    elsewhere.version = secrets.version
    await replica(elsewhere, Clock(61 * DAY))._wanted()
    assert elsewhere.secret is not None
    secrets.before_write.append(elsewhere.secret)
    identity = await replica(secrets, Clock(61 * DAY))._wanted()
    assert identity.serving.certificate == data(elsewhere, "tls.crt") == data(secrets, "tls.crt")


async def test_a_changed_bundle_is_announced() -> None:
    secrets = Secrets()
    clock = Clock()
    shared = replica(secrets, clock)
    announced = []
    shared.on_change(lambda: announced.append(shared.ca_bundle))
    serving = await served(shared)
    watching = asyncio.ensure_future(shared.run(serving))
    clock.offset = 250 * DAY  # the leaf is overdue, then the authority
    async with asyncio.timeout(5):
        while len(announced) < 2:  # noqa: ASYNC110 - the point is that the callback comes by itself
            await asyncio.sleep(0)
    watching.cancel()
    old, new = (base64.b64decode(bundle) for bundle in announced)
    assert old in new


async def test_a_deleted_or_damaged_secret_is_made_anew() -> None:
    secrets = Secrets()
    shared = replica(secrets)
    await served(shared)
    assert secrets.secret is not None
    for key in ("tls.crt", "tls.key", "ca.crt", "ca.key"):
        for value in ("", "!", "aGVsbG8="):
            old = data(secrets, "tls.crt")
            damaged = {**(secrets.secret.data or {}), key: value}
            secrets.secret = msgspec.structs.replace(secrets.secret, data=damaged)
            assert (await served(replica(secrets))).ready()
            assert data(secrets, "tls.crt") != old
    secrets.secret = None
    assert (await served(replica(secrets))).ready()


async def test_a_secret_that_somebody_keeps_changing_is_made_anew_once_a_minute_at_most_and_that_is_said() -> (
    None
):
    class Frozen(Clock):
        now = 0.0

        def monotonic(self) -> float:
            return self.now

    secrets, clock, minutes = Secrets(), Frozen(), 10
    shared, serving = replica(secrets, clock), ServingCertificate(NAMES[0], clock=SystemClock())
    said = set()
    for second in range(0, 60 * minutes, 5):
        clock.now = second
        try:
            await shared._synchronise(serving)
        except ApiError as error:
            said.add(str(error))
        if secrets.secret is not None:
            secrets.secret = msgspec.structs.replace(secrets.secret, data={})
    assert secrets.version <= FREE + minutes + 1
    assert serving.ready()
    assert said == {f"somebody else keeps changing the Secret apps-system/{SECRET_NAME}: exclude it there"}


async def test_a_foreign_secret_is_never_overwritten() -> None:
    secrets = Secrets()
    meta = ObjectMeta(name=SECRET_NAME, namespace="apps-system", resource_version="7")
    foreign = secrets.secret = Secret(metadata=meta, data={"tls.crt": "eA=="})
    with pytest.raises(ConfigurationError, match=f"{SECRET_NAME} exists and does not belong to apps"):
        await served(replica(secrets))
    assert secrets.secret is foreign


async def test_missing_rights_end_the_program_and_an_unreachable_server_is_waited_for() -> None:
    secrets = Secrets()
    secrets.failures = [Unavailable("refused"), Unavailable("refused")]
    assert (await served(replica(secrets))).ready()
    secrets.failures = [Forbidden("user cannot get secrets")]
    with pytest.raises(Unprepared, match="cannot get secrets; grant create, get and update"):
        await served(replica(secrets))


async def test_a_namespace_that_is_being_deleted_is_not_a_missing_right(kube_memory: MemoryApi) -> None:
    async with kube_memory.client() as client:
        await client.create(Namespace(metadata=ObjectMeta(name="apps-system")))
        held = ObjectMeta(name="held", namespace="apps-system", finalizers=("example.com/held",))
        await client.create(Secret(metadata=held))
        await client.delete(Namespace, "apps-system")
        with pytest.raises(Unprepared, match="terminated; wait until the namespace apps-system is gone, and"):
            await served(replica(client))


async def test_a_missing_namespace_is_an_error_that_says_to_create_it() -> None:
    class Nowhere(Secrets):
        async def create(self, obj: Secret) -> Secret:
            raise NotFound('namespaces "apps-system" not found')

    with pytest.raises(Unprepared, match="not found; create the namespace apps-system, or"):
        await served(replica(Nowhere()))


async def test_failures_while_running_leave_the_served_certificate_as_it_is() -> None:
    secrets = Secrets()
    shared = replica(secrets)
    serving = await served(shared)
    secrets.failures = [Unavailable("refused"), Forbidden("no")]
    watching = asyncio.ensure_future(shared.run(serving))
    async with asyncio.timeout(5):
        while secrets.failures:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0)
    watching.cancel()
    assert serving.ready()
