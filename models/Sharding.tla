------------------------------ MODULE Sharding ------------------------------
(***************************************************************************)
(* How kubeshard keeps two processes from working on one object: the       *)
(* Lease, the drain, the fence, the tombstone, incarnations, taking from   *)
(* the dead, and reclaiming.  docs/design/model.md says what is proved,    *)
(* what is not, and which code each action stands for.                     *)
(*                                                                         *)
(* With `Ranges`, an object is a bucket, and its labels are its place in   *)
(* the assignment: a drain has a target, who acknowledges it hands over    *)
(* directly, and writes prove a version in place of an owner.              *)
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
    Deletions,     \* how many Leases users delete
    Ranges,        \* whether shards own ranges of hashes, or objects that are labelled
    Anyone,        \* the target of a drain by labels: whoever is assigned next
    Epochs         \* the greatest epoch, where the assignment is restored once; 0 if it is not: see Newer

ABSENT == 0        \* A Lease is absent,
FREE   == 11       \* released by its holder,
TAKEN  == 12       \* taken over by a sharder,
                   \* or, 1 .. Processes, held by the process of that number.

VARIABLES
    owner, drain,  \* the labels of each object: its shard, and to whom this is asked to release it
    child,         \* the shard label of the child, or NoChild; Nobody for one without
    epoch,         \* of each place in the assignment
    backup,        \* what is restored
    lease, mark,   \* each shard's Lease, and whether it is annotated as returning
    deleted,       \* how many Leases were deleted
    life,          \* what each process may do: see above
    work,          \* what each process does with each object
    cache,         \* the objects that each process may believe to be its own
    first,         \* the objects of which each process has not finished a reconcile since they came to it;
                   \* the buckets that it has not listed since
    leaving,       \* the buckets that each process may have handed over: it sees later what became of them
    known,         \* whether the cache of each process shows the child
    seen,          \* the greatest epoch that each process has seen with each bucket
    view,          \* the shards that each sharder believes alive; a tombstone counts
    job,           \* the forced move that each sharder is about to make
    sent,          \* acknowledgements that may take effect: bucket, shard, target
    late,          \* requests that something holds back for longer than the kernel and the server may
    broken         \* the oracles that have noticed something

assignment == <<epoch, backup>>
labels == <<owner, drain, child, assignment>>
leases == <<lease, mark, deleted>>
machine == <<leaving, known, seen>>
processes == <<life, work, cache, first, machine>>
decided == <<job, sent>>
sharders == <<view, decided>>
vars == <<labels, leases, processes, sharders, late, broken>>

Numbers == 1 .. Processes
Place(o) == <<owner[o], drain[o], epoch[o]>>
NoJob == [object |-> Nobody, place |-> <<Nobody, Nobody, 0>>, proven |-> FALSE]
On(measure) == measure \notin Off
Requests == {"main", "create", "update"}
Started == {"acquired", "sealing", "working"}
Alive == Started \cup {"zombie"}

Held(n) == lease[n] \in Numbers
Idle == [o \in Objects |-> "idle"]
Mine(n) == {o \in Objects : owner[o] = n /\ drain[o] = Nobody}
Greatest(numbers) == CHOOSE e \in numbers : \A other \in numbers : other <= e

Init ==
    /\ owner = [o \in Objects |-> Nobody]
    /\ drain = [o \in Objects |-> Nobody]
    /\ child = NoChild
    /\ epoch = [o \in Objects |-> 0]
    /\ backup = [made |-> FALSE, used |-> FALSE, owner |-> owner, drain |-> drain, epoch |-> epoch]
    /\ lease = [n \in Shards |-> ABSENT]
    /\ mark = [n \in Shards |-> FALSE]
    /\ deleted = 0
    /\ life = [n \in Shards |-> [i \in Numbers |-> "off"]]
    /\ work = [n \in Shards |-> [i \in Numbers |-> Idle]]
    /\ cache = [n \in Shards |-> [i \in Numbers |-> {}]]
    /\ first = [n \in Shards |-> [i \in Numbers |-> {}]]
    /\ leaving = [n \in Shards |-> [i \in Numbers |-> {}]]
    /\ known = [n \in Shards |-> [i \in Numbers |-> FALSE]]
    /\ seen = [n \in Shards |-> [i \in Numbers |-> [o \in Objects |-> 0]]]
    /\ view = [x \in Sharders |-> [n \in Shards |-> FALSE]]
    /\ sent = {}
    /\ job = [x \in Sharders |-> NoJob]
    /\ late = {}
    /\ broken = {}

