package sim

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestOrderBySlack checks that the policies with deadlines execute requests in the order of their deadlines, and first in, first out in that of
// their arrival at the step.
func TestOrderBySlack(t *testing.T) {
	t.Parallel()
	for _, p := range Policies {
		r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // equal in each run
		x := &simulation{s: &Scenario{Limit: time.Second, Graph: Graph{Nodes: []Node{{Name: "a", PerRow: time.Microsecond, MaxBatch: 4}}}}, readers: make([][]int, 1)}
		x.nodes = []*node{newNode(&x.s.Graph.Nodes[0], 0)}
		x.assignDevices()
		policy := p.Policy.start(x)
		for range 40 {
			at := float64(r.IntN(int(500 * time.Millisecond)))
			policy.enqueue(x.nodes[0], &task{r: &request{arrived: at, deadline: at + float64(time.Second)}, enqueued: x.now})
			x.now++
		}
		seen, ordered, last := 0, true, 0.0
		for {
			_, batch := policy.next(x.devices[0])
			if len(batch) == 0 {
				break
			}
			for _, task := range batch {
				seen++
				ordered = ordered && task.r.deadline >= last
				last = task.r.deadline
			}
		}
		if want := p.Policy > Today; seen != 40 || ordered != want {
			t.Errorf("%s: %d of 40 requests, in the order of deadlines: %v, expected %v", p.Name, seen, ordered, want)
		}
	}
}
