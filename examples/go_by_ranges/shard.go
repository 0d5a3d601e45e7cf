package main

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// shard is one process of a ring that is sharded by ranges. It works on all of its buckets together: whenever some come
// or have to go, it ends everything, hands over, and begins anew with a list.
type shard struct {
	ring, name, namespace string
	client                kubernetes.Interface

	lease   *lease
	owned   report         // the buckets that are ours, with the epoch that was seen last
	epochs  [buckets]int64 // the greatest epoch that was seen with each
	leaving Share          // handed over, as far as we know: nobody works on them until the assignment shows it
}

// run calls work with what the shard owns until the context is done. work has to return when its context is done.
func (s *shard) run(ctx context.Context, work func(context.Context, *Share)) error {
	s.lease = newLease(s.client.CoordinationV1().Leases(s.namespace), s.ring, s.name)
	s.owned = report{epochs: map[int]int64{}}
	if err := s.lease.acquire(ctx); err != nil {
		return err
	}
	renewing, stop := context.WithCancel(context.Background())
	renewed := make(chan struct{})
	go func() { defer close(renewed); s.lease.renew(renewing) }()

	s.reclaim(ctx)
	changes := s.follow(ctx)
	var present *Share
	end := func() {}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case found := <-changes:
			asked := s.see(found)
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
				s.handOver(ctx, asked)
				continue // what became of it is the next change
			}
			if share.Selector() != "" {
				end, present = start(ctx, share, work), share
			}
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

// see takes note of what the assignment says; nil: that it is deleted or cannot be read. It returns the assignment if it
// asks for something of ours.
func (s *shard) see(found *assignment) (asked *assignment) {
	if found == nil {
		return nil // what we have stays ours
	}
	for bucket, now := range found.places {
		epoch, mine := s.owned.epochs[bucket]
		switch {
		case mine && (now.epoch < epoch || (now.epoch == epoch && now.owner != s.name)):
			continue // an edit, or an old version: the report says better
		case mine && now.owner != s.name:
			delete(s.owned.epochs, bucket)
			s.leaving[bucket] = false
		case mine || (now.owner == s.name && now.epoch > s.epochs[bucket]):
			s.owned.epochs[bucket] = now.epoch
			if now.target != "" {
				asked = found
			} else if now.epoch > epoch {
				s.leaving[bucket] = false
			}
		}
		s.epochs[bucket] = max(s.epochs[bucket], now.epoch)
	}
	s.owned.seen = max(s.owned.seen, found.epoch)
	s.lease.says(s.owned)
	return asked
}

// handOver gives what was asked for to those who get it. Nothing works on it now.
func (s *shard) handOver(ctx context.Context, asked *assignment) {
	for bucket, now := range asked.places {
		if now.owner == s.name && now.target != "" {
			s.leaving[bucket] = true
		}
	}
	patch := asked.change(func(now place) (place, bool) {
		return place{owner: now.target}, now.owner == s.name && now.target != ""
	})
	log.Print("handing over")
	_, err := s.client.CoreV1().ConfigMaps(s.namespace).Patch(ctx, s.object(), types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		log.Printf("handing over: %v", err)
	}
}

// reclaim returns when nothing can take effect any more that was decided about a former process of this name.
func (s *shard) reclaim(ctx context.Context) {
	maps := s.client.CoreV1().ConfigMaps(s.namespace)
	for ctx.Err() == nil {
		err := func() error {
			leases, err := s.client.CoordinationV1().Leases(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: ringLabel + "=" + s.ring})
			if err != nil {
				return err
			}
			found, err := maps.Get(ctx, s.object(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil // there is none yet
			}
			if err != nil {
				return err
			}
			says, err := parse(found.Data)
			if err != nil {
				return err
			}
			byLabels, byRanges := "", false
			for _, other := range leases.Items {
				if holder := other.Spec.HolderIdentity; holder == nil || *holder != other.Name || other.Name == s.name {
					continue
				}
				text, reports := other.Annotations[ownedRanges]
				if !reports {
					byLabels = other.Name
				}
				if why := parseReport(text).contradicts(says, other.Name); why != "" {
					return fmt.Errorf("the assignment cannot be believed: %s", why)
				}
				byRanges = byRanges || (reports && says.names(other.Name))
			}
			if byLabels != "" && !byRanges {
				return fmt.Errorf("%s takes objects by labels, and has not ended", byLabels)
			}
			patch := says.change(func(now place) (place, bool) { return place{owner: s.name}, now.owner == s.name })
			if patch == nil {
				return nil
			}
			_, err = maps.Patch(ctx, s.object(), types.JSONPatchType, patch, metav1.PatchOptions{})
			return err
		}()
		if err == nil {
			return
		}
		log.Printf("waiting: %v", err)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
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
