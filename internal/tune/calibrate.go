package tune

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	pilotRounds = 3
	pilotTime   = 6 * time.Second
	// pilotLoad is the part of the highest predicted rate at which the slowdown is measured: near the rates of the search,
	// where latencies depend on it most.
	pilotLoad = 0.9
	// mostLowered bounds how often the rate is lowered because the server does not reach it: executions take longer under
	// load, or other processes use the cores. Each time it becomes calmer times what the server did reach.
	mostLowered = 5
	calmer      = 0.7
	// leastSlowdown and mostSlowdown bound the calibration.
	leastSlowdown, mostSlowdown = 0.7, 2.0
)

// calibrate runs the current settings and sets the overhead: what a request costs besides its models, from a client that
// sends one request at a time, and how much slower executions are under load.
func (t *tuning) calibrate(ctx context.Context) (err error) {
	t.Progress("calibrate", 0)
	v, err := t.open(ctx, t.current())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.close(ctx)) }()
	if err := t.single(ctx, v); err != nil {
		return err
	}
	rate, _ := t.highest(t.current())
	if rate == 0 {
		return nil // too slow for the objective even without load
	}
	t.overhead.Wait = 0 // under load threads are awake
	plan := load.Plan{Duration: t.length(pilotTime), Rate: rate * pilotLoad, Least: t.least(rate * pilotLoad)}
	var factors []float64
	var waits []time.Duration
	for i := range pilotRounds {
		plan.Seed = uint64(1000 + i)
		m, err := t.pilot(ctx, v, &plan)
		if err != nil {
			return err
		}
		factor, wait, err := t.compare(&plan, &m.Outcome)
		if err != nil {
			return err
		}
		factors, waits = append(factors, factor), append(waits, wait)
		t.Progress("calibrate", float64(i+2)/(pilotRounds+1))
	}
	t.overhead.Slowdown = median(factors)
	t.overhead.Wait = slices.Min(waits) // other processes only add to it
	return nil
}

// pilot runs the server with a plan. It lowers the plan's rate until the server reaches it: beyond that, latencies are those of a
// queue that grows with the length of the run.
func (t *tuning) pilot(ctx context.Context, v *live, p *load.Plan) (m measurement, err error) {
	for lowered := 0; ; lowered++ {
		m, err = v.run(ctx, *p, t.clients(p.Rate))
		late := errors.Is(err, load.ErrLate)
		if err != nil && !late || lowered == mostLowered {
			return m, err
		}
		if !late {
			if late, err = t.overloaded(p, &m.Outcome); err != nil || !late {
				return m, err
			}
		}
		p.Rate = calmed(p.Rate, m.Throughput)
		p.Least = t.least(p.Rate)
	}
}

// calmed returns the rate after one at which the server executed fewer requests. It falls to a third at most: a run that was given
// up says little.
func calmed(rate, executed float64) float64 {
	return calmer * min(rate, max(executed, rate/2))
}

// overloaded reports whether the server did not reach the rate of a run: it executed fewer requests, or the median latency is
// longer than the p99 of a simulation with headroom. A median within a tenth of the objective is no overload, whatever the
// simulation says.
func (t *tuning) overloaded(p *load.Plan, measured *Outcome) (bool, error) {
	const tenth = 10
	o, err := t.predict(t.current(), p.Arrivals(), headroom)
	return measured.P50 > max(o.P99, t.Objective/tenth) || measured.Throughput < sustained*p.Rate, err
}

const (
	// fewestRequests are enough for a p99.
	fewestRequests = 300
	// slowRun is the length of a run from which on it has fewer requests than that, but leastRequests at least. So tune ends in some
	// minutes for an ensemble that takes long, too.
	slowRun       = 15 * time.Second
	leastRequests = 30
)

// least returns the least number of requests of a run.
func (s *Settings) least(rate float64) int {
	return s.number(min(max(int(rate*slowRun.Seconds()), leastRequests), fewestRequests))
}

// single sets the overhead from requests one at a time.
func (t *tuning) single(ctx context.Context, v *live) error {
	var means, cpus []time.Duration
	for range pilotRounds {
		m, err := v.run(ctx, load.Plan{Duration: t.length(warmUp), Least: len(t.requests)}, 1)
		if err != nil {
			return err
		}
		means = append(means, m.Mean)
		cpus = append(cpus, time.Duration(m.CPU/m.Throughput*float64(time.Second)))
	}
	arrivals := make([]time.Duration, len(t.requests))
	for i := range arrivals {
		arrivals[i] = time.Duration(i) * time.Minute // each alone
	}
	o, err := Simulate(&Scenario{Network: t.network, Settings: t.current(), Cores: t.cores, Arrivals: arrivals})
	if err != nil {
		return err
	}
	perRequest := time.Duration(o.CPU / o.Throughput * float64(time.Second))
	t.overhead.CPU = max(0, median(cpus)-perRequest)
	t.overhead.Wait = max(0, slices.Min(means)-o.Mean-t.overhead.CPU) // other processes only add to it
	return nil
}

// compare returns how much slower executions are under load, and by how much the median latency of a run exceeds the
// simulated one then: the factor with which p50 and p99 agree best with a run. The processor time bounds it: latencies
// beyond that come from other processes, and are added as a constant, because a factor would grow with the rate.
func (t *tuning) compare(p *load.Plan, measured *Outcome) (factor float64, wait time.Duration, err error) {
	arrivals := p.Arrivals()
	o, err := t.predict(t.current(), arrivals, 1)
	if err != nil || o.CPU <= 0 {
		return 1, 0, err
	}
	most := min(max(measured.CPU/o.CPU, leastSlowdown), mostSlowdown)
	least := math.Inf(1)
	for f := leastSlowdown; f <= most; f += factorStep {
		if o, err = t.predict(t.current(), arrivals, f); err != nil {
			return 1, 0, err
		}
		if e := max(apart(o.P50, measured.P50), apart(o.P99, measured.P99)); e < least {
			least, factor, wait = e, f, max(0, measured.P50-o.P50)
		}
	}
	return factor, wait, nil
}

// factorStep is the precision of the factor.
const factorStep = 0.01

// apart returns how far two latencies are apart, on a logarithmic scale.
func apart(a, b time.Duration) float64 {
	return math.Abs(math.Log(float64(max(a, 1)) / float64(max(b, 1))))
}

// current returns the settings as they are now.
func (t *tuning) current() []Setting {
	list := make([]Setting, len(t.network.Models))
	for i := range list {
		list[i] = t.network.Models[i].Current
	}
	return list
}
