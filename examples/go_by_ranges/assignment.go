package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// buckets is how many there are in the ring. All of its programs say the same, and hash uids.
const buckets = 1024

// bucketOf is the top bits of the hash that API servers select by.
func bucketOf(uid types.UID) int {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(uid))
	return int(hash.Sum64() >> 54)
}

// Share is a set of buckets.
type Share [buckets]bool

// Owns is to be asked before anything is done for an object: API servers may ignore the selector.
func (s *Share) Owns(uid types.UID) bool { return s[bucketOf(uid)] }

// Selector is the value of the option ShardSelector; empty if there is nothing to select.
func (s *Share) Selector() string {
	var ranges []string
	for _, run := range runs(func(bucket int) string { return fmt.Sprint(s[bucket]) }) {
		if s[run.first] {
			ranges = append(ranges, fmt.Sprintf("shardRange(object.metadata.uid, '0x%016x', '%s')",
				uint64(run.first)<<54, end(run.last+1)))
		}
	}
	return strings.Join(ranges, " || ")
}

func end(bucket int) string {
	if bucket == buckets {
		return "0x10000000000000000" // more than 64 bits have
	}
	return fmt.Sprintf("0x%016x", uint64(bucket)<<54)
}

// place is where a bucket is, and since when.
type place struct {
	owner, target string
	epoch         int64
}

func (p place) String() string {
	if p.target == "" {
		return fmt.Sprintf("%s@%d", p.owner, p.epoch)
	}
	return fmt.Sprintf("%s to %s@%d", p.owner, p.target, p.epoch)
}

// assignment is what the ConfigMap says: each bucket is in one of the groups.
type assignment struct {
	groups map[string]place
	places [buckets]place
	epoch  int64
}

var (
	groupKey   = regexp.MustCompile(`^(\d{4})-(\d{4})$`)
	groupPlace = regexp.MustCompile(`^(?:([^ @]+)(?: to ([^ @]+))?)?@(\d{1,18})$`)
)

// parse refuses what is not complete: nobody acts on half of the truth.
func parse(data map[string]string) (*assignment, error) {
	if data["by"] != "uid" || data["buckets"] != strconv.Itoa(buckets) {
		return nil, fmt.Errorf("it divides objects into %q buckets by %q", data["buckets"], data["by"])
	}
	found := &assignment{groups: map[string]place{}}
	var known Share
	for key, value := range data {
		if key == "by" || key == "buckets" {
			continue
		}
		run, what := groupKey.FindStringSubmatch(key), groupPlace.FindStringSubmatch(value)
		if run == nil || what == nil {
			return nil, fmt.Errorf("%s: %q cannot be read", key, value)
		}
		first, _ := strconv.Atoi(run[1])
		last, _ := strconv.Atoi(run[2])
		epoch, _ := strconv.ParseInt(what[3], 10, 64)
		here := place{what[1], what[2], epoch}
		for bucket := first; bucket <= last; bucket++ {
			if bucket >= buckets || known[bucket] {
				return nil, fmt.Errorf("%s is not a part of its own", key)
			}
			known[bucket], found.places[bucket] = true, here
		}
		found.groups[key] = here
		found.epoch = max(found.epoch, epoch)
	}
	for bucket, is := range known {
		if !is {
			return nil, fmt.Errorf("bucket %d is missing", bucket)
		}
	}
	return found, nil
}

// names says whether the shard owns anything.
func (a *assignment) names(shard string) bool {
	for _, here := range a.groups {
		if here.owner == shard {
			return true
		}
	}
	return false
}

// change is a patch that gives whole groups another place; nil if `to` changes none. It fails if one of them has
// changed since. What it writes has an epoch that was never there.
func (a *assignment) change(to func(place) (place, bool)) []byte {
	var ops []map[string]string
	for _, key := range sorted(a.groups) {
		if next, changes := to(a.groups[key]); changes {
			next.epoch = a.epoch + 1
			path := "/data/" + key
			ops = append(ops,
				map[string]string{"op": "test", "path": path, "value": a.groups[key].String()},
				map[string]string{"op": "replace", "path": path, "value": next.String()})
		}
	}
	if ops == nil {
		return nil
	}
	patch, _ := json.Marshal(ops)
	return patch
}

// report is what a shard says on its Lease: its buckets with their epochs, and the greatest epoch that it has seen.
type report struct {
	epochs map[int]int64
	seen   int64
}

func (r report) String() string {
	var parts []string
	for _, run := range runs(func(bucket int) string { return fmt.Sprint(r.epochs[bucket]) }) {
		if epoch, has := r.epochs[run.first]; has {
			parts = append(parts, fmt.Sprintf("%d-%d@%d", run.first, run.last, epoch))
		}
	}
	return fmt.Sprintf("uid/%d:%s/%d", buckets, strings.Join(parts, ","), r.seen)
}

var reportPart = regexp.MustCompile(`(\d+)-(\d+)@(\d+)`)

func parseReport(text string) report {
	found := report{epochs: map[int]int64{}}
	if at := strings.LastIndex(text, "/"); at >= 0 {
		found.seen, _ = strconv.ParseInt(text[at+1:], 10, 64)
	}
	for _, part := range reportPart.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(part[1])
		last, _ := strconv.Atoi(part[2])
		epoch, _ := strconv.ParseInt(part[3], 10, 64)
		for bucket := first; bucket <= last && bucket < buckets; bucket++ {
			found.epochs[bucket] = epoch
		}
	}
	return found
}

// contradicts says why the assignment cannot be what another shard has seen; "" if it can.
func (r report) contradicts(a *assignment, shard string) string {
	if r.seen > a.epoch {
		return fmt.Sprintf("it is older than what %s has seen", shard)
	}
	for bucket, epoch := range r.epochs {
		if now := a.places[bucket]; now.epoch < epoch || (now.epoch == epoch && now.owner != shard) {
			return fmt.Sprintf("%s has had bucket %d since %d", shard, bucket, epoch)
		}
	}
	return ""
}

type run struct{ first, last int }

// runs are neighbouring buckets of which `of` says the same.
func runs(of func(bucket int) string) []run {
	var found []run
	for bucket := range buckets {
		if n := len(found); n > 0 && of(found[n-1].first) == of(bucket) {
			found[n-1].last = bucket
		} else {
			found = append(found, run{bucket, bucket})
		}
	}
	return found
}

func sorted(groups map[string]place) []string {
	keys := make([]string, 0, len(groups))
	for key := range groups {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}
