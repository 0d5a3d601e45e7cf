"""Leases of `coordination.k8s.io/v1`."""

from __future__ import annotations

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.status import FieldError, invalid_value


class Leases(Typed):
    """Times must have exactly six fractional digits; a duration is positive; an empty holder is allowed."""

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj["spec"], []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            errors.append(invalid_value("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            errors.append(
                invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
            )
        return errors
