package benchmark

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/tutti-server/tutti/core/infer"
)

// Side is one of two servers, or models, that are compared.
type Side struct {
	Name    string
	Session *Session
	// Statistics returns the statistics of the server's models; nil for none.
	Statistics func(ctx context.Context) ([]infer.Statistics, error)
}

// Rounds describe a comparison. The zero value of a field selects its default.
type Rounds struct {
	// Count is the number of rounds, 10 by default. In each round both sides are measured, in alternating order.
	Count int
	// Length is the time of a side in a round, a second by default. It is longer, up to ten times, while fewer than 50 responses came.
	// A fifth as much before it is not counted.
	Length time.Duration
	// Progress is called after each round; nil for no one.
	Progress func(round int, a, b *Round)
}

// Round has the figures of one side in one round.
type Round struct {
	Throughput float64 `json:"throughput"`
	Mean       float64 `json:"mean_us"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Failed     int64   `json:"failed"`
}

// Comparison is the result of Compare: the sides, and the ratios of the first side to the second.
type Comparison struct {
	Names  [2]string   `json:"names"`
	Sides  [2]*Result  `json:"sides"` // of all rounds
	Rounds [2][]Round  `json:"rounds"`
	Ratios []RatioOf   `json:"ratios"`
	Load   Description `json:"load"`
}

// Description is the load of both sides.
type Description struct {
	Clients int     `json:"clients"`
	Rate    float64 `json:"rate,omitempty"`
}

// RatioOf is the ratio of one figure.
type RatioOf struct {
	Figure string `json:"figure"` // throughput, mean, p50 or p99
	Ratio
}

// Ratio is an estimate with the limits of its confidence interval of 95 %.
type Ratio struct {
	Value float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Compare measures two sides in rounds. In each round both are measured one after the other, so that a change of the machine's
// speed meets both. When ctx is done, the result has the rounds until then.
func Compare(ctx context.Context, a, b *Side, r *Rounds) (*Comparison, error) {
	count, length := r.Count, r.Length
	if count <= 0 {
		count = 10
	}
	if length <= 0 {
		length = time.Second
	}
	sides := [2]*Side{a, b}
	c := &Comparison{Names: [2]string{a.Name, b.Name}, Load: Description{Clients: a.Session.load.Clients, Rate: a.Session.load.Rate}}
	runs := [2]*comparedSide{}
	for i, s := range sides {
		runs[i] = &comparedSide{Side: s, all: newRecord(time.Now())}
		runs[i].m = &measurement{s: s.Session, plan: (&Plan{Statistics: s.Statistics}).defaults()}
		runs[i].before = runs[i].m.statistics(ctx)
	}
	var err error
	for round := 0; round < count && ctx.Err() == nil && err == nil; round++ {
		var figures [2]Round
		for k := range 2 {
			i := (k + round) % 2
			figures[i], err = runs[i].round(ctx, length)
			if err != nil || ctx.Err() != nil {
				break
			}
		}
		if err != nil || ctx.Err() != nil {
			break // an incomplete round has no ratio
		}
		for i := range 2 {
			c.Rounds[i] = append(c.Rounds[i], figures[i])
		}
		if r.Progress != nil {
			r.Progress(round+1, &figures[0], &figures[1])
		}
	}
	for i := range 2 {
		c.Sides[i] = runs[i].result(ctx)
	}
	c.Ratios = ratios(c.Rounds)
	return c, err
}

// comparedSide is a side under comparison.
type comparedSide struct {
	*Side
	m      *measurement
	all    *record
	before []infer.Statistics
	cpu    time.Duration
	points []Point
}

// round measures one round.
func (s *comparedSide) round(ctx context.Context, length time.Duration) (Round, error) {
	if err := s.Session.begin(); err != nil {
		return Round{}, err
	}
	cpu := cpuTime()
	w := &window{record: newRecord(time.Now())}
	err := s.m.fill(ctx, w, length/5, 0, true)
	if err == nil && ctx.Err() == nil {
		w = &window{record: newRecord(time.Now())}
		err = s.m.fill(ctx, w, length, longWindow*length, true) // longer while it has few responses
	}
	if ctx.Err() != nil {
		s.Session.Interrupt()
	}
	err = errors.Join(err, s.Session.end())
	s.cpu += cpuTime() - cpu
	s.all.add(w.record)
	p := w.summary()
	s.points = append(s.points, Point{At: s.all.elapsed.Seconds(), Throughput: w.rate(), P50: p.P50, P99: p.P99})
	return Round{Throughput: w.rate(), Mean: p.Mean, P50: p.P50, P99: p.P99, Failed: w.failed}, err
}

// result summarises all rounds.
func (s *comparedSide) result(ctx context.Context) *Result {
	r := &Result{
		Clients: s.Session.load.Clients, Rate: s.Session.load.Rate, Seconds: s.all.elapsed.Seconds(), Requests: s.all.latency.TotalCount(),
		Throughput: s.all.rate(), Latency: s.all.summary(), Failed: s.all.failed, Failures: s.all.kinds(), Quantiles: s.all.curve(), Points: s.points, Streamed: s.all.streamed(),
		Interrupted: ctx.Err() != nil, Steps: Steps(s.before, s.m.statistics(ctx)),
	}
	if r.Seconds > 0 {
		r.Cores = s.cpu.Seconds() / (r.Seconds * 1.2) // with the part that is not counted
	}
	return r
}

// ratios returns the ratios of the figures of two sides.
func ratios(rounds [2][]Round) []RatioOf {
	var list []RatioOf
	for _, f := range []struct {
		name  string
		value func(*Round) float64
	}{
		{"throughput", func(r *Round) float64 { return r.Throughput }},
		{"mean", func(r *Round) float64 { return r.Mean }},
		{"p50", func(r *Round) float64 { return r.P50 }},
		{"p99", func(r *Round) float64 { return r.P99 }},
	} {
		var a, b []float64
		for i := range rounds[0] {
			a, b = append(a, f.value(&rounds[0][i])), append(b, f.value(&rounds[1][i]))
		}
		if r, ok := PairedRatio(a, b); ok {
			list = append(list, RatioOf{Figure: f.name, Ratio: r})
		}
	}
	return list
}

// PairedRatio returns the ratio of paired positive values, a to b: the geometric mean of the pairs' ratios, and Student's
// confidence interval of 95 % of it, computed from the logarithms. It returns false for fewer than two pairs, and for values
// that are not positive.
func PairedRatio(a, b []float64) (Ratio, bool) {
	n := float64(len(a))
	if len(a) != len(b) || n < 2 {
		return Ratio{}, false
	}
	logs, mean := make([]float64, len(a)), 0.0
	for i := range a {
		if a[i] <= 0 || b[i] <= 0 {
			return Ratio{}, false
		}
		logs[i] = math.Log(a[i] / b[i])
		mean += logs[i] / n
	}
	squares := 0.0
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	half := studentT(len(a)-1) * math.Sqrt(squares/(n-1)/n)
	return Ratio{Value: math.Exp(mean), Low: math.Exp(mean - half), High: math.Exp(mean + half)}, true
}

// studentT returns the 0.975 quantile of Student's distribution with the given degrees of freedom: exactly for up to four, and
// by the expansion of Cornish and Fisher beyond, which is right to 0.1 % there.
func studentT(freedom int) float64 {
	exact := [...]float64{12.7062, 4.3027, 3.1824, 2.7764}
	if freedom <= len(exact) {
		return exact[max(freedom, 1)-1]
	}
	const z = 1.959964
	v := float64(freedom)
	z3, z5, z7 := z*z*z, z*z*z*z*z, z*z*z*z*z*z*z
	return z + (z3+z)/(4*v) + (5*z5+16*z3+3*z)/(96*v*v) + (3*z7+19*z5+17*z3-15*z)/(384*v*v*v)
}
