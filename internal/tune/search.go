package tune

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	// headroom is how much slower executions may become until the advice exceeds the objective. Beside the end of
	// capacity, where a few percent multiply the latency, no advice would hold.
	headroom = 1.3
	// searchRequests is the least number of simulated requests of one operating point, mostSearchRequests the most. Between them it
	// is the number that arrives in searchObjectives times the objective: in a shorter time even a queue that grows without bounds
	// stays within the objective.
	searchRequests, mostSearchRequests = 2500, 20000
	searchObjectives                   = 20
	// narrow ends the search of a rate, relative to it.
	narrow = 0.01
	// worthwhile is how much better settings must be than those before, so that they are worth a change.
	worthwhile = 0.03
	// saving is how much less processor time settings must take: they usually pay for it with latency.
	saving = 0.1
	// searchPasses bounds how often the settings of each model are searched, because those of others have changed.
	searchPasses = 2
)

// Point is one simulated operating point.
type Point struct {
	Outcome
	Settings []Setting
}

// search finds the best settings model by model, starting with the current ones.
func (t *tuning) search(ctx context.Context) (*Report, error) {
	x := &searching{tuning: t}
	best, err := x.evaluate(t.current())
	if err != nil {
		return nil, err
	}
	r := &Report{Ensemble: t.Ensemble, Objective: t.Objective, Cores: t.cores, Network: t.network, Overhead: t.overhead, Given: t.Rate > 0}
	r.Current = Candidate{Settings: t.current(), Highest: best.rate}
	for range searchPasses {
		before := best
		for m := range t.network.Models {
			if t.network.Models[m].Inline {
				continue
			}
			if best, err = x.model(ctx, m, best); err != nil {
				return nil, err
			}
		}
		if sameSettings(before.settings, best.settings) {
			break
		}
	}
	if !best.feasible {
		return nil, &UnreachableError{t.Objective, best.p99, best.rate, best.executed, t.describe(best.settings)}
	}
	r.Advice = Candidate{Settings: best.settings, Highest: best.rate}
	r.Changed = !sameSettings(best.settings, t.current())
	r.Points = x.points
	if r.Rate = best.rate; r.Given {
		r.Rate = t.Rate
	}
	t.Progress("search", 1)
	return r, nil
}

// searching collects what one search simulates.
type searching struct {
	*tuning
	mu     sync.Mutex
	points []Point // guarded by mu
}

// score is how good settings are.
type score struct {
	settings []Setting
	feasible bool
	rate     float64 // the highest within the objective, or the given one
	cpu      float64 // cores in use at the rate
	p99      time.Duration
	executed float64 // requests per second
}

// better reports whether a is worth a change from b.
func (t *tuning) better(a, b *score) bool {
	switch {
	case a.feasible != b.feasible:
		return a.feasible
	case !a.feasible:
		return float64(a.p99) < float64(b.p99)*(1-worthwhile)
	case t.Rate > 0:
		return a.cpu < b.cpu*(1-saving)
	}
	return a.rate > b.rate*(1+worthwhile)
}

// model evaluates the candidates of one model, with the best settings of the others.
func (x *searching) model(ctx context.Context, m int, best score) (score, error) {
	list := x.candidates(&x.network.Models[m])
	scores := make([]score, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(x.cores)
	for i := range list {
		g.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			settings := slices.Clone(best.settings)
			settings[m] = list[i]
			scores[i], err = x.evaluate(settings)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return best, err
	}
	for i := range scores {
		if x.better(&scores[i], &best) {
			best = scores[i]
		}
		x.Progress("search", float64(i+1)/float64(len(scores)))
	}
	return best, nil
}

// evaluate scores settings by simulations.
func (x *searching) evaluate(settings []Setting) (score, error) {
	s := score{settings: settings, rate: x.Rate}
	if x.Rate == 0 {
		s.rate, s.p99 = x.highestOf(settings, x.note)
		if s.feasible = s.rate > 0; !s.feasible {
			s.rate = lowestRate
		}
	}
	o, err := x.simulate(settings, s.rate, headroom)
	if err != nil {
		return s, err
	}
	if x.Rate > 0 || !s.feasible {
		s.p99 = o.P99
		s.feasible = x.Rate > 0 && o.P99 <= x.Objective && o.Throughput > x.Rate*sustained
	}
	s.cpu, s.executed = o.CPU, o.Throughput
	x.note(Point{o, settings})
	return s, nil
}

const (
	// lowestRate is a rate at which requests hardly meet, per second.
	lowestRate = 0.1
	// sustained is the part of the arrivals that must be served in time: below it the queue grows without bounds.
	sustained = 0.9
)

func (x *searching) note(p Point) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.points = append(x.points, p)
}

