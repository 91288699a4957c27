package queue

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/scheduler"
)

// TestSharesProperty serves random tasks of random clients, and compares each with a search over all entries. It checks what the clients
// have queued, and that the parts that busy clients got are those of their weights.
func TestSharesProperty(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // a test wants the same numbers again
		q := newBacklog(Levels{Count: 2, Default: 1}, "m")
		clients := infer.NewShares(infer.ByHeader, "client", map[string]float64{"0": 4})
		queued := map[*scheduler.Task]*entry{}
		for step := range 2000 {
			if q.n == 0 || rng.IntN(2) == 0 {
				w := &scheduler.Task{
					TaskRequest: scheduler.TaskRequest{
						Ctx: context.Background(), Rows: 1 + rng.Int32N(3), Meta: &infer.Meta{Priority: rng.Uint64N(3), Client: clients.Of([]string{strconv.Itoa(rng.IntN(6))}, "", "", 1)},
					},
					TaskState: scheduler.TaskState{Shape: rng.Uint64N(3)},
				}
				if rng.IntN(10) == 0 {
					w.Meta.Client = nil
				}
				if rng.IntN(3) == 0 {
					w.Meta.Deadline = int64(1e9) + rng.Int64N(1e9)
				}
				q.push(w, 1)
				for _, g := range q.heap {
					for e := g.after(nil); e != nil; e = g.after(e) {
						queued[e.task] = e
					}
				}
			} else {
				e := q.heap[0].after(nil)
				for _, other := range queued {
					a, b := e.flow.turn(), other.flow.turn()
					if b < a || b == a && other.earlier(e) {
						t.Fatalf("seed %d, step %d: a task with counter %v is served before one with %v", seed, step, a, b)
					}
				}
				if rng.IntN(4) == 0 {
					delete(queued, q.remove(e))
				} else {
					delete(queued, q.serve(e))
				}
			}
			tasks, rows, cost := map[*flow]int{}, map[*flow]int32{}, map[*flow]int64{}
			for w, e := range queued {
				tasks[e.flow]++
				rows[e.flow] += w.Rows
				cost[e.flow] += e.cost
			}
			delete(tasks, nil) // that came before the first client
			for _, f := range q.shares.flows {
				if f.n != tasks[f] || f.rows != rows[f] || f.queued != cost[f] || (f.n == 0) != (len(f.groups) == 0) {
					t.Fatalf("seed %d, step %d: client %s has %d tasks, %d rows and a cost of %d in %d groups, want %d, %d and %d",
						seed, step, f.client.Name, f.n, f.rows, f.queued, len(f.groups), tasks[f], rows[f], cost[f])
				}
			}
			if len(q.shares.active) != len(tasks) {
				t.Fatalf("seed %d, step %d: %d clients have tasks, want %d", seed, step, len(q.shares.active), len(tasks))
			}
		}
	}
}

// TestManyClients checks that clients which come once are forgotten, though the queue is never empty.
func TestManyClients(t *testing.T) {
	t.Parallel()
	q := newBacklog(Levels{}, "m")
	push := func(c *infer.Client) {
		q.push(&scheduler.Task{TaskRequest: scheduler.TaskRequest{Ctx: context.Background(), Rows: 1, Meta: &infer.Meta{Client: c}}}, 1)
	}
	steady := &infer.Client{Name: "steady", Weight: 1}
	push(steady)
	for range 20_000 {
		push(&infer.Client{Weight: 1})
		push(steady)
		q.serve(q.heap[0].after(nil))
		q.serve(q.heap[0].after(nil))
	}
	if n := len(q.shares.flows); n > 4*fewFlows {
		t.Errorf("%d clients are remembered", n)
	}
	if n := len(q.groups); n > 2*fewGroups {
		t.Errorf("%d groups are kept", n)
	}
}
