"""Field management and server-side apply: which manager owns which fields of an object, and the consequences. Pure.

`tracker` is the entry; below it `managers` (managedFields), `merging`, `fieldset` (set algebra) and `shape`
(how values divide into fields).
"""