-----------------------------------------------------------------------------
(* What a write to an object, or to its place, does besides: patches that   *)
(* are guarded by what was there before are refused from now on, so they   *)
(* are dropped here.  Only a restore may bring back what they test.        *)

Later == IF Epochs = 0 THEN 0 ELSE Greatest({epoch[o] : o \in Objects}) + 1

Written(objects, number) ==
    /\ Epochs = 0 \/ number <= Epochs
    /\ epoch' = [o \in Objects |-> IF o \in objects THEN number ELSE epoch[o]]
    /\ IF "late patch" \in Faults \/ (Ranges /\ ~On("tests of the assignment"))
       THEN UNCHANGED decided
       ELSE /\ job' = [x \in Sharders |-> IF job[x].object \in objects THEN NoJob ELSE job[x]]
            /\ sent' = {each \in sent : each[1] \notin objects}
    /\ UNCHANGED backup

Changed(o) == Written({o}, Later)

(* Whether what a patch tests is there, if it was not dropped.             *)
Tested(o, place) == "late patch" \in Faults => Place(o) = place

(* A place is news if its epoch is greater than any seen before.  Without  *)
(* numbers it always is: only a restore brings back what is not.           *)
Newer(number, n, i, o) == Epochs = 0 \/ ~On("epochs compared") \/ number > seen[n][i][o]
Older(n, i, o) == Epochs > 0 /\ epoch[o] < seen[n][i][o]
Saw(number, n, i, o) == IF Epochs = 0 THEN seen[n][i] ELSE [seen[n][i] EXCEPT ![o] = Greatest({number, @})]

(* These objects get these owners.  Every live process of that name may    *)
(* see it from now on, at any time; by ranges, once it has reclaimed.      *)
AllGiven(objects, owners, number) ==
    LET follows(n, i) == life[n][i] \in IF Ranges THEN {"working", "zombie"} ELSE Alive
        to(n, i) == {o \in objects : owners[o] = n /\ follows(n, i) /\ Newer(number, n, i, o)}
        added(sets) == [n \in Shards |-> [i \in Numbers |-> sets[n][i] \cup to(n, i)]]
    IN /\ owner' = [o \in Objects |-> IF o \in objects THEN owners[o] ELSE owner[o]]
       /\ drain' = [o \in Objects |-> IF o \in objects THEN Nobody ELSE drain[o]]
       /\ cache' = added(cache)
       /\ first' = added(first)
       /\ seen' = [n \in Shards |-> [i \in Numbers |-> [o \in Objects |->
                      IF o \in to(n, i) THEN number ELSE seen[n][i][o]]]]
       /\ UNCHANGED <<leaving, known>>

Given(o, n) == AllGiven({o}, [owner EXCEPT ![o] = n], Later)

