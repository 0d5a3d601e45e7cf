"""Objects that are deleted some time after they were created, or after they finished: `Controller.expires`.

    Controller(..., expires=lambda job: job.status.finished and job.status.finished + timedelta(hours=1))

| what `expires` returns | what happens |
|---|---|
| None, or the object is being deleted | nothing |
| a time to come | the object is looked at again then, however its runs end in between |
| a time that has passed | it is deleted in place of a run, as it was read: its version is a precondition |
| another time than before | that time counts, whatever the `when` of the watch lets pass |
| what is neither None nor a time, or it raises | the run fails after the reconcile, which is not held up |

Nothing is remembered: another process, or another shard, finds the same time in the object. In a shard, only the owner
deletes. A delete that the API server refuses is a failed run, and is tried again like one. Finalizers are honoured.

Not guaranteed: exact times. The time is compared with this machine's clock, and with those that wrote the object's
times. A clock that is set, or a machine that slept, makes the deletion late until the object's next run, such as that
of a resync.

RBAC: `delete` on the kind.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from kubeshard.controller.context import Context
from kubeshard.controller.reconciler import ReconcileFn, Result
from kubeshard.core.errors import NotFound
from kubeshard.core.objects import Key, KubeObject

Expires = Callable[[Any], datetime | None]


def expiring(expires: Expires, again: Callable[[Key, float], None], inner: ReconcileFn) -> ReconcileFn:
    """Deletes objects that have expired, and leaves others to `inner`. `again` queues one in so many seconds, however
    its run ends.
    """

    async def run(ctx: Context, obj: KubeObject | None) -> Result | None:
        if obj is None or obj.metadata.deleting:
            return await inner(ctx, obj)
        try:
            at = _time(expires, obj)
        except Exception:
            await inner(ctx, obj)
            raise
        if at is None:
            return await inner(ctx, obj)
        left = at - ctx.clock.wall()
        if left > 0:
            again(ctx.key, left)
            return await inner(ctx, obj)
        try:
            # Said, because the API server's own default leaves what a Job controls.
            await ctx.client.delete_object(obj, kind=ctx.form.kind, propagation="Background")
        except NotFound:
            return None  # the cache will show it soon
        ctx.log.info("Deleted: it has expired")
        return None

    return run


def _time(expires: Expires, obj: KubeObject) -> float | None:
    at: object = expires(obj)
    if at is None:
        return None
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise TypeError(f"expires returned {at!r}: return None, or a datetime with a time zone")
    return at.timestamp()
