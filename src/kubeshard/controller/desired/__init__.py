"""Desired sets: these objects should exist because of an owner, and no others.

Guaranteed: after a run that raised nothing and has nothing waiting, the cluster has what is wished and no other member
of the set, in no kind, also in those that only an earlier version of the program knew. A run that ended anywhere, its
answers lost or not, is completed by the next one. What is as wished costs no request. Nothing is deleted that was not
applied for this very set, nothing while a part of the wish is not there, and nothing in another state than it was seen
in. What others set in members is kept, as far as the wish does not speak of it.

Not guaranteed: an order of members, but for Namespaces and definitions of kinds; that members without a reference to
the owner go when it goes (give it a finalizer, and apply an empty set when it is being deleted); that a member whose
labels or annotations were taken off is found again once it is not wished any more.

RBAC: of the kinds of members `get`, `list`, `watch`, `create`, `patch` and `delete`; of the owner's kind `patch`. To be
read in the order `applyset`, `members`, `planning`, `observing`, `writing`, `sets`.
"""
