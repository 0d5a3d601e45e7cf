package main

import (
	"context"
	"fmt"
	"log"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const retry = time.Second

// shard is one process of a ring that is sharded by ranges. It works on all of its buckets together: whenever some come
// or have to go, it ends everything, hands over, and begins anew with a list.
type shard struct {
	ring, name, namespace string
	client                kubernetes.Interface

	lease   *lease
	owned   report         // the buckets that are ours, with the epoch that was seen last
	epochs  [buckets]int64 // the greatest epoch that was seen with each
	leaving Share          // handed over, as far as we know: nobody works on them until the assignment shows it

	byLabels map[string]time.Time // who takes objects by labels, and until when that counts if the Lease is deleted
}

// run calls work with what the shard owns until the context is done. work has to return when its context is done.
func (s *shard) run(ctx context.Context, work func(context.Context, *Share)) error {
	s.lease = newLease(s.client.CoordinationV1().Leases(s.namespace), s.ring, s.name)
	s.owned, s.byLabels = report{epochs: map[int]int64{}}, map[string]time.Time{}
	if err := s.lease.acquire(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // stopped before it had anything
		}
		return err
	}
	renewing, stop := context.WithCancel(context.Background())
	renewed := make(chan struct{})
	go func() { defer close(renewed); s.lease.renew(renewing) }()

	s.reclaim(ctx)
	changes := s.follow(ctx)
	var found *assignment
	var again <-chan time.Time // when to try anew what has failed
	var present *Share
	end := func() {}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case found = <-changes:
		case <-again:
		}
		again = nil
		confirmed := !s.gains(found)
		if !confirmed { // by a watch that may be late
			now, _, err := s.look(ctx)
			if confirmed = err == nil && now != nil; confirmed {
				found = now
			} else {
				log.Printf("waiting: cannot take over anything: %v", err)
				again = time.After(retry)
			}
		}
		asked := s.see(found, confirmed)
		share := s.share(asked)
		if present != nil && *present == *share && asked == nil {
			continue
		}
		if asked != nil {
			log.Print("asked to hand over")
		}
		end() // returns when nothing runs any more
		end, present = func() {}, nil
		if asked != nil {
			if err := s.handOver(ctx, asked); err != nil {
				log.Printf("handing over: %v", err)
				again = time.After(retry)
			}
			continue // what became of it is the next change
		}
		if share.Selector() != "" {
			end, present = start(ctx, share, work), share
		}
	}
	end()
	stop()
	<-renewed
	ending, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.lease.release(ending)
}

// start returns what ends the work, and waits for it.
func start(ctx context.Context, share *Share, work func(context.Context, *Share)) func() {
	working, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); work(working, share) }()
	return func() { cancel(); <-done }
}

// share is what may be worked on now.
func (s *shard) share(asked *assignment) *Share {
	var share Share
	for bucket := range s.owned.epochs {
		share[bucket] = !s.leaving[bucket] && (asked == nil || asked.places[bucket].target == "")
	}
	return &share
}

// gains says whether the assignment gives us something.
func (s *shard) gains(found *assignment) bool {
	if found == nil {
		return false
	}
	for bucket, now := range found.places {
		if s.gained(bucket, now) {
			return true
		}
	}
	return false
}

// gained also if we have handed it over, and it stays ours.
func (s *shard) gained(bucket int, now place) bool {
	epoch, mine := s.owned.epochs[bucket]
	if mine {
		return now.owner == s.name && now.epoch > epoch && s.leaving[bucket] && now.target == ""
	}
	return now.owner == s.name && now.epoch > s.epochs[bucket]
}

// see takes note of what the assignment says; nil: that it is deleted or cannot be read. What it gives us counts once it
// is confirmed. It returns the assignment if it asks for something of ours.
func (s *shard) see(found *assignment, confirmed bool) (asked *assignment) {
	if found == nil {
		return nil // what we have stays ours
	}
	for bucket, now := range found.places {
		epoch, mine := s.owned.epochs[bucket]
		gained := s.gained(bucket, now)
		switch {
		case gained && !confirmed:
			continue // it will be looked at again
		case mine && (now.epoch < epoch || (now.epoch == epoch && now.owner != s.name)):
			continue // an edit, or an old version: the report says better
		case mine && now.owner != s.name:
			delete(s.owned.epochs, bucket)
			s.leaving[bucket] = false
		case mine || gained:
			s.owned.epochs[bucket] = now.epoch
			if now.target != "" {
				asked = found
			} else if gained {
				s.leaving[bucket] = false
			}
		}
		s.epochs[bucket] = max(s.epochs[bucket], now.epoch)
	}
	s.owned.seen = max(s.owned.seen, found.epoch)
	s.lease.says(s.owned)
	return asked
}

