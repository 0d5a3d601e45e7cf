"""Field management and server-side apply: who owns which field of an object, and what follows from it. Pure.

`tracker` is the entry; below it `managers` (managedFields), `merging`, `fieldset` (set algebra) and `shape`
(how values divide into fields).
"""
