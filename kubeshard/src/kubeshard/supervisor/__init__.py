"""Several processes of an operator in one pod, each a shard of its ring: what runs above them.

    python -m kubeshard.supervisor --processes 4 --health-address :8081 --metrics-address :8080 -- PROGRAM...

`kubeshard.manager.run` turns a program into this one if its manager has `processes`. It starts the program so many
times, and again when it ends (`state_machine`); shows their pages as one (`pages`); and hands signals on. It loads
nothing of the operator and speaks to no API server, so it needs no rights.

| the supervisor gets | its processes |
|---|---|
| SIGINT or SIGTERM | get SIGTERM; the supervisor ends when they have ended |
| a second one | are killed |
| SIGUSR1 | write what they are doing to standard error |
| SIGKILL | end at once (`kubeshard.runtime.supervised`) |

Guaranteed: one failing process does not affect the others, except if it ends with exit code 2, a user's mistake.
"""
