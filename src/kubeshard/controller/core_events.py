"""The same events by their older name: `v1` instead of `events.k8s.io/v1`.

Both are one thing to the API server, under two sets of field names, and two rules of RBAC. Roles written for older
recorders grant the core group only.
"""

from __future__ import annotations

from kubeshard.controller.event_series import Event, ObjectReference, Series
from kubeshard.core.objects import KubeObject


class CoreEvent(KubeObject, version="v1", kind="Event", plural="events"):
    """`v1`."""

    event_time: str | None = None
    series: Series | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    involved_object: ObjectReference | None = None
    related: ObjectReference | None = None
    message: str = ""
    type: str = ""


def core_event(event: Event) -> CoreEvent:
    """The event in the words of the core group."""
    return CoreEvent(
        metadata=event.metadata,
        event_time=event.event_time,
        series=event.series,
        reporting_component=event.reporting_controller,
        reporting_instance=event.reporting_instance,
        action=event.action,
        reason=event.reason,
        involved_object=event.regarding,
        related=event.related,
        message=event.note,
        type=event.type,
    )
