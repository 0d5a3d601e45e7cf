package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

const (
	ringLabel   = "alpha.sharding.timebertt.dev/controllerring"
	ownedRanges = "alpha.sharding.timebertt.dev/owned-ranges"
	leaving     = "alpha.sharding.timebertt.dev/leaving"
	taker       = "shardlease-controller" // who takes Leases that are not renewed

	duration    = 15 * time.Second
	renewEvery  = 2 * time.Second
	attemptTime = 2500 * time.Millisecond
	deadline    = 9 * time.Second // after the start of the last renewal that succeeded
)

// lease is the right to work. A process that cannot renew it ends: others get its objects after 30 s. No kernel timer
// ends a process that is stopped for longer and resumed; what it writes then is refused unless nobody has written since
// it read (every write has a resourceVersion).
type lease struct {
	ring, name string
	api        coordination.LeaseInterface

	mutex   sync.Mutex
	held    *coordinationv1.Lease
	report  string
	renewed time.Time
	soon    chan struct{}
}

func newLease(api coordination.LeaseInterface, ring, name string) *lease {
	// What it says from its first write on marks it as a shard by ranges.
	return &lease{ring: ring, name: name, api: api, report: fmt.Sprintf("uid/%d:", buckets), soon: make(chan struct{}, 1)}
}

// acquire returns when the Lease is ours.
func (l *lease) acquire(ctx context.Context) error {
	var version string
	var since time.Time // when the Lease was found to have changed, or to be gone
	for {
		found, err := l.api.Get(ctx, l.name, metav1.GetOptions{})
		if err == nil || apierrors.IsNotFound(err) { // in which case `found` is empty
			if found.ResourceVersion != version {
				version, since = found.ResourceVersion, time.Now()
			}
			by := holder(found)
			if by != "" && by != l.name && by != taker {
				return fmt.Errorf("the Lease %s is held by %s", l.name, by)
			}
			released := by == "" && found.Name != ""
			if released || by == l.name || time.Since(since) > lasts(found) {
				started := time.Now()
				if held, err := l.write(ctx, found); err == nil {
					l.held, l.renewed = held, started
					return nil
				}
			}
		}
		log.Print("waiting for the Lease")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retry):
		}
	}
}

// renew goes on until the context is done. It ends the process when the Lease is lost.
func (l *lease) renew(ctx context.Context) {
	time.AfterFunc(deadline, func() { l.watch(ctx) })
	pause := renewEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.soon:
		case <-time.After(pause):
		}
		started := time.Now()
		attempt, cancel := context.WithTimeout(context.Background(), attemptTime)
		held, err := l.write(attempt, l.held)
		if err == nil {
			pause = renewEvery
			l.mutex.Lock()
			l.held, l.renewed = held, started
			l.mutex.Unlock()
		} else {
			pause = retry
			found, err := l.api.Get(attempt, l.name, metav1.GetOptions{})
			if err == nil && holder(found) != l.name {
				lost("somebody else has taken it")
			}
			if err == nil || apierrors.IsNotFound(err) { // somebody has deleted it, and `found` is empty
				l.held = found
			}
		}
		cancel()
	}
}

func (l *lease) watch(ctx context.Context) {
	if ctx.Err() != nil {
		return
	}
	l.mutex.Lock()
	left := deadline - time.Since(l.renewed)
	l.mutex.Unlock()
	if left <= 0 {
		lost("it was not renewed in time")
	}
	time.AfterFunc(left, func() { l.watch(ctx) })
}

func lost(why string) {
	log.Printf("lost the Lease: %s", why)
	os.Exit(1)
}

// says writes what the shard works on, at once.
func (l *lease) says(what report) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if text := what.String(); text != l.report {
		l.report = text
		select {
		case l.soon <- struct{}{}:
		default:
		}
	}
}

// release is for a process in which nothing runs any more.
func (l *lease) release(ctx context.Context) error {
	for {
		free := l.ours(l.held)
		nobody, second := "", int32(1)
		free.Spec.HolderIdentity, free.Spec.LeaseDurationSeconds = &nobody, &second
		_, err := l.api.Update(ctx, free, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
		if l.held, err = l.api.Get(ctx, l.name, metav1.GetOptions{}); err != nil {
			return err
		}
	}
}

// write creates the Lease if it was not found.
func (l *lease) write(ctx context.Context, found *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	next := l.ours(found)
	if next.ResourceVersion == "" {
		return l.api.Create(ctx, next, metav1.CreateOptions{})
	}
	return l.api.Update(ctx, next, metav1.UpdateOptions{})
}

// ours is the Lease as this process writes it. It keeps what others have written.
func (l *lease) ours(found *coordinationv1.Lease) *coordinationv1.Lease {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	now, seconds := metav1.NowMicro(), int32(duration/time.Second)
	next := found.DeepCopy()
	next.Name = l.name
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Labels[ringLabel], next.Annotations[ownedRanges] = l.ring, l.report
	delete(next.Annotations, leaving) // the former process was
	next.Spec.HolderIdentity, next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &l.name, &seconds, &now
	if holder(found) != l.name {
		transitions := int32(0)
		if found.Spec.LeaseTransitions != nil {
			transitions = *found.Spec.LeaseTransitions + 1
		}
		next.Spec.AcquireTime, next.Spec.LeaseTransitions = &now, &transitions
	}
	return next
}

func holder(lease *coordinationv1.Lease) string {
	if by := lease.Spec.HolderIdentity; by != nil {
		return *by
	}
	return ""
}

// lasts is how long a Lease counts as held after a renewal.
func lasts(lease *coordinationv1.Lease) time.Duration {
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return duration
}

// firstReads is what others' Leases said when this process read each of them first.
type firstReads map[string]firstRead

type firstRead struct {
	renewed *metav1.MicroTime
	expires time.Time
}

// unrenewed are those of which nobody knows whether what they say is of today, or from before a restore of etcd: not
// renewed since the first read, and not expired since.
func (f firstReads) unrenewed(leases []coordinationv1.Lease) []string {
	var names []string
	for _, lease := range leases {
		first, known := f[lease.Name]
		if !known {
			first = firstRead{lease.Spec.RenewTime, time.Now().Add(lasts(&lease))}
			f[lease.Name] = first
		}
		if !first.renewed.Before(lease.Spec.RenewTime) && time.Now().Before(first.expires) {
			names = append(names, lease.Name)
		}
	}
	return names
}