// handOver gives what was asked for to those who get it. Nothing works on it now. After an error it may have happened all
// the same.
func (s *shard) handOver(ctx context.Context, asked *assignment) error {
	for bucket, now := range asked.places {
		if now.owner == s.name && now.target != "" {
			s.leaving[bucket] = true
		}
	}
	log.Print("handing over")
	return s.write(ctx, asked.change(func(now place) (place, bool) {
		return place{owner: now.target}, now.owner == s.name && now.target != ""
	}))
}

// reclaim returns when nothing can take effect any more that was decided about a former process of this name.
func (s *shard) reclaim(ctx context.Context) {
	first := firstReads{}
	for ctx.Err() == nil {
		found, others, err := s.look(ctx)
		late := first.unrenewed(others)
		switch {
		case err != nil:
		case found == nil || !found.names(s.name):
			return
		case len(late) > 0: // just after a restore of etcd, they and the assignment are as old, and contradict nothing
			err = fmt.Errorf("not renewed since this shard began, and not expired: the Leases of %v", late)
		default:
			err = s.write(ctx, found.change(func(now place) (place, bool) {
				return place{owner: s.name}, now.owner == s.name
			}))
			if err == nil {
				return
			}
		}
		log.Printf("waiting: %v", err)
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
}

// look is what the assignment says, if that can be believed, and the Leases that others hold. Without an error, nil says
// that there is none yet. An answer that takes longer gives nothing: others may have concluded from two renewals that this
// shard has nothing else, and have given it away.
func (s *shard) look(ctx context.Context) (*assignment, []coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, retry)
	defer cancel()
	leases, err := s.client.CoordinationV1().Leases(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: ringLabel + "=" + s.ring})
	if err != nil {
		return nil, nil, err
	}
	var others []coordinationv1.Lease
	seen := false // by those that begin now
	for _, each := range leases.Items {
		delete(s.byLabels, each.Name)
		if holder(&each) != each.Name {
			continue
		}
		reports := each.Annotations[ownedRanges] != ""
		switch {
		case each.Name == s.name:
			seen = reports
			continue
		case !reports:
			s.byLabels[each.Name] = time.Now().Add(lasts(&each))
		}
		others = append(others, each)
	}
	object, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, s.object(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, others, nil
	}
	if err != nil {
		return nil, others, err
	}
	found, err := parse(object.Data)
	if err != nil {
		return nil, others, err
	}
	if found.names(s.name) && !seen {
		return nil, others, fmt.Errorf("the Lease of %s is gone, or not as this shard has written it", s.name)
	}
	byRanges := false
	for _, other := range others {
		says := parseReport(other.Annotations[ownedRanges])
		if why := says.contradicts(found, other.Name); why != "" {
			return nil, others, fmt.Errorf("the assignment cannot be believed: %s", why)
		}
		byRanges = byRanges || (len(says.epochs) > 0 && found.names(other.Name))
	}
	for name, until := range s.byLabels {
		if !byRanges && time.Now().Before(until) {
			return nil, others, fmt.Errorf("%s takes objects by labels, and has not ended", name)
		}
	}
	return found, others, nil
}

func (s *shard) write(ctx context.Context, patch []byte) error {
	_, err := s.client.CoreV1().ConfigMaps(s.namespace).Patch(ctx, s.object(), types.JSONPatchType, patch, metav1.PatchOptions{})
	return err
}

// follow returns what the assignment says, after each change the newest; nil: it is deleted or cannot be read.
func (s *shard) follow(ctx context.Context) <-chan *assignment {
	changes := make(chan *assignment, 1)
	tell := func(found *assignment) {
		for {
			select {
			case changes <- found:
				return
			case <-changes: // an older one, which nobody has looked at
			}
		}
	}
	see := func(object any) {
		found, err := parse(object.(*corev1.ConfigMap).Data)
		if err != nil {
			log.Printf("the assignment cannot be read: %v", err)
		}
		tell(found)
	}
	only := fields.OneTermEqualSelector("metadata.name", s.object())
	source := cache.NewListWatchFromClient(s.client.CoreV1().RESTClient(), "configmaps", s.namespace, only)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    &corev1.ConfigMap{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    see,
			UpdateFunc: func(_, object any) { see(object) },
			DeleteFunc: func(any) { tell(nil) },
		},
	})
	go informer.RunWithContext(ctx)
	return changes
}

func (s *shard) object() string { return "ranges-" + s.ring }