(* What the Leases of these shards say contradicts the assignment.  Who     *)
(* moves buckets, or begins, does not believe it then.                     *)
Reports(n, i) == lease[n] = i /\ life[n][i] \in {"working", "dead"}
Contradicted(shards) ==
    /\ Epochs > 0
    /\ \E n \in shards, i \in Numbers, o \in Objects :
         /\ Reports(n, i)
         /\ \/ \A other \in Objects : seen[n][i][o] > epoch[other]
            \/ /\ o \in cache[n][i]
               /\ epoch[o] < seen[n][i][o] \/ (epoch[o] = seen[n][i][o] /\ owner[o] # n)

-----------------------------------------------------------------------------
(* The Lease of a shard: kubeshard.leases.state_machine, shard_lease.      *)

Former(n, i) == {j \in Numbers : j < i}

(* A process becomes the holder.  `returning`: others may have given the   *)
(* name up, so its objects are reclaimed before it works.                  *)
Hold(n, i, returning) ==
    /\ lease' = [lease EXCEPT ![n] = i]
    /\ IF Ranges \/ (returning /\ On("reclaiming"))
       THEN /\ life' = [life EXCEPT ![n][i] = "acquired"]
            /\ mark' = [mark EXCEPT ![n] = ~Ranges]
            /\ UNCHANGED <<cache, first>>
       ELSE /\ life' = [life EXCEPT ![n][i] = "working"]
            /\ mark' = [mark EXCEPT ![n] = FALSE]
            /\ cache' = [cache EXCEPT ![n][i] = Mine(n)]
            /\ first' = [first EXCEPT ![n][i] = Mine(n)]
    /\ UNCHANGED <<labels, deleted, work, machine, sharders, late, broken>>

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
    /\ ~Ranges
    /\ life[n][i] = "acquired"
    /\ life' = [life EXCEPT ![n][i] = "sealing"]
    /\ work' = [work EXCEPT ![n][i] = [o \in Objects |-> IF o \in Mine(n) THEN "unsealed" ELSE "idle"]]
    /\ cache' = [cache EXCEPT ![n][i] = Mine(n)]
    /\ first' = [first EXCEPT ![n][i] = Mine(n)]
    /\ UNCHANGED <<labels, leases, machine, sharders, late, broken>>

(* An object gets a new version.  One that changed since the list has one. *)
Seal(n, i, o) ==
    /\ life[n][i] = "sealing"
    /\ work[n][i][o] = "unsealed"
    /\ work' = [work EXCEPT ![n][i][o] = "idle"]
    /\ IF owner[o] = n THEN Changed(o) ELSE UNCHANGED <<decided, assignment>>
    /\ UNCHANGED <<owner, drain, child, leases, life, cache, first, machine, view, late, broken>>

Reclaimed(n, i) ==
    /\ life[n][i] = "sealing"
    /\ work[n][i] = Idle
    /\ life' = [life EXCEPT ![n][i] = "working"]
    /\ mark' = IF lease[n] = i THEN [mark EXCEPT ![n] = FALSE] ELSE mark
    /\ UNCHANGED <<labels, lease, deleted, work, cache, first, machine, sharders, late, broken>>

(* By ranges, one write is enough, and it also ends what was asked for.    *)
Reclaim(n, i) ==
    LET mine == {o \in Objects : owner[o] = n}
    IN /\ Ranges
       /\ life[n][i] = "acquired"
       /\ On("assignment doubted") => ~Contradicted(Shards \ {n})
       /\ life' = [life EXCEPT ![n][i] = "working"]
       /\ cache' = [cache EXCEPT ![n][i] = mine]
       /\ first' = [first EXCEPT ![n][i] = mine]
       /\ IF On("reclaiming of buckets") /\ mine # {}
          THEN /\ drain' = [o \in Objects |-> IF o \in mine THEN Nobody ELSE drain[o]]
               /\ Written(mine, Later)
          ELSE UNCHANGED <<drain, assignment, decided>>
       /\ seen' = [seen EXCEPT ![n][i] = epoch']
       /\ UNCHANGED <<owner, child, leases, work, leaving, known, view, late, broken>>

(* A renewal finds that the Lease was deleted. *)
Recreate(n, i) ==
    /\ life[n][i] \in Started
    /\ lease[n] = ABSENT
    /\ lease' = [lease EXCEPT ![n] = i]
    /\ mark' = [mark EXCEPT ![n] = ~Ranges /\ life[n][i] # "working"]
    /\ UNCHANGED <<labels, deleted, processes, sharders, late, broken>>

(* A process ends.  What it has sent may still take effect. *)
Ends(n, i) ==
    /\ life' = [life EXCEPT ![n][i] = "dead"]
    /\ work' = [work EXCEPT ![n][i] = [o \in Objects |-> IF @[o] \in Requests THEN @[o] ELSE "idle"]]
    /\ cache' = IF Epochs > 0 THEN cache ELSE [cache EXCEPT ![n][i] = {}]  \* The Lease still says it.
    /\ first' = [first EXCEPT ![n][i] = {}]
    /\ leaving' = [leaving EXCEPT ![n][i] = {}]
    /\ known' = [known EXCEPT ![n][i] = FALSE]
    /\ UNCHANGED <<labels, leases, seen, sharders, late, broken>>

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
    /\ UNCHANGED <<labels, leases, work, cache, first, machine, sharders, late, broken>>

