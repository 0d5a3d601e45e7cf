"""What must hold of the tickets, whatever happens."""

from tickets import Visitor

from kubeshard import ConfigMap
from kubeshard_lab.simulation import Snapshot


def one_ticket_each(snapshot: Snapshot) -> None:
    for visitor in snapshot.list(Visitor):
        assert len(snapshot.list(ConfigMap, owner=visitor)) <= 1, f"{visitor.metadata.name} has two tickets"
