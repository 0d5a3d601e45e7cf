"""Classes of events.k8s.io/v1 in Kubernetes 1.37, written by `make types`. The descriptions are those of the
Kubernetes authors (Apache License 2.0).
"""

from __future__ import annotations

from kubeshard.core.objects import KubeObject, Struct
from kubeshard.kinds.generated.core_v1_references import EventSource, ObjectReference


class EventSeries(Struct):
    """EventSeries contain information on series of events, i.e. thing that was/is happening continuously for
    some time.
    """

    count: int
    """count is the number of occurrences in this series up to the last heartbeat time."""
    last_observed_time: str
    """lastObservedTime is the time when last Event from the series was seen before last heartbeat."""


class Event(KubeObject, group="events.k8s.io", version="v1"):
    """Event is a report of an event somewhere in the cluster."""

    event_time: str
    """eventTime is the time when this Event was first observed."""
    action: str | None = None
    """action is what action was taken/failed regarding to the regarding object."""
    deprecated_count: int | None = None
    """deprecatedCount is the deprecated field assuring backward compatibility with core.v1 Event type."""
    deprecated_first_timestamp: str | None = None
    """deprecatedFirstTimestamp is the deprecated field assuring backward compatibility with core.v1 Event
    type.
    """
    deprecated_last_timestamp: str | None = None
    """deprecatedLastTimestamp is the deprecated field assuring backward compatibility with core.v1 Event
    type.
    """
    deprecated_source: EventSource | None = None
    """deprecatedSource is the deprecated field assuring backward compatibility with core.v1 Event type."""
    note: str | None = None
    """note is a human-readable description of the status of this operation."""
    reason: str | None = None
    """reason is why the action was taken."""
    regarding: ObjectReference | None = None
    """regarding contains the object this Event is about."""
    related: ObjectReference | None = None
    """related is the optional secondary object for more complex actions."""
    reporting_controller: str | None = None
    """reportingController is the name of the controller that emitted this Event, e.g.
    `kubernetes.io/kubelet`.
    """
    reporting_instance: str | None = None
    """reportingInstance is the ID of the controller instance, e.g. `kubelet-xyzf`."""
    series: EventSeries | None = None
    """series is data about the Event series this event represents or nil if it's a singleton Event."""
    type: str | None = None
    """type is the type of this event (Normal, Warning), new types could be added in the future."""
