package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// event is something that happens to the server. A seed and a duration determine all of them; only which process is hit depends on
// which ones run.
type event struct {
	At   time.Duration `json:"at"`
	Kind string        `json:"kind"`
	Draw uint64        `json:"draw"` // chooses the model, the process or the client
	For  time.Duration `json:"for"`
}

// kind is a kind of events.
type kind struct {
	name   string
	weight int
	most   time.Duration // that it lasts
	needs  string        // what must be there: redis, s3, isolation
}

// kinds are all of them.
var kinds = []kind{
	{"kill-worker", 10, 0, ""},
	{"kill-isolated", 8, 0, "isolation"},
	{"stall-worker", 6, 3 * time.Second, ""},
	{"freeze-server", 2, 1500 * time.Millisecond, ""},
	{"reload", 8, 0, ""},
	{"unload", 6, time.Second, ""},
	{"change", 6, 0, ""},
	{"break", 4, 0, ""},
	{"new-version", 4, time.Second, ""},
	{"disk-full", 3, 4 * time.Second, ""},
	{"redis-gone", 4, 4 * time.Second, "redis"},
	{"bucket-gone", 4, 3 * time.Second, "s3"},
	{"bucket-load", 4, 0, "s3"},
	{"region-gone", 4, 500 * time.Millisecond, ""},
	{"slow-sender", 5, 5 * time.Second, ""},
	{"vanish", 8, 0, ""},
	{"no-reader", 5, 5 * time.Second, ""},
	{"flood-stream", 4, 4 * time.Second, ""},
	{"connections", 4, 2 * time.Second, ""},
	{"garbage", 5, 0, ""},
	{"truncate-region", 4, 0, ""},
}

// makePlan draws the events of a seed.
func (s *settings) makePlan(have map[string]bool) []event {
	r := rand.New(rand.NewPCG(s.seed, 0)) //nolint:gosec // reproducible
	kinds, sum := slices.Clone(kinds), 0
	kinds = slices.DeleteFunc(kinds, func(k kind) bool { return !wants(s.only.events, k.name) })
	for _, k := range kinds {
		sum += k.weight
	}
	if sum == 0 {
		return nil
	}
	var plan []event
	for at := time.Duration(0); ; {
		at += time.Duration(r.ExpFloat64() * float64(s.gap))
		if at >= s.duration {
			return plan
		}
		n, draw, part := r.IntN(sum), r.Uint64(), r.Float64()
		for _, k := range kinds {
			if n -= k.weight; n >= 0 {
				continue
			}
			if k.needs == "" || have[k.needs] {
				plan = append(plan, event{At: at.Round(time.Millisecond), Kind: k.name, Draw: draw, For: time.Duration(part * float64(k.most)).Round(time.Millisecond)})
			}
			break
		}
	}
}

// savePlan writes the plan as JSON lines and returns its hash.
func savePlan(dir string, plan []event) (string, error) {
	var b strings.Builder
	for _, e := range plan {
		line, err := json.Marshal(e)
		if err != nil {
			return "", err
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(b.String()))
	return fmt.Sprintf("%016x", h.Sum64()), os.WriteFile(filepath.Join(dir, "plan.jsonl"), []byte(b.String()), 0o644) //nolint:gosec // no secret
}