(* A request of a dead process is lost. *)
Lost(n, i, o) ==
    /\ life[n][i] = "dead"
    /\ work[n][i][o] \in Requests
    /\ work' = [work EXCEPT ![n][i][o] = "idle"]
    /\ UNCHANGED <<labels, leases, life, cache, first, machine, sharders, late, broken>>

TimeIsUp(n, i) ==
    /\ life[n][i] = "dead"
    /\ work[n][i] = Idle
    /\ life' = [life EXCEPT ![n][i] = "gone"]
    /\ cache' = [cache EXCEPT ![n][i] = {}]
    /\ seen' = [seen EXCEPT ![n][i] = [o \in Objects |-> 0]]
    /\ UNCHANGED <<labels, leases, work, first, leaving, known, sharders, late, broken>>

Release(n, i) ==
    /\ life[n][i] = "working"
    /\ work[n][i] = Idle
    /\ lease[n] = i
    /\ lease' = [lease EXCEPT ![n] = FREE]
    /\ life' = [life EXCEPT ![n][i] = "gone"]
    /\ cache' = [cache EXCEPT ![n][i] = {}]
    /\ first' = [first EXCEPT ![n][i] = {}]
    /\ leaving' = [leaving EXCEPT ![n][i] = {}]
    /\ known' = [known EXCEPT ![n][i] = FALSE]
    /\ seen' = [seen EXCEPT ![n][i] = [o \in Objects |-> 0]]
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

(* From the cache; the first time, from the API server.  By ranges, the     *)
(* cache has been listed since the bucket came.                            *)
Begin(n, i, o) ==
    /\ life[n][i] = "working"
    /\ o \in cache[n][i]
    /\ work[n][i][o] = "idle"
    /\ o \in first[n][i] /\ On("first run") => ~Ranges /\ o \in Mine(n)
    /\ On("no run while an acknowledgement is under way") => o \notin leaving[n][i]
    /\ work' = [work EXCEPT ![n][i][o] = "busy"]
    /\ UNCHANGED <<labels, leases, life, cache, first, machine, sharders, late, broken>>

(* By ranges: the list of a bucket that came.  What a process has written  *)
(* itself is in its cache, too.                                            *)
Listed(n, i, o) ==
    /\ Ranges
    /\ life[n][i] = "working"
    /\ o \in first[n][i] \ leaving[n][i]
    /\ first' = [first EXCEPT ![n][i] = @ \ {o}]
    /\ known' = IF o = Parent THEN [known EXCEPT ![n][i] = child # NoChild] ELSE known
    /\ UNCHANGED <<labels, leases, life, work, cache, leaving, seen, sharders, late, broken>>

