------------------------------ MODULE Sharding ------------------------------
(***************************************************************************)
(* How kubeshard keeps two processes from working on one object: the       *)
(* Lease, the drain, the fence, the tombstone, incarnations, taking from   *)
(* the dead, and reclaiming.  docs/design/model.md says what is proved,    *)
(* what is not, and which code each action stands for.                     *)
(*                                                                         *)
(* There is no clock.  What a process may still do is one value, `life`:   *)
(*                                                                         *)
(*   alive        within its deadline, counted from the last renewal       *)
(*   "dead"       past the deadline, but a request may still take effect   *)
(*   "gone"       so long past it that none can: twice the lease duration  *)
(*                                                                         *)
(* Whoever waits for twice the duration waits for "gone".  That this is    *)
(* so, whatever the clocks show as long as their rates differ by less than *)
(* a half, is the arithmetic of kubeshard.shard.timing, not of this model. *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Shards,        \* names of shards
    Sharders,      \* processes, each with its own view: any number may act at once
    Objects,
    Parent,        \* the one of the objects that controls a child
    Processes,     \* how many processes are started under each name, one after or beside the other
    Nobody,        \* no shard
    NoChild,       \* the child does not exist
    Off,           \* the measures that are switched off, named as in tools/measures.py
    Faults,        \* what may go wrong, named as in kubeshard_lab.simulation.faults
    Deletions      \* how many Leases users delete

ABSENT == 0        \* A Lease is absent,
FREE   == 11       \* released by its holder,
TAKEN  == 12       \* taken over by a sharder,
                   \* or, 1 .. Processes, held by the process of that number.

VARIABLES
    owner, drain,  \* the labels of each object
    child,         \* the shard label of the child, or NoChild
    lease, mark,   \* each shard's Lease, and whether it is annotated as returning
    deleted,       \* how many Leases were deleted
    life,          \* what each process may do: see above
    work,          \* what each process does with each object
    cache,         \* the objects that each process may believe to be its own
    first,         \* the objects of which each process has not finished a reconcile since they came to it
    view,          \* the shards that each sharder believes alive; a tombstone counts
    job,           \* the forced move that each sharder is about to make
    late,          \* requests that something holds back for longer than the kernel and the server may
    broken         \* the oracles that have noticed something

vars == <<owner, drain, child, lease, mark, deleted, life, work, cache, first, view, job, late, broken>>
labels == <<owner, drain, child>>
leases == <<lease, mark, deleted>>
processes == <<life, work, cache, first>>
sharders == <<view, job>>

Numbers == 1 .. Processes
NoJob == [object |-> Nobody, proven |-> FALSE]
On(measure) == measure \notin Off
Requests == {"main", "create", "update"}
Started == {"acquired", "sealing", "working"}
Alive == Started \cup {"zombie"}

Held(n) == lease[n] \in Numbers
Idle == [o \in Objects |-> "idle"]
Mine(n) == {o \in Objects : owner[o] = n /\ ~drain[o]}

Init ==
    /\ owner = [o \in Objects |-> Nobody]
    /\ drain = [o \in Objects |-> FALSE]
    /\ child = NoChild
    /\ lease = [n \in Shards |-> ABSENT]
    /\ mark = [n \in Shards |-> FALSE]
    /\ deleted = 0
    /\ life = [n \in Shards |-> [i \in Numbers |-> "off"]]
    /\ work = [n \in Shards |-> [i \in Numbers |-> Idle]]
    /\ cache = [n \in Shards |-> [i \in Numbers |-> {}]]
    /\ first = [n \in Shards |-> [i \in Numbers |-> {}]]
    /\ view = [x \in Sharders |-> [n \in Shards |-> FALSE]]
    /\ job = [x \in Sharders |-> NoJob]
    /\ late = {}
    /\ broken = {}

-----------------------------------------------------------------------------
(* What a write to an object does besides: patches that are guarded by an  *)
(* older version of it are refused from now on, so they are dropped here.  *)

Changed(o) == job' = [x \in Sharders |-> IF job[x].object = o THEN NoJob ELSE job[x]]

(* The object gets this label.  Every live process of that name may see it. *)
Labelled(o, n) ==
    /\ owner' = [owner EXCEPT ![o] = n]
    /\ drain' = [drain EXCEPT ![o] = FALSE]
    /\ cache' = [m \in Shards |-> [i \in Numbers |->
                    IF m = n /\ life[m][i] \in Alive THEN cache[m][i] \cup {o} ELSE cache[m][i]]]
    /\ first' = [m \in Shards |-> [i \in Numbers |->
                    IF m = n /\ life[m][i] \in Alive THEN first[m][i] \cup {o} ELSE first[m][i]]]

