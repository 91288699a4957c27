package tune_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/internal/tune"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// oneModel returns a network of one model with a queue, whose executions take cost.
func oneModel(cost tune.Cost, maxBatch int32) *tune.Network {
	size := tune.Size{Rows: 1, Elements: 1}
	current := tune.Setting{MaxBatch: maxBatch, Instances: 1}
	return &tune.Network{
		Ensemble: "e", Samples: []tune.Sample{{Sizes: []tune.Size{size}}}, Nodes: []tune.Node{{Name: "m"}},
		Models: []tune.Model{{
			Name: "m", Config: &modelconfig.ModelConfig{Name: "m", MaxBatchSize: maxBatch}, Costs: map[tune.Execution]tune.Cost{{}: cost}, Current: current, Largest: maxBatch,
		}},
	}
}

func simulate(t *testing.T, n *tune.Network, s tune.Setting, cores int, arrivals []time.Duration) tune.Outcome {
	t.Helper()
	o, err := tune.Simulate(&tune.Scenario{Network: n, Settings: []tune.Setting{s}, Cores: cores, Arrivals: arrivals})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func poisson(n int, rate float64) []time.Duration {
	return (&load.Plan{Requests: n, Rate: rate, Seed: 3}).Arrivals()
}

// TestAgreesWithQueueingTheory compares simulations with the Pollaczek-Khinchine formula for M/D/1: the mean wait of a
// queue with random arrivals and equal service times S is S*rho/(2(1-rho)).
func TestAgreesWithQueueingTheory(t *testing.T) {
	t.Parallel()
	const service = 10 * time.Millisecond
	n := oneModel(tune.NewCost(1, float64(service)), 0)
	for _, rho := range []float64{0.3, 0.5, 0.7, 0.8} {
		o := simulate(t, n, n.Models[0].Current, 1, poisson(200000, rho/service.Seconds()))
		want := service.Seconds() * (1 + rho/(2*(1-rho)))
		if got := o.Mean.Seconds(); math.Abs(got/want-1) > 0.03 {
			t.Errorf("utilization %v: mean latency %v s, the formula says %v s", rho, got, want)
		}
		if math.Abs(o.CPU/rho-1) > 0.03 {
			t.Errorf("utilization %v: %v cores in use", rho, o.CPU)
		}
	}
}

// TestSharesCores checks that executions that need more cores than there are slow each other down, in proportion.
func TestSharesCores(t *testing.T) {
	t.Parallel()
	together := []time.Duration{0, 0, 0, 0}
	for _, c := range []struct {
		name  string
		cores int
		width float64
		want  time.Duration
	}{
		{"a core for each", 4, 1, 10 * time.Millisecond},
		{"two for four", 2, 1, 20 * time.Millisecond},
		{"each wants two of four", 4, 2, 20 * time.Millisecond},
		{"they mostly wait", 1, 0.25, 10 * time.Millisecond},
	} {
		n := oneModel(tune.NewCost(c.width, float64(10*time.Millisecond)), 0)
		s := n.Models[0].Current
		s.Instances = 4
		if o := simulate(t, n, s, c.cores, together); (o.P99 - c.want).Abs() > time.Microsecond {
			t.Errorf("%s: %v, want %v", c.name, o.P99, c.want)
		}
	}
	n := oneModel(tune.NewCost(1, float64(10*time.Millisecond)), 0)
	cost := n.Models[0].Costs[tune.Execution{}]
	cost.Interference = [2]tune.Interference{{Part: 0.5}, {Wall: 20e6, Part: 0.5}}
	n.Models[0].Costs[tune.Execution{}] = cost
	s := n.Models[0].Current
	s.Instances = 2
	if o := simulate(t, n, s, 2, together[:2]); (o.P99 - 15*time.Millisecond).Abs() > time.Microsecond {
		t.Errorf("with interference: %v, want 15ms", o.P99)
	}
}

// TestSimulatesBatches checks batches by the rules of the server: what waits forms one, a preferred size executes at
// once, and a delay is waited for.
func TestSimulatesBatches(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	n := oneModel(tune.NewCost(1, float64(10*ms), float64(ms)), 8)
	base := tune.Setting{MaxBatch: 8, Batching: true, Instances: 1}
	delayed, preferred := base, base
	delayed.Delay = 5 * ms
	preferred.Preferred, preferred.Delay = []int32{2}, 5*ms
	for _, c := range []struct {
		name     string
		setting  tune.Setting
		arrivals []time.Duration
		p99      time.Duration
		batch    float64
	}{
		{"one at a time", tune.Setting{MaxBatch: 8, Instances: 1}, []time.Duration{0, ms, 2 * ms}, 31 * ms, 1},
		{"what waits", base, []time.Duration{0, ms, 2 * ms}, 22 * ms, 1.5},
		{"a delay", delayed, []time.Duration{0, ms, 2 * ms}, 18 * ms, 3},
		{"a preferred size", preferred, []time.Duration{0, ms}, 13 * ms, 2},
	} {
		o := simulate(t, n, c.setting, 4, c.arrivals)
		if (o.P99-c.p99).Abs() > 10*time.Microsecond || o.Batches[0] != c.batch {
			t.Errorf("%s: p99 %v and batches of %v, want %v and %v", c.name, o.P99, o.Batches[0], c.p99, c.batch)
		}
	}
}

// TestSimulatesGraphs checks that steps wait for those whose outputs they read, and that independent ones overlap.
func TestSimulatesGraphs(t *testing.T) {
	t.Parallel()
	n := oneModel(tune.NewCost(1, float64(10*time.Millisecond)), 0)
	m := n.Models[0]
	m.Inline = true
	n.Models = []tune.Model{m, m, m, m}
	n.Nodes = []tune.Node{{Name: "a", Model: 0}, {Name: "b", Model: 1, After: []int{0}}, {Name: "c", Model: 2, After: []int{0}}, {Name: "d", Model: 3, After: []int{1, 2}}}
	size := n.Samples[0].Sizes[0]
	n.Samples[0].Sizes = []tune.Size{size, size, size, size}
	settings := []tune.Setting{m.Current, m.Current, m.Current, m.Current}
	for cores, want := range map[int]time.Duration{1: 40 * time.Millisecond, 2: 30 * time.Millisecond} {
		o, err := tune.Simulate(&tune.Scenario{Network: n, Settings: settings, Cores: cores, Arrivals: []time.Duration{0}})
		if err != nil || (o.P50-want).Abs() > 10*time.Microsecond {
			t.Errorf("%d cores: %v, error %v, want %v", cores, o.P50, err, want)
		}
	}
}

// TestSimulationsRepeat checks that equal scenarios have equal outcomes, with random settings, and that every request
// is served.
func TestSimulationsRepeat(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test wants the same numbers again
		n := oneModel(tune.NewCost(rng.Float64()*3, 1e6*rng.Float64(), 1e6*rng.Float64()), 8)
		s := tune.Setting{MaxBatch: 8, Batching: rng.IntN(3) > 0, Instances: 1 + rng.IntN(3)}
		if rng.IntN(2) == 0 {
			s.Delay = time.Duration(rng.IntN(5000)) * time.Microsecond
		}
		arrivals := poisson(500, 200+2000*rng.Float64())
		a, b := simulate(t, n, s, 1+rng.IntN(4), arrivals), simulate(t, n, s, 1, arrivals)
		if b.Throughput <= 0 || b.P99 < b.P50 || a.P99 < a.P50 {
			t.Errorf("seed %d: %+v, %+v", seed, a, b)
		}
		if again := simulate(t, n, s, 1, arrivals); again.P99 != b.P99 || again.Mean != b.Mean {
			t.Errorf("seed %d: %v and %v", seed, b, again)
		}
	}
}

