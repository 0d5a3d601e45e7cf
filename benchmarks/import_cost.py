"""The cost of a program's imports: CPU and memory before its first line of work.

    python benchmarks/import_cost.py [--rounds 9]

Each row is a program in its own process; the figures are medians. `python` is the interpreter alone, which the other
rows include.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

PROGRAMS = {
    "python": "pass",
    "import kubeshard": "import kubeshard",
    "a kind, nothing that runs": "from kubeshard import KubeObject, ObjectMeta, Struct, field",
    "Manager and Controller": "from kubeshard import Manager, Controller",
    "a manager with a controller": "import first_operator; first_operator.Manager([first_operator.pages])",
    "and its HTTP pages": (
        "import first_operator; first_operator.Manager([first_operator.pages])\n"
        "import kubeshard.runtime.http_server_protocol"
    ),
    "a shard of the webhosting operator": (
        "import kubeshard_lab.examples.webhosting.__main__, kubeshard_lab.examples.webhosting.operator"
    ),
    "and its connections": "import kubeshard_lab.examples.webhosting.operator, kubeshard.runtime.http, uvloop",
    "kubeshard sharder": "import kubeshard.cli.program; from kubeshard.sharder.app import run_sharder",
}

_MEASURE = """
import json, resource, sys
sys.path.insert(0, {examples!r})
{program}
used = resource.getrusage(resource.RUSAGE_SELF)
with open("/proc/self/status") as status:  # `ru_maxrss` is at least that of the process that started this one
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps([used.ru_utime + used.ru_stime, peak / 1024, len(sys.modules)]))
"""


class Cost(NamedTuple):
    cpu: float
    """Seconds since the process began."""
    memory: float
    """Peak resident memory in MiB."""
    modules: int


def cost(program: str) -> Cost:
    code = _MEASURE.format(examples=str(EXAMPLES), program=program)
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - this interpreter
    return Cost(*json.loads(ran.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    found: dict[str, list[Cost]] = {name: [] for name in PROGRAMS}
    for _ in range(rounds + 1):
        for name, program in PROGRAMS.items():
            found[name].append(cost(program))
    print(f"{'program':<36} {'CPU s':>7} {'MiB':>6} {'modules':>8}")
    for name, costs in found.items():
        counted = costs[1:]  # the first may still compile
        cpu, memory = median(each.cpu for each in counted), median(each.memory for each in counted)
        print(f"{name:<36} {cpu:>7.3f} {memory:>6.1f} {counted[0].modules:>8}")


if __name__ == "__main__":
    main()
