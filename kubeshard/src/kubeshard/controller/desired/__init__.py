"""Desired sets: exactly these objects should exist on behalf of an owner.

Guaranteed: after a run that raised nothing and has nothing waiting, the desired objects exist and the set has no other
members of any kind, including kinds that only an earlier version of the program knew. If a run is interrupted at any
point, the next one completes it, whether or not responses were lost. Objects that are already as desired cost no
request. An object is deleted only if it was applied for this set, all desired objects exist, and it has not changed
since it was read. Fields that others set in members are kept unless the desired object sets them too.

What an `Ordered` object comes after is ready when it is written, and still exists when it is deleted.

Not guaranteed: another order of members, except that Namespaces and CustomResourceDefinitions come first; that members
without a reference to the owner are deleted with it (`Finalizer.deleting_members` does that); that a member whose
labels or annotations were removed is still found when it should be pruned.

RBAC: `get`, `list`, `watch`, `create`, `patch` and `delete` on the kinds of members; `patch` on the owner's kind.
Reading order: `applyset`, `order`, `members`, `plan`, `execution`, `sets`.
"""