// TestFit checks that a cost is found again in observations with errors of up to 5 %, and that its coefficients are not
// negative where times do not grow.
func TestFit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test wants the same numbers again
	truth := tune.NewCost(1, 2e6, 1e5, 3e4, 20)
	var list []tune.Observation
	for _, length := range []int32{8, 32, 100, 250} {
		for rows := int32(1); rows <= 16; rows *= 2 {
			b := tune.Batch{Rows: rows, Length: length, Elements: int64(3 * rows * length)}
			wall := time.Duration(truth.Wall(&b) * (0.95 + 0.1*rng.Float64()))
			list = append(list, tune.Observation{Batch: b, Wall: wall, CPU: wall * 3 / 2})
		}
	}
	got := tune.Fit(list)
	for _, b := range []tune.Batch{{Rows: 1, Length: 8}, {Rows: 3, Length: 60}, {Rows: 12, Length: 200}} {
		if ratio := got.Wall(&b) / truth.Wall(&b); math.Abs(ratio-1) > 0.08 {
			t.Errorf("a batch of %d rows of %d: %v of the true time", b.Rows, b.Length, ratio)
		}
	}
	if math.Abs(got.Width-1.5) > 0.01 || got.Error > 0.05 || got.Error == 0 {
		t.Errorf("width %v, error %v", got.Width, got.Error)
	}
	falling := tune.Fit([]tune.Observation{{Batch: tune.Batch{Rows: 1, Elements: 1}, Wall: 2000}, {Batch: tune.Batch{Rows: 8, Elements: 8}, Wall: 1000}})
	if b := (tune.Batch{Rows: 100, Elements: 100}); falling.Wall(&b) < 1000 || falling.Wall(&b) > 2000 {
		t.Errorf("a time that does not grow is extrapolated to %v ns", falling.Wall(&b))
	}
}
