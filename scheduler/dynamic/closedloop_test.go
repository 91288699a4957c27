package dynamic_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// closedLoop is a model with padding and one instance on a virtual clock, and clients that each send the next request after the last
// response. A batch takes fixed, token for each token of its requests, and a tenth of that for each token of padding.
type closedLoop struct {
	fixed, token time.Duration
	clients      int
	rng          *rand.Rand
	policy       scheduler.Policy

	now     time.Duration
	pending []scheduler.Item // sent, or to be sent: Enqueued is when; in that order
	latency []time.Duration
}

// send adds a client's next request, which has from 8 to 31 tokens, as sentences have.
func (c *closedLoop) send(at time.Duration) {
	length := 8 + c.rng.Int32N(24)
	it := scheduler.Item{Shape: 1, Length: length, Rows: 1, Elements: int64(length), Enqueued: int64(at)}
	i, _ := slices.BinarySearchFunc(c.pending, it, func(a, b scheduler.Item) int { return int(a.Enqueued - b.Enqueued) })
	c.pending = slices.Insert(c.pending, i, it)
}

// batch executes one batch.
func (c *closedLoop) batch() {
	c.now = max(c.now, time.Duration(c.pending[0].Enqueued))
	queued := 0
	for queued < len(c.pending) && c.pending[queued].Enqueued <= int64(c.now) {
		queued++
	}
	v := scheduler.View{Items: c.pending[:queued], Instances: 1, Queued: int32(queued)}
	take := c.policy.Decide(int64(c.now), v, nil).Take
	x := scheduler.Executed{Rows: int64(len(take))}
	longest := int64(0)
	for _, i := range take {
		x.Unpadded += c.pending[i].Elements
		longest = max(longest, c.pending[i].Elements)
	}
	x.Elements, x.Padding = x.Unpadded, longest*x.Rows-x.Unpadded
	x.Duration = c.fixed + time.Duration(x.Unpadded)*c.token + time.Duration(x.Padding)*c.token/10
	x.Duration += time.Duration(c.rng.Int64N(int64(x.Duration / 10))) // as other work on the machine has it
	c.policy.(scheduler.Learner).Observe(x)
	c.now += x.Duration
	for _, i := range slices.Backward(take) {
		c.latency = append(c.latency, c.now-time.Duration(c.pending[i].Enqueued))
		c.pending = slices.Delete(c.pending, int(i), int(i)+1)
	}
	for range take {
		c.send(c.now + time.Duration(c.rng.Int64N(int64(time.Millisecond))))
	}
}

// run returns the p99 as a multiple of the median, and the throughput as a share of what executions without a fixed cost and padding have.
func (c *closedLoop) run() (tail, share float64) {
	for range c.clients {
		c.send(time.Duration(c.rng.Int64N(int64(time.Millisecond))))
	}
	const learn, requests = 2000, 10000
	began := time.Duration(0)
	for len(c.latency) < learn+requests {
		before := len(c.latency)
		c.batch()
		if before < learn && len(c.latency) >= learn {
			began = c.now
		}
	}
	const mean = 8 + 23.0/2
	tokens := int64(float64(len(c.latency)-learn) * mean)
	all := slices.Sorted(slices.Values(c.latency[learn:]))
	share = float64(tokens) * float64(c.token) * 1.05 / float64(c.now-began)
	return float64(all[len(all)*99/100]) / float64(all[len(all)/2]), share
}

// TestClosedLoopTails checks that requests do not wait long while others, of lengths that fit better, overtake them, and that this costs
// little throughput.
func TestClosedLoopTails(t *testing.T) {
	t.Parallel()
	for _, clients := range []int{32, 64} {
		for _, fixed := range []time.Duration{100, 500, 1000} {
			c := &closedLoop{
				fixed: fixed * time.Microsecond, token: 145 * time.Microsecond, clients: clients, rng: rand.New(rand.NewPCG(1, 1)), //nolint:gosec // a test wants the same numbers again
				policy: dynamic.Rules{MaxBatch: 32, MaxElements: 1 << 40, Padded: true}.Policy(),
			}
			tail, share := c.run()
			t.Logf("%d clients, a fixed cost of %v: p99 is %.2f times p50, throughput %.3f", clients, c.fixed, tail, share)
			if tail > 1.6 || share < 0.92 {
				t.Errorf("%d clients, a fixed cost of %v: p99 is %.2f times p50, throughput %.3f of the most possible; expected at most 1.6 and at least 0.92", clients, c.fixed, tail, share)
			}
		}
	}
}
