"""The entry point of admission for every write: mutating webhooks run before the kind's own rules, and policies and
validating webhooks after them.

It costs nothing while no webhook or policy exists: the lists of webhooks and policies are rebuilt only after one of
their objects has been written.
"""

from __future__ import annotations

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.admission.attributes import AdmissionOptions, Attributes
from kubeshard_apiserver.admission.matching import BINDINGS, GROUP, MUTATING, POLICIES, VALIDATING
from kubeshard_apiserver.admission.policies import Policies, Policy, policies_of
from kubeshard_apiserver.admission.webhooks import Webhook, Webhooks, webhooks_of
from kubeshard_apiserver.apply.fieldset import from_fields_v1
from kubeshard_apiserver.apply.managed_fields import read_managers
from kubeshard_apiserver.cel.authorization import deciding
from kubeshard_apiserver.model import Model, Target
from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.resources.namespaces import NAMESPACES
from kubeshard_apiserver.resources.strategy import Strategy
from kubeshard_apiserver.steps import Steps

_BAD_MANAGED_FIELDS = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests: operation must be `Apply` or `Update`"
)


class Admission:
    def __init__(self, model: Model) -> None:
        self._model = model
        self._store = store = model.store
        self._webhooks = Webhooks(model.registry, self._namespace, model.rng.token)
        self._policies = Policies(model.registry, store, self._namespace)
        self._mutating: tuple[Webhook, ...] | None = ()
        self._validating: tuple[Webhook, ...] | None = ()
        self._judging: tuple[Policy, ...] | None = ()
        store.subscribe(self._forget)

    def asking(
        self, target: Target, body: Object, options: AdmissionOptions, sent: Strategy
    ) -> Steps[Object]:
        """Admits the body of a request to a subresource whose kind is not stored. Returns the body as changed by
        webhooks. Raises ApiError.
        """
        write = Attributes("CREATE", target, body, None, options, sent)
        left = yield from self.mutate(write)
        yield from self.validate(write.with_object(left))
        return left or body

    def mutates(self, options: AdmissionOptions) -> bool:
        """Whether there is anybody to be asked by `mutate`."""
        if self._mutating is None:
            self._mutating = webhooks_of(self._store.objects(MUTATING).values())
        return bool(self._mutating) and options.asks

    def judges(self, options: AdmissionOptions) -> bool:
        """Whether there is anybody to be asked by `validate`."""
        if self._validating is None:
            self._validating = webhooks_of(self._store.objects(VALIDATING).values())
        if self._judging is None:
            self._judging = policies_of(
                self._store.objects(POLICIES).values(), self._store.objects(BINDINGS).values()
            )
        return bool(self._validating or self._judging) and options.asks

    def mutate(self, write: Attributes) -> Steps[Object | None]:
        """Returns the object as changed by mutating webhooks."""
        new = write.object
        if not self.mutates(write.options) or not self._mutating:
            return new
        left = yield from self._webhooks.mutate(self._mutating, write)
        return left if left is new or left is None or new is None else _managed(left, write)

    def validate(self, write: Attributes) -> Steps[None]:
        """Raises ApiError if a policy or a webhook denies the write."""
        if not self.judges(write.options):
            return
        judging, validating = self._judging or (), self._validating or ()

        def judge() -> None:
            with deciding(write.decide):
                self._policies.judge(judging, write)

        yield from self._model.converting(judge)
        yield from self._webhooks.validate(validating, write)

    def _forget(self, written: GroupResource) -> None:
        if written.group != GROUP:
            return
        if written == MUTATING:
            self._mutating = None
        elif written == VALIDATING:
            self._validating = None
        else:
            self._judging = None

    def _namespace(self, name: str) -> Object | None:
        return self._store.get(NAMESPACES, Key("", name))


def _managed(left: Object, write: Attributes) -> Object:
    """Brings managedFields into the server's form, on which later reads rely, or restores them if a webhook has made
    them unreadable. Webhooks may edit managedFields; no manager owns the other fields that they change.
    """
    given = left["metadata"].get("managedFields")
    if not given:
        return left
    if read_managers(left):
        return with_metadata(left, managedFields=[_normalised(entry) for entry in given])
    write.warn(_BAD_MANAGED_FIELDS)
    before = write.object or {"metadata": {}}
    return with_metadata(left, managedFields=before["metadata"].get("managedFields"))


def _normalised(entry: Object) -> Object:
    return {**entry, "fieldsV1": from_fields_v1(entry.get("fieldsV1"))}
