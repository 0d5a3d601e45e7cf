"""What kubeshard is tried in: simulations on virtual time, load experiments, a demo, and the operators that they load.

Nothing here runs in production. `virtual_time` runs asyncio code whose timers fire at once; users' tests may import it,
and what `kubeshard_lab.simulation` names.
"""

__version__ = "0.1.0.dev0"