(* Whether a reconcile sees the child: the first one reads from the API    *)
(* server, later ones from a cache of what carries the shard's own label.  *)
SeesChild(n, i) ==
    IF Ranges THEN known[n][i]
    ELSE \/ child = n
         \/ child # NoChild /\ Parent \in first[n][i] /\ On("first run")

Send(n, i, o) ==
    /\ life[n][i] \in {"working", "zombie"}
    /\ work[n][i][o] = "busy"
    /\ \/ /\ "late" \in Faults \/ "watchdog" \in Off  \* Otherwise ExecutionExclusion says all there is to say.
          /\ work' = [work EXCEPT ![n][i][o] = "main"]
       \/ /\ o = Parent
          /\ work' = [work EXCEPT ![n][i][o] = IF SeesChild(n, i) THEN "update" ELSE "create"]
    /\ UNCHANGED <<labels, leases, life, cache, first, machine, sharders, late, broken>>

(* What a request does at the API server.  By labels, this compares the     *)
(* owner.  A late one to a child is not judged: the label that is compared *)
(* is the child's, not its owner's.  By ranges, it compares the version,   *)
(* of which one thing matters: whether the object was written since, so    *)
(* that the request is `overtaken`.                                        *)
Effect(n, o, request, judged, overtaken) ==
    LET ours == owner[o] = n \/ backup.used
        notice(oracle, when) == broken' = IF when THEN broken \cup {oracle} ELSE broken
        nothing == UNCHANGED <<decided, assignment, broken, child>>
    IN CASE Ranges /\ request # "create" ->
              IF ~overtaken \/ ~On("fence by versions")
              THEN notice("stale write", overtaken /\ ~ours) /\ UNCHANGED <<decided, assignment, child>>
              ELSE nothing
         [] ~Ranges /\ request = "main" ->
              IF ours \/ ~On("fence")
              THEN Changed(o) /\ notice("stale write", ~ours) /\ UNCHANGED child
              ELSE nothing
         [] ~Ranges /\ request = "update" ->
              IF child = n \/ (~On("fence") /\ child # NoChild)
              THEN notice("stale write", judged /\ ~ours) /\ UNCHANGED <<decided, assignment, child>>
              ELSE nothing
         [] request = "create" ->
              IF child = NoChild
              THEN /\ child' = IF Ranges THEN Nobody ELSE n
                   /\ notice("stale write", judged /\ ~ours)
                   /\ UNCHANGED <<decided, assignment>>
              ELSE notice("missed child", judged /\ ours /\ child # n) /\ UNCHANGED <<decided, assignment, child>>

Land(n, i, o) ==
    LET request == work[n][i][o]
    IN /\ request \in Requests
       /\ Effect(n, o, request, TRUE, FALSE)
       /\ work' = [work EXCEPT ![n][i][o] =
                      IF life[n][i] = "dead" \/ (Ranges /\ o \notin cache[n][i]) THEN "idle" ELSE "busy"]
       /\ known' = IF Ranges /\ request = "create" /\ life[n][i] # "dead" THEN [known EXCEPT ![n][i] = TRUE] ELSE known
       /\ late' = IF Ranges
                  THEN {[each EXCEPT !.overtaken = @ \/ (each.object = o /\ each.request = request)] : each \in late}
                  ELSE late
       /\ UNCHANGED <<owner, drain, leases, life, cache, first, leaving, seen, view>>

(* Something between the process and the server holds a request back; the  *)
(* process stops waiting for it.  Not a create, which nothing can refuse.  *)
HoldBack(n, i, o) ==
    /\ "late" \in Faults
    /\ late = {}
    /\ work[n][i][o] \in Requests \ {"create"}
    /\ late' = {[shard |-> n, object |-> o, request |-> work[n][i][o], overtaken |-> FALSE]}
    /\ work' = [work EXCEPT ![n][i][o] = IF life[n][i] = "dead" THEN "idle" ELSE "busy"]
    /\ UNCHANGED <<labels, leases, life, cache, first, machine, sharders, broken>>

LandLate ==
    \E each \in late :
        /\ Effect(each.shard, each.object, each.request, FALSE, each.overtaken)
        /\ late' = late \ {each}
        /\ UNCHANGED <<owner, drain, leases, processes, view>>

(* As long as the child that it saw carries another shard's label, the next *)
(* reconcile reads from the API server again.                               *)
Finish(n, i, o) ==
    /\ life[n][i] \in {"working", "zombie"}
    /\ work[n][i][o] = "busy"
    /\ work' = [work EXCEPT ![n][i][o] = "idle"]
    /\ first' = IF Ranges \/ (o = Parent /\ child \notin {n, NoChild}) THEN first ELSE [first EXCEPT ![n][i] = @ \ {o}]
    /\ UNCHANGED <<labels, leases, life, cache, machine, sharders, late, broken>>

(* The drain is acknowledged: both labels are removed.  Where the webhook  *)
(* is called, `Assign` follows in the same request.                        *)
Acknowledge(n, i, o) ==
    /\ ~Ranges
    /\ life[n][i] = "working"
    /\ owner[o] = n
    /\ drain[o] # Nobody
    /\ On("idle before acknowledgement") => work[n][i][o] = "idle"
    /\ Changed(o)
    /\ owner' = [owner EXCEPT ![o] = Nobody]
    /\ drain' = [drain EXCEPT ![o] = Nobody]
    /\ cache' = IF On("stale guard") THEN [cache EXCEPT ![n][i] = @ \ {o}] ELSE cache
    /\ first' = IF On("stale guard") THEN [first EXCEPT ![n][i] = @ \ {o}] ELSE first
    /\ UNCHANGED <<child, leases, life, work, machine, view, late, broken>>

-----------------------------------------------------------------------------
(* The assignment of buckets, as shards see and change it:                 *)
(* kubeshard.shard.range_ownership, range_driver.                          *)

(* The patch that hands over a bucket is sent.  Its answer may be lost, and *)
(* it may take effect after any time, also after the end of its sender.    *)
SendAcknowledgement(n, i, o) ==
    /\ Ranges
    /\ life[n][i] = "working"
    /\ o \in cache[n][i]
    /\ owner[o] = n
    /\ drain[o] # Nobody
    /\ ~Older(n, i, o)
    /\ On("buckets idle before acknowledgement") => work[n][i][o] = "idle"
    /\ leaving' = [leaving EXCEPT ![n][i] = @ \cup {o}]
    /\ sent' = sent \cup {<<o, Place(o)>>}
    /\ seen' = [seen EXCEPT ![n][i] = Saw(epoch[o], n, i, o)]
    /\ <<leaving', sent'>> # <<leaving, sent>>
    /\ UNCHANGED <<labels, leases, life, work, cache, first, known, view, job, late, broken>>

(* It takes effect: the target has the bucket at once.                     *)
HandOver ==
    \E each \in sent :
        /\ Tested(each[1], each[2])
        /\ Given(each[1], each[2][2])
        /\ Changed(each[1])
        /\ UNCHANGED <<child, leases, life, work, view, late, broken>>

(* A process sees where a bucket is.  What is given to it, it may see from *)
(* the beginning (Given), except after a restore.                          *)
See(n, i, o) ==
    LET held == o \in cache[n][i]
        newer == Newer(epoch[o], n, i, o)
        with(sets) == [sets EXCEPT ![n][i] = @ \cup {o}]
        without(sets) == [sets EXCEPT ![n][i] = @ \ {o}]
    IN /\ Ranges
       /\ life[n][i] = "working"
       /\ \/ /\ held /\ owner[o] # n /\ newer
             /\ cache' = without(cache) /\ first' = without(first) /\ leaving' = without(leaving)
             /\ work' = [work EXCEPT ![n][i][o] = IF @ = "busy" THEN "idle" ELSE @]
          \/ /\ ~held /\ owner[o] = n /\ newer /\ Epochs > 0
             /\ cache' = with(cache) /\ first' = with(first)
             /\ UNCHANGED <<leaving, work>>
          \/ /\ held /\ owner[o] = n /\ drain[o] = Nobody /\ o \in leaving[n][i] /\ ~Older(n, i, o)
             /\ first' = with(first) /\ leaving' = without(leaving)
             /\ UNCHANGED <<cache, work>>
          \/ /\ ~held /\ owner[o] # n /\ Epochs > 0 /\ epoch[o] > seen[n][i][o]
             /\ UNCHANGED <<cache, first, leaving, work>>
       /\ seen' = [seen EXCEPT ![n][i] = Saw(epoch[o], n, i, o)]
       /\ UNCHANGED <<labels, leases, life, known, sharders, late, broken>>

(* A backup of the assignment is made, and restored, while no patch is     *)
(* under way that was made before: see the limits.                         *)
Backup ==
    /\ Epochs > 0
    /\ ~backup.made
    /\ backup' = [made |-> TRUE, used |-> FALSE, owner |-> owner, drain |-> drain, epoch |-> epoch]
    /\ UNCHANGED <<owner, drain, child, epoch, leases, processes, sharders, late, broken>>

Restore ==
    /\ backup.made
    /\ ~backup.used
    /\ <<owner, drain, epoch>> # <<backup.owner, backup.drain, backup.epoch>>
    /\ owner' = backup.owner
    /\ drain' = backup.drain
    /\ epoch' = backup.epoch
    /\ backup' = [backup EXCEPT !.used = TRUE]
    /\ IF "late patch" \in Faults
       THEN UNCHANGED decided
       ELSE job' = [x \in Sharders |-> NoJob] /\ sent' = {}
    /\ UNCHANGED <<child, leases, processes, view, late, broken>>

(* The assignment is written anew: each bucket stays with the shard that   *)
(* says that it has it, since the greatest epoch.                          *)
WriteAnew ==
    /\ Contradicted(Shards)
    /\ \E owners \in [Objects -> Shards \cup {Nobody}] :
         /\ \A o \in Objects :
              IF \E n \in Shards, i \in Numbers : Reports(n, i) /\ o \in cache[n][i]
              THEN /\ owners[o] # Nobody
                   /\ \E i \in Numbers :
                        /\ Reports(owners[o], i) /\ o \in cache[owners[o]][i]
                        /\ \A n \in Shards, j \in Numbers :
                             Reports(n, j) /\ o \in cache[n][j] => seen[n][j][o] <= seen[owners[o]][i][o]
              ELSE owners[o] = owner[o]
         /\ LET number == 1 + Greatest({epoch[o] : o \in Objects}
                                       \cup {seen[n][i][o] : n \in Shards, i \in Numbers, o \in Objects})
            IN AllGiven(Objects, owners, number) /\ Written(Objects, number)
    /\ UNCHANGED <<child, leases, life, work, view, late, broken>>

-----------------------------------------------------------------------------
(* The sharders: kubeshard.sharding.shard_states, sharder.lease_controller,      *)
(* lease_observer, moves.  Their views may be as old as they like.         *)

Observe(x, n) ==
    /\ view' = [view EXCEPT ![x][n] = \/ Held(n)
                                      \/ lease[n] = ABSENT /\ view[x][n] /\ On("tombstone")]
    /\ view' # view
    /\ UNCHANGED <<labels, leases, processes, decided, late, broken>>

(* The Lease was not renewed for twice its duration.  A read shows the     *)
(* same, and the write requires the version that was read.                 *)
Seize(x, n) ==
    /\ view[x][n]
    /\ Held(n)
    /\ life[n][lease[n]] \in {"gone", "zombie"}
    /\ lease' = [lease EXCEPT ![n] = TAKEN]
    /\ mark' = [mark EXCEPT ![n] = FALSE]
    /\ view' = [view EXCEPT ![x][n] = FALSE]
    /\ UNCHANGED <<labels, deleted, processes, decided, late, broken>>

(* Nobody can act under the name any more. *)
Over(n) == \A i \in Numbers : life[n][i] \in {"off", "gone", "zombie"}

SettleTombstone(x, n) ==
    /\ view[x][n]
    /\ lease[n] = ABSENT
    /\ Over(n)
    /\ lease' = [lease EXCEPT ![n] = TAKEN]
    /\ view' = [view EXCEPT ![x][n] = FALSE]
    /\ UNCHANGED <<labels, mark, deleted, processes, decided, late, broken>>

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
    /\ UNCHANGED <<labels, leases, processes, sent, late, broken>>

Assign(x, o, n) ==
    /\ owner[o] = Nobody
    /\ view[x][n]
    /\ ~Contradicted(Shards)
    /\ Given(o, n)
    /\ Changed(o)
    /\ UNCHANGED <<child, leases, life, work, view, late, broken>>

(* By a sharder, for whatever reason, or by a user.  The target may change, *)
(* or there is none any more.                                              *)
Drain(o) ==
    /\ owner[o] # Nobody
    /\ ~Contradicted(Shards)
    /\ \E target \in IF Ranges THEN (Shards \cup {Nobody}) \ {owner[o]} ELSE {Anyone} :
         /\ target # drain[o]
         /\ drain' = [drain EXCEPT ![o] = target]
    /\ Changed(o)
    /\ UNCHANGED <<owner, child, leases, processes, view, late, broken>>

(* By ranges, a shard that begins says that it works on nothing.           *)
WorksOnNothing(n) == Ranges /\ Held(n) /\ life[n][lease[n]] = "acquired"

(* A forced move begins with a read of the object, *)
Read(x, o) ==
    /\ job[x] = NoJob
    /\ owner[o] # Nobody
    /\ ~view[x][owner[o]] \/ WorksOnNothing(owner[o])
    /\ ~Contradicted(Shards)
    /\ job' = [job EXCEPT ![x] = [object |-> o, place |-> Place(o), proven |-> FALSE]]
    /\ UNCHANGED <<labels, leases, processes, view, sent, late, broken>>

(* then comes the proof, unless there is a tombstone, *)
Prove(x) ==
    /\ job[x] # NoJob
    /\ ~job[x].proven
    /\ LET n == job[x].place[1]
           asked == IF Ranges THEN On("proof of a bucket's death") ELSE On("proof of death")
       IN asked => \/ WorksOnNothing(n)
                   \/ /\ ~Held(n)
                      /\ lease[n] = ABSENT /\ On("tombstone") => ~view[x][n] /\ Over(n)
    /\ job' = [job EXCEPT ![x].proven = TRUE]
    /\ UNCHANGED <<labels, leases, processes, view, sent, late, broken>>

(* then the patch, after any time.  It requires the version that was read: *)
(* see Written.                                                            *)
Move(x, n) ==
    /\ job[x].proven
    /\ view[x][n]
    /\ n # job[x].place[1]
    /\ Tested(job[x].object, job[x].place)
    /\ Given(job[x].object, n)
    /\ Changed(job[x].object)
    /\ UNCHANGED <<child, leases, life, work, view, late, broken>>

Abandon(x) ==
    /\ job[x] # NoJob
    /\ job' = [job EXCEPT ![x] = NoJob]
    /\ UNCHANGED <<labels, leases, processes, view, sent, late, broken>>

(* A child moves without a drain: once its owner has, or, if its shard is  *)
(* dead, before.                                                           *)
MoveChild(x) ==
    /\ ~Ranges
    /\ child # NoChild
    /\ \/ /\ owner[Parent] \notin {Nobody, child}
          /\ drain[Parent] = Nobody
          /\ child' = owner[Parent]
       \/ /\ job[x].object = Parent /\ job[x].proven
          /\ child = owner[Parent]
          /\ \E n \in Shards : view[x][n] /\ n # child /\ child' = n
       \/ /\ ~On("children wait")
          /\ \E n \in Shards : view[x][n] /\ n # child /\ child' = n
    /\ UNCHANGED <<owner, drain, assignment, leases, processes, sharders, late, broken>>

-----------------------------------------------------------------------------

Next ==
    \/ \E n \in Shards, i \in Numbers :
         \/ Acquire(n, i) \/ List(n, i) \/ Reclaimed(n, i) \/ Reclaim(n, i) \/ Recreate(n, i) \/ Lose(n, i) \/ Kill(n, i)
         \/ Pause(n, i) \/ TimeIsUp(n, i) \/ Release(n, i)
         \/ \E o \in Objects :
              \/ Seal(n, i, o) \/ Begin(n, i, o) \/ Send(n, i, o) \/ Land(n, i, o) \/ Lost(n, i, o)
              \/ HoldBack(n, i, o) \/ Finish(n, i, o) \/ Acknowledge(n, i, o)
              \/ Listed(n, i, o) \/ SendAcknowledgement(n, i, o) \/ See(n, i, o)
    \/ LandLate
    \/ HandOver \/ Backup \/ Restore \/ WriteAnew
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
(* no child is created whose owner has one.  By ranges, every write that   *)
(* overwrites another is by the shard that has the bucket; and nothing is  *)
(* missed that was created before the bucket came.                         *)
WriteExclusion == broken = {}

(* Nobody works on an object, nor has a request for it under way, but one   *)
(* process of the shard that its label names.  After a restore, the        *)
(* assignment does not say whose a bucket is, but it is one process's.     *)
AtWork(n, i, o) == work[n][i][o] \in Requests \cup {"busy"}
ExecutionExclusion ==
    \A o \in Objects : \A n \in Shards, i \in Numbers :
        AtWork(n, i, o) => /\ owner[o] = n \/ backup.used
                           /\ \A m \in Shards, j \in Numbers : AtWork(m, j, o) => <<m, j>> = <<n, i>>

(* At most one process acts under a name. *)
Identity == \A n \in Shards : Cardinality({i \in Numbers : life[n][i] \in Alive}) <= 1
=============================================================================