-----------------------------------------------------------------------------
(* The Lease of a shard: kubeshard.leases.state_machine, shard_lease.      *)

Former(n, i) == {j \in Numbers : j < i}

(* A process becomes the holder.  `returning`: others may have given the   *)
(* name up, so its objects are reclaimed before it works.                  *)
Hold(n, i, returning) ==
    /\ lease' = [lease EXCEPT ![n] = i]
    /\ IF returning /\ On("reclaiming")
       THEN /\ life' = [life EXCEPT ![n][i] = "acquired"]
            /\ mark' = [mark EXCEPT ![n] = TRUE]
            /\ UNCHANGED <<cache, first>>
       ELSE /\ life' = [life EXCEPT ![n][i] = "working"]
            /\ mark' = [mark EXCEPT ![n] = FALSE]
            /\ cache' = [cache EXCEPT ![n][i] = Mine(n)]
            /\ first' = [first EXCEPT ![n][i] = Mine(n)]
    /\ UNCHANGED <<labels, deleted, work, sharders, late, broken>>

Acquire(n, i) ==
    /\ life[n][i] = "off"
    /\ \A j \in Former(n, i) :
         life[n][j] \in {"dead", "gone"} \cup IF "twin" \in Faults THEN Alive ELSE {}
    /\ \/ /\ lease[n] = ABSENT
          (* One that never saw the Lease creates it at once: see the limits. *)
          /\ "restart after a deletion" \in Faults \/ \A j \in Former(n, i) : life[n][j] = "gone"
          /\ Hold(n, i, TRUE)
       \/ /\ lease[n] \in {FREE, TAKEN}
          /\ Hold(n, i, TRUE)
       \/ /\ Held(n)
          /\ On("incarnation") => life[n][lease[n]] \in {"gone", "zombie"}
          /\ Hold(n, i, mark[n])

(* The consistent list of a returning process. *)
List(n, i) ==
    /\ life[n][i] = "acquired"
    /\ life' = [life EXCEPT ![n][i] = "sealing"]
    /\ work' = [work EXCEPT ![n][i] = [o \in Objects |-> IF o \in Mine(n) THEN "unsealed" ELSE "idle"]]
    /\ cache' = [cache EXCEPT ![n][i] = Mine(n)]
    /\ first' = [first EXCEPT ![n][i] = Mine(n)]
    /\ UNCHANGED <<labels, leases, sharders, late, broken>>

(* An object gets a new version.  One that changed since the list has one. *)
Seal(n, i, o) ==
    /\ life[n][i] = "sealing"
    /\ work[n][i][o] = "unsealed"
    /\ work' = [work EXCEPT ![n][i][o] = "idle"]
    /\ IF owner[o] = n THEN Changed(o) ELSE UNCHANGED job
    /\ UNCHANGED <<labels, leases, life, cache, first, view, late, broken>>

Reclaimed(n, i) ==
    /\ life[n][i] = "sealing"
    /\ work[n][i] = Idle
    /\ life' = [life EXCEPT ![n][i] = "working"]
    /\ mark' = IF lease[n] = i THEN [mark EXCEPT ![n] = FALSE] ELSE mark
    /\ UNCHANGED <<labels, lease, deleted, work, cache, first, sharders, late, broken>>

