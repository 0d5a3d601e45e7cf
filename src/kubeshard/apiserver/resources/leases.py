"""Leases of `coordination.k8s.io/v1`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from kubeshard.apiserver.objects import Object
from kubeshard.apiserver.resources.strategy import Strategy
from kubeshard.apiserver.schema.go_types import INT32, MICRO_TIME, STRING, struct
from kubeshard.apiserver.status import FieldError, invalid_value
from kubeshard.core.kinds import Kind


class Leases(Strategy):
    """Times must have exactly six fractional digits; a duration is positive; an empty holder is allowed."""

    create_on_update = True
    unconditional_update = False
    zero: ClassVar[Mapping[str, Any]] = {"spec": {}}

    def __init__(self) -> None:
        spec = struct(
            "LeaseSpec",
            holderIdentity=STRING,
            leaseDurationSeconds=INT32,
            acquireTime=MICRO_TIME,
            renewTime=MICRO_TIME,
            leaseTransitions=INT32,
            strategy=STRING,
            preferredHolder=STRING,
        )
        super().__init__(Kind("coordination.k8s.io", "v1", "Lease", "leases"), struct("Lease", spec=spec))

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
