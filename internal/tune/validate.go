package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	// validRounds are the rounds of a validation. There are up to mostValidRounds, so that those count in which other
	// processes left the machine alone.
	validRounds, mostValidRounds = 3, 5
	shortestRun, longestRun      = 6 * time.Second, 12 * time.Second
	// runRequests is how many requests a run should have, for its p99.
	runRequests = 2000
	// quiet is how much of a core other processes may use in a round that counts as undisturbed.
	quiet = 0.1
	// Tolerance is how far a measurement may be from its prediction.
	Tolerance = 0.15
)

// validate runs the advice and the current settings with the same traffic, in turn, and simulates both with the
// same arrivals. It sets the predictions and measurements of the report, as medians over the rounds.
func (t *tuning) validate(ctx context.Context, r *Report) (err error) {
	t.Progress("validate", 0)
	candidates := []*Candidate{&r.Advice}
	if r.Changed {
		candidates = append(candidates, &r.Current)
	}
	var servers []*live
	defer func() {
		for _, v := range servers {
			err = errors.Join(err, v.close(ctx))
		}
	}()
	for _, c := range candidates {
		v, err := t.open(ctx, c.Settings)
		if err != nil {
			return err
		}
		servers = append(servers, v)
	}
	rounds, err := t.rounds(ctx, r.Rate, candidates, servers)
	if err != nil {
		return err
	}
	for i, c := range candidates {
		var predicted, measured []Outcome
		for _, round := range rounds {
			predicted, measured = append(predicted, round.predicted[i]), append(measured, round.measured[i].Outcome)
		}
		c.Predicted, c.Measured = medians(predicted), medians(measured)
	}
	for _, round := range rounds {
		r.Foreign += round.foreign / float64(len(rounds))
	}
	if !r.Changed {
		r.Current = r.Advice
		return nil
	}
	r.Changes, err = Changes(t.network, func(model string) string { return filepath.Join(t.Root, model) }, r.Advice.Settings)
	return err
}

// round is one run of each candidate.
type round struct {
	predicted []Outcome
	measured  []measurement
	foreign   float64 // the cores that other processes used, the most of the runs
}

// rounds returns the rounds that count.
func (t *tuning) rounds(ctx context.Context, rate float64, candidates []*Candidate, servers []*live) (list []round, err error) {
	length := time.Duration(runRequests / rate * float64(time.Second))
	plan := load.Plan{Duration: t.length(min(max(length, shortestRun), longestRun)), Rate: rate, Least: t.least(rate)}
	undisturbed := 0
	for i := 0; i < mostValidRounds && undisturbed < validRounds; i++ {
		plan.Seed = uint64(i + 1)
		var x round
		for k, c := range candidates {
			o, err := t.predict(c.Settings, plan.Arrivals(), 1)
			if err != nil {
				return nil, err
			}
			m, err := servers[k].run(ctx, plan, t.clients(rate))
			if err != nil && !errors.Is(err, load.ErrLate) { // then the advice does not hold
				return nil, err
			}
			x.predicted, x.measured, x.foreign = append(x.predicted, o), append(x.measured, m), max(x.foreign, m.foreign)
		}
		if list = append(list, x); x.foreign <= quiet {
			undisturbed++
		}
		t.Progress("validate", float64(i+1)/mostValidRounds)
	}
	slices.SortStableFunc(list, func(a, b round) int { return cmp.Compare(a.foreign, b.foreign) })
	return list[:validRounds], nil
}

// medians returns the median of each value.
func medians(list []Outcome) (o Outcome) {
	var p50, p99, mean []time.Duration
	var throughput, cpu []float64
	for i := range list {
		x := &list[i]
		p50, p99, mean = append(p50, x.P50), append(p99, x.P99), append(mean, x.Mean)
		throughput, cpu = append(throughput, x.Throughput), append(cpu, x.CPU)
	}
	o = Outcome{P50: median(p50), P99: median(p99), Mean: median(mean), Throughput: median(throughput), CPU: median(cpu)}
	if len(list) > 0 {
		o.Batches = list[0].Batches
	}
	return o
}

// Within reports whether the measured p50, p99 and throughput are within Tolerance of the predicted ones.
func (c *Candidate) Within() bool {
	_, difference := c.worst()
	return math.Abs(difference) <= Tolerance
}

// worst returns the prediction that is furthest from its measurement, and the difference relative to the measurement.
func (c *Candidate) worst() (name string, difference float64) {
	p, m := &c.Predicted, &c.Measured
	for _, x := range []struct {
		name                string
		predicted, measured float64
	}{{"p50", float64(p.P50), float64(m.P50)}, {"p99", float64(p.P99), float64(m.P99)}, {"throughput", p.Throughput, m.Throughput}} {
		if x.measured <= 0 {
			return x.name, math.Inf(1)
		}
		if d := x.predicted/x.measured - 1; math.Abs(d) >= math.Abs(difference) {
			name, difference = x.name, d
		}
	}
	return name, difference
}

// Validated reports whether the advice is good as measured, whatever was predicted: the objective was met, the rate was served,
// and the current settings were not better. Reason says why not.
func (r *Report) Validated() (ok bool, reason string) {
	a := &r.Advice
	switch {
	case a.Measured.P99 > r.Objective:
		return false, "the p99 exceeds the objective"
	case a.Measured.Throughput < sustained*r.Rate:
		return false, "the server did not serve the rate"
	case r.Changed && !r.Given && r.Current.Measured.P99 <= r.Objective && r.Current.Measured.P99 < a.Measured.P99:
		return false, "the current configuration serves that rate with a lower p99"
	case r.Changed && r.Given && r.Current.Measured.P99 <= r.Objective && r.Current.Measured.CPU < a.Measured.CPU:
		return false, "the current configuration takes less processor time"
	}
	return true, ""
}

// Holds reports whether the advice is validated and the measurements are within Tolerance of the predictions. Reason says why not.
func (r *Report) Holds() (ok bool, reason string) {
	if ok, reason = r.Validated(); ok && !r.Advice.Within() {
		name, difference := r.Advice.worst()
		return false, fmt.Sprintf("the predicted %s is %.0f %% from its measurement, more than 15 %%", name, 100*math.Abs(difference))
	}
	return ok, reason
}