(* A renewal finds that the Lease was deleted. *)
Recreate(n, i) ==
    /\ life[n][i] \in Started
    /\ lease[n] = ABSENT
    /\ lease' = [lease EXCEPT ![n] = i]
    /\ mark' = [mark EXCEPT ![n] = life[n][i] # "working"]
    /\ UNCHANGED <<labels, deleted, processes, sharders, late, broken>>

(* A process ends.  What it has sent may still take effect. *)
Ends(n, i) ==
    /\ life' = [life EXCEPT ![n][i] = "dead"]
    /\ work' = [work EXCEPT ![n][i] = [o \in Objects |-> IF @[o] \in Requests THEN @[o] ELSE "idle"]]
    /\ cache' = [cache EXCEPT ![n][i] = {}]
    /\ first' = [first EXCEPT ![n][i] = {}]
    /\ UNCHANGED <<labels, leases, sharders, late, broken>>

(* A renewal finds, or the watch shows, another holder. *)
Lose(n, i) == life[n][i] \in Alive /\ lease[n] \notin {i, ABSENT} /\ Ends(n, i)

(* It crashes, or could not renew in time: then the kernel ends it. *)
Kill(n, i) == life[n][i] \in Alive /\ Ends(n, i)

(* Without the kernel's watchdog, a process that was stopped is there again *)
(* when its time is long over, and goes on where it was.                    *)
Pause(n, i) ==
    /\ ~On("watchdog")
    /\ life[n][i] = "working"
    /\ life' = [life EXCEPT ![n][i] = "zombie"]
    /\ UNCHANGED <<labels, leases, work, cache, first, sharders, late, broken>>

(* A request of a dead process is lost. *)
Lost(n, i, o) ==
    /\ life[n][i] = "dead"
    /\ work[n][i][o] \in Requests
    /\ work' = [work EXCEPT ![n][i][o] = "idle"]
    /\ UNCHANGED <<labels, leases, life, cache, first, sharders, late, broken>>

TimeIsUp(n, i) ==
    /\ life[n][i] = "dead"
    /\ work[n][i] = Idle
    /\ life' = [life EXCEPT ![n][i] = "gone"]
    /\ UNCHANGED <<labels, leases, work, cache, first, sharders, late, broken>>

Release(n, i) ==
    /\ life[n][i] = "working"
    /\ work[n][i] = Idle
    /\ lease[n] = i
    /\ lease' = [lease EXCEPT ![n] = FREE]
    /\ life' = [life EXCEPT ![n][i] = "gone"]
    /\ cache' = [cache EXCEPT ![n][i] = {}]
    /\ first' = [first EXCEPT ![n][i] = {}]
    /\ UNCHANGED <<labels, mark, deleted, work, sharders, late, broken>>

DeleteLease(n) ==
    /\ Held(n)
    /\ deleted < Deletions
    /\ deleted' = deleted + 1
    /\ lease' = [lease EXCEPT ![n] = ABSENT]
    /\ mark' = [mark EXCEPT ![n] = FALSE]
    /\ UNCHANGED <<labels, processes, sharders, late, broken>>

-----------------------------------------------------------------------------
(* The reconciles of a shard: kubeshard.controller, shard.wrapper.         *)

(* From the cache; the first time, from the API server.  *)
Begin(n, i, o) ==
    /\ life[n][i] = "working"
    /\ o \in cache[n][i]
    /\ work[n][i][o] = "idle"
    /\ o \in first[n][i] /\ On("first run") => o \in Mine(n)
    /\ work' = [work EXCEPT ![n][i][o] = "busy"]
    /\ UNCHANGED <<labels, leases, life, cache, first, sharders, late, broken>>

(* Whether a reconcile sees the child: the first one reads from the API    *)
(* server, later ones from a cache of what carries the shard's own label.  *)
SeesChild(n, i) ==
    \/ child = n
    \/ child # NoChild /\ Parent \in first[n][i] /\ On("first run")

Send(n, i, o) ==
    /\ life[n][i] \in {"working", "zombie"}
    /\ work[n][i][o] = "busy"
    /\ \/ /\ "late" \in Faults \/ "watchdog" \in Off  \* Otherwise ExecutionExclusion says all there is to say.
          /\ work' = [work EXCEPT ![n][i][o] = "main"]
       \/ /\ o = Parent
          /\ work' = [work EXCEPT ![n][i][o] = IF SeesChild(n, i) THEN "update" ELSE "create"]
    /\ UNCHANGED <<labels, leases, life, cache, first, sharders, late, broken>>

(* What a request does at the API server.  A late one to a child is not    *)
(* judged: the label that is compared is the child's, not its owner's.     *)
Effect(n, o, request, judged) ==
    LET ours == owner[o] = n
        notice(oracle, when) == broken' = IF when THEN broken \cup {oracle} ELSE broken
    IN CASE request = "main" ->
              IF ours \/ ~On("fence")
              THEN Changed(o) /\ notice("stale write", ~ours) /\ UNCHANGED child
              ELSE UNCHANGED <<job, broken, child>>
         [] request = "update" ->
              IF child = n \/ (~On("fence") /\ child # NoChild)
              THEN notice("stale write", judged /\ ~ours) /\ UNCHANGED <<job, child>>
              ELSE UNCHANGED <<job, broken, child>>
         [] request = "create" ->
              IF child = NoChild
              THEN child' = n /\ notice("stale write", judged /\ ~ours) /\ UNCHANGED job
              ELSE notice("missed child", judged /\ ours /\ child # n) /\ UNCHANGED <<job, child>>

Land(n, i, o) ==
    /\ work[n][i][o] \in Requests
    /\ Effect(n, o, work[n][i][o], TRUE)
    /\ work' = [work EXCEPT ![n][i][o] = IF life[n][i] = "dead" THEN "idle" ELSE "busy"]
    /\ UNCHANGED <<owner, drain, leases, life, cache, first, view, late>>

(* Something between the process and the server holds a request back; the  *)
(* process stops waiting for it.  Not a create, which nothing can refuse.  *)
HoldBack(n, i, o) ==
    /\ "late" \in Faults
    /\ late = {}
    /\ work[n][i][o] \in Requests \ {"create"}
    /\ late' = {<<n, o, work[n][i][o]>>}
    /\ work' = [work EXCEPT ![n][i][o] = IF life[n][i] = "dead" THEN "idle" ELSE "busy"]
    /\ UNCHANGED <<labels, leases, life, cache, first, sharders, broken>>

LandLate ==
    \E request \in late :
        /\ Effect(request[1], request[2], request[3], FALSE)
        /\ late' = late \ {request}
        /\ UNCHANGED <<owner, drain, leases, processes, view>>

(* As long as the child that it saw carries another shard's label, the next *)
(* reconcile reads from the API server again.                               *)
Finish(n, i, o) ==
    /\ life[n][i] \in {"working", "zombie"}
    /\ work[n][i][o] = "busy"
    /\ work' = [work EXCEPT ![n][i][o] = "idle"]
    /\ first' = IF o = Parent /\ child \notin {n, NoChild} THEN first ELSE [first EXCEPT ![n][i] = @ \ {o}]
    /\ UNCHANGED <<labels, leases, life, cache, sharders, late, broken>>

(* The drain is acknowledged: both labels are removed.  Where the webhook  *)
(* is called, `Assign` follows in the same request.                        *)
Acknowledge(n, i, o) ==
    /\ life[n][i] = "working"
    /\ owner[o] = n
    /\ drain[o]
    /\ On("idle before acknowledgement") => work[n][i][o] = "idle"
    /\ Changed(o)
    /\ owner' = [owner EXCEPT ![o] = Nobody]
    /\ drain' = [drain EXCEPT ![o] = FALSE]
    /\ cache' = IF On("stale guard") THEN [cache EXCEPT ![n][i] = @ \ {o}] ELSE cache
    /\ first' = IF On("stale guard") THEN [first EXCEPT ![n][i] = @ \ {o}] ELSE first
    /\ UNCHANGED <<child, leases, life, work, view, late, broken>>

-----------------------------------------------------------------------------
(* The sharders: kubeshard.sharding.shard_states, sharder.lease_controller,      *)
(* lease_observer, moves.  Their views may be as old as they like.         *)

Observe(x, n) ==
    /\ view' = [view EXCEPT ![x][n] = \/ Held(n)
                                      \/ lease[n] = ABSENT /\ view[x][n] /\ On("tombstone")]
    /\ view' # view
    /\ UNCHANGED <<labels, leases, processes, job, late, broken>>

(* The Lease was not renewed for twice its duration.  A read shows the     *)
(* same, and the write requires the version that was read.                 *)
Seize(x, n) ==
    /\ view[x][n]
    /\ Held(n)
    /\ life[n][lease[n]] \in {"gone", "zombie"}
    /\ lease' = [lease EXCEPT ![n] = TAKEN]
    /\ mark' = [mark EXCEPT ![n] = FALSE]
    /\ view' = [view EXCEPT ![x][n] = FALSE]
    /\ UNCHANGED <<labels, deleted, processes, job, late, broken>>

(* Nobody can act under the name any more. *)
Over(n) == \A i \in Numbers : life[n][i] \in {"off", "gone", "zombie"}

SettleTombstone(x, n) ==
    /\ view[x][n]
    /\ lease[n] = ABSENT
    /\ Over(n)
    /\ lease' = [lease EXCEPT ![n] = TAKEN]
    /\ view' = [view EXCEPT ![x][n] = FALSE]
    /\ UNCHANGED <<labels, mark, deleted, processes, job, late, broken>>

(* The Lease that nobody holds is deleted. *)
Collect(n) ==
    /\ "lease" \in Faults
    /\ lease[n] \in {FREE, TAKEN}
    /\ lease' = [lease EXCEPT ![n] = ABSENT]
    /\ UNCHANGED <<labels, mark, deleted, processes, sharders, late, broken>>

RestartSharder(x) ==
    /\ "sharder_kill" \in Faults
    /\ view' = [view EXCEPT ![x] = [n \in Shards |-> Held(n)]]
    /\ job' = [job EXCEPT ![x] = NoJob]
    /\ <<view', job'>> # <<view, job>>
    /\ UNCHANGED <<labels, leases, processes, late, broken>>

Assign(x, o, n) ==
    /\ owner[o] = Nobody
    /\ view[x][n]
    /\ Labelled(o, n)
    /\ Changed(o)
    /\ UNCHANGED <<child, leases, life, work, view, late, broken>>

(* By a sharder, for whatever reason, or by a user. *)
Drain(o) ==
    /\ owner[o] # Nobody
    /\ ~drain[o]
    /\ drain' = [drain EXCEPT ![o] = TRUE]
    /\ Changed(o)
    /\ UNCHANGED <<owner, child, leases, processes, view, late, broken>>

(* A forced move begins with a read of the object, *)
Read(x, o) ==
    /\ job[x] = NoJob
    /\ owner[o] # Nobody
    /\ ~view[x][owner[o]]
    /\ job' = [job EXCEPT ![x] = [object |-> o, proven |-> FALSE]]
    /\ UNCHANGED <<labels, leases, processes, view, late, broken>>

(* then comes the proof, unless there is a tombstone, *)
Prove(x) ==
    /\ job[x] # NoJob
    /\ ~job[x].proven
    /\ LET n == owner[job[x].object]
       IN On("proof of death") => /\ ~Held(n)
                                  /\ lease[n] = ABSENT /\ On("tombstone") => ~view[x][n] /\ Over(n)
    /\ job' = [job EXCEPT ![x].proven = TRUE]
    /\ UNCHANGED <<labels, leases, processes, view, late, broken>>

(* then the patch, after any time.  It requires the version that was read: *)
(* see Changed.                                                            *)
Move(x, n) ==
    /\ job[x].proven
    /\ view[x][n]
    /\ n # owner[job[x].object]
    /\ Labelled(job[x].object, n)
    /\ Changed(job[x].object)
    /\ UNCHANGED <<child, leases, life, work, view, late, broken>>

Abandon(x) ==
    /\ job[x] # NoJob
    /\ job' = [job EXCEPT ![x] = NoJob]
    /\ UNCHANGED <<labels, leases, processes, view, late, broken>>

(* A child moves without a drain: once its owner has, or, if its shard is  *)
(* dead, before.                                                           *)
MoveChild(x) ==
    /\ child # NoChild
    /\ \/ /\ owner[Parent] \notin {Nobody, child}
          /\ ~drain[Parent]
          /\ child' = owner[Parent]
       \/ /\ job[x] = [object |-> Parent, proven |-> TRUE]
          /\ child = owner[Parent]
          /\ \E n \in Shards : view[x][n] /\ n # child /\ child' = n
       \/ /\ ~On("children wait")
          /\ \E n \in Shards : view[x][n] /\ n # child /\ child' = n
    /\ UNCHANGED <<owner, drain, leases, processes, sharders, late, broken>>

-----------------------------------------------------------------------------

Next ==
    \/ \E n \in Shards, i \in Numbers :
         \/ Acquire(n, i) \/ List(n, i) \/ Reclaimed(n, i) \/ Recreate(n, i) \/ Lose(n, i) \/ Kill(n, i)
         \/ Pause(n, i) \/ TimeIsUp(n, i) \/ Release(n, i)
         \/ \E o \in Objects :
              \/ Seal(n, i, o) \/ Begin(n, i, o) \/ Send(n, i, o) \/ Land(n, i, o) \/ Lost(n, i, o)
              \/ HoldBack(n, i, o) \/ Finish(n, i, o) \/ Acknowledge(n, i, o)
    \/ LandLate
    \/ \E n \in Shards : DeleteLease(n) \/ Collect(n)
    \/ \E o \in Objects : Drain(o)
    \/ \E x \in Sharders :
         \/ Prove(x) \/ Abandon(x) \/ MoveChild(x) \/ RestartSharder(x)
         \/ \E n \in Shards : Observe(x, n) \/ Seize(x, n) \/ SettleTombstone(x, n) \/ Move(x, n)
         \/ \E o \in Objects : Read(x, o)
         \/ \E o \in Objects, n \in Shards : Assign(x, o, n)

Spec == Init /\ [][Next]_vars

Symmetry == Permutations(Shards) \cup Permutations(Sharders)

-----------------------------------------------------------------------------

(* Every write that takes effect is by the shard that the label names, and *)
(* no child is created whose owner has one.                                *)
WriteExclusion == broken = {}

(* Nobody works on an object, nor has a request for it under way, but one   *)
(* process of the shard that its label names.                              *)
AtWork(n, i, o) == work[n][i][o] \in Requests \cup {"busy"}
ExecutionExclusion ==
    \A o \in Objects : \A n \in Shards, i \in Numbers :
        AtWork(n, i, o) => /\ owner[o] = n
                           /\ \A j \in Numbers \ {i} : ~AtWork(n, j, o)

(* At most one process acts under a name. *)
Identity == \A n \in Shards : Cardinality({i \in Numbers : life[n][i] \in Alive}) <= 1
=============================================================================
