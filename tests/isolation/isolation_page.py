"""docs/isolation.md, rendered from the table of this folder: `make isolation`."""

from __future__ import annotations

from pathlib import Path

import scenes_of_authors
import scenes_of_rings
import scenes_of_servers
from table import TABLE, Cell, Misbehaviour, Shown, Unit

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "isolation.md"
SCENES = (scenes_of_servers, scenes_of_rings, scenes_of_authors)
"""Importing them fills the table."""

HEAD = """\
# Isolation

<!-- Generated from tests/isolation: edit the table there, and run `make isolation`. -->

What belongs to one (a kind, a cluster, an object, a ring, a tenant, a function of yours) must not take the others down
or blind them. For each unit that can misbehave, and each way in which it can, this page says what the others are
guaranteed.

Each row with a time is a test on virtual time with the production classes. `tests/isolation` runs two rings with their
shards, a sharder, and an operator in two clusters; it lets one unit misbehave, and keeps changing objects of the
others. "Within" is the longest time until such a change is reconciled. "Back within" is how long it takes after the end
of the trouble until the unit itself is well again. No process ends meanwhile, unless the row says so. "Said" is the
condition, metric or log line that the test looks for; where it is empty, the test looks for none, which does not mean
that nothing is said: see [troubleshooting](troubleshooting.md).

| the others | are |
|---|---|
"""

NEIGHBOURS = {
    "things": "objects of another kind of the same ring",
    "others": "objects of the ring's second kind",
    "quiets": "objects of another ring",
    "plains": "objects of another controller of an operator without a ring",
    "peers": "other objects of the same controller",
    "new": "objects that are created now: they get a shard, and are reconciled",
    "fars": "objects in another cluster",
}

COLUMNS = (
    "| misbehaviour | what happens | these go on | within | back within | said |\n|---|---|---|---|---|---|\n"
)


def rendered() -> str:
    """The text of the page."""
    text = HEAD + "".join(f"| *{name}* | {what} |\n" for name, what in NEIGHBOURS.items())
    for unit in Unit:
        text += f"\n## {unit.value[0].upper()}{unit.value[1:]}\n\n{COLUMNS}"
        without = dict[str, list[str]]()
        for misbehaviour in Misbehaviour:
            entry = TABLE[unit, misbehaviour]
            if isinstance(entry, Cell):
                back = f"{entry.back[1]:g} s" if entry.back else ""
                said = "; ".join(f"{where} `{what}`" for where, what in entry.said)
                others = ", ".join(entry.others)
                row = (misbehaviour.value, entry.what, others, f"{entry.within:g} s", back, said)
                text += f"| {' | '.join(row)} |\n"
            elif isinstance(entry, Shown):
                text += f"| {misbehaviour.value} | {entry.what} Shown by `{entry.test}`. | | | | |\n"
            else:
                without.setdefault(entry.why, []).append(misbehaviour.value)
        if without:
            text += "\nNot in the table:\n\n"
        for why, misbehaviours in without.items():
            text += f"* *{', '.join(misbehaviours)}*: {why[0].lower()}{why[1:]}\n"
    return text


if __name__ == "__main__":
    PAGE.write_text(rendered())
