package sim_test

import (
	"testing"
	"time"

	"github.com/tutti-server/tutti/scheduler/sim"
)

// chain is a chain of three models: on a device each, or all on device 1.
func chain(device int) sim.Graph {
	ms := time.Millisecond
	return sim.Graph{Nodes: []sim.Node{
		{Name: "a", Fixed: 2 * ms, PerRow: ms / 2, MaxBatch: 16, Device: device},
		{Name: "b", After: []int{0}, Fixed: 5 * ms, PerRow: 3 * ms / 2, MaxBatch: 16, Device: device},
		{Name: "c", After: []int{1}, Fixed: 2 * ms, PerRow: ms / 2, MaxBatch: 16, Device: device},
	}}
}

// limits are those of requests to chain, by device.
var limits = map[int]time.Duration{0: 120 * time.Millisecond, 1: 150 * time.Millisecond}

// TestGoodput checks the server's policy at and above the capacity: at least 0.97 of the bound, and hardly any time for requests that are
// late.
func TestGoodput(t *testing.T) {
	t.Parallel()
	for _, device := range []int{0, 1} {
		g := chain(device)
		for name, arrivals := range map[string]func(rate float64, length time.Duration, seed uint64) sim.Arrivals{"poisson": sim.Poisson, "twitter": sim.Twitter} {
			for _, load := range []float64{1, 1.2, 1.5} {
				s := sim.Scenario{Graph: g, Limit: limits[device], Policy: sim.Deadline, Arrivals: arrivals(load*g.Capacity(), time.Minute, 1)}
				o := sim.Run(&s)
				t.Logf("%s, device %d, load %.1f: %.3f of %.3f, waste %.3f", name, device, load, o.Goodput(), o.Bound, o.Waste())
				if o.Goodput() < 0.97*o.Bound || o.Waste() > 0.02 {
					t.Errorf("%s, device %d, load %.1f: %.3f of %.3f in time, %.3f of the devices' time for late ones", name, device, load, o.Goodput(), o.Bound, o.Waste())
				}
			}
		}
	}
}
