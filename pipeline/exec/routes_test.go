package exec_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// divided is quick -> last, where quick, spare or third computes the score, by the parameter "user" and only for rows above 0.
func divided(conditional bool) *branching {
	e := newBranching(8, "out")
	e.step("quick", "score", plus(0), "INPUT0")
	e.step("last", "out", plus(1), "score")
	e.model("spare", 1, plus(100))
	e.model("third", 1, plus(10_000))
	e.param("step.quick.split", `{"weights": {"quick": 5, "spare": 3, "third": 2}, "key": "user"}`)
	if conditional {
		e.param("step.quick.when", "INPUT0[0] > 0.0")
		e.param("step.quick.otherwise", `{"score": [-1]}`)
	}
	return e
}

// offsets are what the alternatives add.
var offsets = map[string]float32{"quick": 0, "spare": 100, "third": 10_000}

// TestSplit sends requests of random users from several goroutines: every row of a request is computed by the alternative that the response
// names, and by no other, a user stays with its alternative, and the shares are near the weights.
func TestSplit(t *testing.T) {
	t.Parallel()
	for _, conditional := range []bool{false, true} {
		t.Run(fmt.Sprintf("conditional %t", conditional), func(t *testing.T) {
			t.Parallel()
			const workers, each = 4, 300
			b, e := newHostBench(t), divided(conditional)
			x, err := e.executor(t, b)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			routed, rows := map[string]string{}, map[string]int64{}
			var all sync.WaitGroup
			for seed := range uint64(workers) {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(seed, 2))
					for range each {
						values := make([]float32, 1+rng.IntN(4))
						for i := range values {
							values[i] = float32(rng.IntN(9) - 3)
						}
						user := fmt.Sprintf("user-%d", rng.IntN(400))
						req := b.batched(values...)
						req.Params = append(req.Params, infer.Param{Key: "user", Kind: infer.ParamString, String: user})
						a := submit(t.Context(), x, req)
						if a.err != nil {
							t.Error(a.err)
							return
						}
						at, want, ran := "", make([]float32, len(values)), int64(0)
						for _, p := range a.resp.Params {
							if p.Key == "route.quick" {
								at = p.String
							}
						}
						for i, v := range values {
							if want[i] = v + offsets[at] + 1; conditional && v <= 0 {
								want[i] = 0
							} else {
								ran++
							}
						}
						if at == "" && ran > 0 {
							t.Errorf("the response to %v does not name the alternative", values)
						}
						if d := cmp.Diff(map[string][]float32{"out": want}, a.tensors()); d != "" {
							t.Errorf("user %s at %s (-want +got):\n%s", user, at, d)
						}
						mu.Lock()
						if before := routed[user]; before != "" && at != "" && before != at {
							t.Errorf("user %s moved from %s to %s", user, before, at)
						}
						if rows[at] += ran; at != "" {
							routed[user] = at
						}
						mu.Unlock()
					}
				})
			}
			all.Wait()
			counts := map[string]int{}
			for _, at := range routed {
				counts[at]++
			}
			for name, p := range map[string]float64{"quick": 0.5, "spare": 0.3, "third": 0.2} {
				n := float64(len(routed))
				if math.Abs(float64(counts[name])-n*p) > 5*math.Sqrt(n*p*(1-p))+1 {
					t.Errorf("%s has %d of %g users, want a share of %g", name, counts[name], n, p)
				}
				if got := e.rows[name].Load(); got != rows[name] {
					t.Errorf("%s executed %d rows, want the %d that were sent to it", name, got, rows[name])
				}
			}
		})
	}
}

// TestSplitFailure checks that a request whose alternative fails is an error of that model, and that the next one succeeds.
func TestSplitFailure(t *testing.T) {
	t.Parallel()
	b, e := newHostBench(t), newBranching(8, "out")
	e.step("quick", "score", plus(0), "INPUT0")
	e.step("last", "out", plus(1), "score")
	e.model("broken", 1, func(in []float32) (float32, error) {
		if in[0] < 0 {
			return 0, status.Errorf(status.Unavailable, "out of order")
		}
		return in[0], nil
	})
	e.param("step.quick.canary", `{"model": "broken", "weight": 100, "requests": 2, "max_errors": 0}`)
	x, err := e.executor(t, b)
	if err != nil {
		t.Fatal(err)
	}
	if a := submit(t.Context(), x, b.batched(-1)); a.err == nil || a.err.Error() != "in ensemble 'e', out of order" {
		t.Fatalf("%v, want the failure of the canary", a.err)
	}
	for range 3 { // rolled back: the step's own model executes the request
		a := submit(t.Context(), x, b.batched(-1))
		if a.err != nil {
			t.Fatal(a.err)
		}
		if d := cmp.Diff(map[string][]float32{"out": {0}}, a.tensors()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}