// simulate predicts settings at a rate, with executions that are slower by a factor.
func (t *tuning) simulate(settings []Setting, rate, slower float64) (Outcome, error) {
	n := min(max(int(searchObjectives*rate*t.Objective.Seconds()), searchRequests), mostSearchRequests)
	p := load.Plan{Requests: t.number(n), Rate: rate, Seed: 1}
	return t.predict(settings, p.Arrivals(), slower)
}

func (t *tuning) predict(settings []Setting, arrivals []time.Duration, slower float64) (Outcome, error) {
	o := t.overhead
	if o.Slowdown == 0 {
		o.Slowdown = 1
	}
	o.Slowdown *= slower
	return Simulate(&Scenario{Network: t.network, Settings: settings, Cores: t.cores, Overhead: o, Arrivals: arrivals})
}

// highest returns the highest rate at which settings meet the objective with headroom, and the p99 there. The rate is 0
// if there is none; the p99 is that of requests that hardly meet then.
func (t *tuning) highest(settings []Setting) (rate float64, p99 time.Duration) {
	return t.highestOf(settings, func(Point) {})
}

func (t *tuning) highestOf(settings []Setting, note func(Point)) (rate float64, p99 time.Duration) {
	meets := func(rate float64) bool {
		o, err := t.simulate(settings, rate, headroom)
		if err != nil {
			return false
		}
		note(Point{o, settings})
		p99 = o.P99
		return o.P99 <= t.Objective && o.Throughput > rate*sustained
	}
	if !meets(lowestRate) {
		return 0, p99
	}
	o, err := t.simulate(settings, lowestRate, headroom)
	if err != nil || o.CPU <= 0 {
		return 0, p99
	}
	low, high := lowestRate, 2*float64(t.cores)*o.Throughput/o.CPU
	for meets(high) && high < fastest {
		low, high = high, 2*high
	}
	for low == lowestRate && high > 2*low { // find the order of magnitude first
		if meets(high / 2) {
			low = high / 2
		} else {
			high /= 2
		}
	}
	for high > low*(1+narrow) {
		if middle := math.Sqrt(low * high); meets(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	return low, p99
}

// fastest bounds the rates of the search, per second.
const fastest = 1e6

// candidates returns the settings of a model to try: instances and threads that use the cores once or twice, and
// batching rules.
func (t *tuning) candidates(m *Model) (list []Setting) {
	for x := range m.Costs {
		for _, instances := range t.instances(m, max(x.Threads, 1)) {
			for _, s := range t.batching(m) {
				s.Version, s.Threads, s.Instances = x.Version, x.Threads, instances
				list = append(list, s)
			}
		}
	}
	slices.SortFunc(list, func(a, b Setting) int { return compareSettings(&a, &b) })
	return list
}

// instances returns the numbers of instances to try: the current one, and those that use every core at most twice.
func (t *tuning) instances(m *Model, threads int) []int {
	list := []int{1, m.Current.Instances}
	for n := 2; n*threads <= 2*t.cores; n *= 2 {
		list = append(list, n)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// batching returns the batching rules to try; their instances and threads are the current ones.
func (t *tuning) batching(m *Model) []Setting {
	list := []Setting{m.Current}
	if m.Current.MaxBatch < 1 || m.Largest < 2 {
		return list
	}
	plain := m.Current
	plain.Batching, plain.Preferred, plain.Delay = true, nil, 0
	list = append(list, plain)
	for size := 2 * plain.MaxBatch; size <= m.Largest; size *= 2 {
		larger := plain
		larger.MaxBatch = size
		list = append(list, larger)
	}
	if plain.MaxBatch < 2 {
		return list
	}
	for size := int32(1); size < plain.MaxBatch && size <= 32; size *= 2 {
		s := plain
		s.Preferred = []int32{size}
		list = append(list, s)
	}
	for _, part := range []time.Duration{64, 32, 16, 8, 4} {
		s := plain
		if s.Delay = (t.Objective / part).Round(100 * time.Microsecond); s.Delay > 0 {
			list = append(list, s)
		}
	}
	return list
}

// compareSettings orders settings from simple to elaborate, so that of equally good ones the simplest is chosen.
func compareSettings(a, b *Setting) int {
	rank := func(s *Setting) []int64 {
		return []int64{s.Version.Number, int64(s.Delay), int64(len(s.Preferred)), int64(s.Instances * max(s.Threads, 1)), int64(s.Instances), int64(s.MaxBatch), int64(sum(s.Preferred))}
	}
	return slices.Compare(rank(a), rank(b))
}

func sum(list []int32) (n int32) {
	for _, x := range list {
		n += x
	}
	return n
}

func sameSettings(a, b []Setting) bool {
	return slices.EqualFunc(a, b, func(a, b Setting) bool {
		return a.MaxBatch == b.MaxBatch && a.Batching == b.Batching && slices.Equal(a.Preferred, b.Preferred) && a.Delay == b.Delay &&
			a.Instances == b.Instances && a.Threads == b.Threads && a.Version == b.Version
	})
}
