package sim_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/tutti-server/tutti/scheduler/sim"
)

// variation returns the coefficient of variation of the gaps between arrivals.
func variation(a sim.Arrivals) float64 {
	sum, squares := 0.0, 0.0
	for i := 1; i < len(a); i++ {
		gap := (a[i] - a[i-1]).Seconds()
		sum, squares = sum+gap, squares+gap*gap
	}
	n := float64(len(a) - 1)
	return math.Sqrt(squares/n-sum*sum/n/n) / (sum / n)
}

// TestArrivals checks the mean rate and the variation of each kind of arrivals, and that equal seeds give equal arrivals.
func TestArrivals(t *testing.T) {
	t.Parallel()
	const rate, length = 200, 20 * time.Minute
	for _, tt := range []struct {
		name string
		make func(seed uint64) sim.Arrivals
		cv   float64 // of the gaps
		near float64
	}{
		{"poisson", func(seed uint64) sim.Arrivals { return sim.Poisson(rate, length, seed) }, 1, 0.02},
		{"gamma 2", func(seed uint64) sim.Arrivals { return sim.Gamma(rate, 2, length, seed) }, 2, 0.05},
		{"gamma 4", func(seed uint64) sim.Arrivals { return sim.Gamma(rate, 4, length, seed) }, 4, 0.2},
		{"gamma 8", func(seed uint64) sim.Arrivals { return sim.Gamma(rate, 8, length, seed) }, 8, 0.6},
		{"twitter", func(seed uint64) sim.Arrivals { return sim.Twitter(rate, length, seed) }, 1.05, 0.05},
		{"rates", func(seed uint64) sim.Arrivals {
			return sim.Rates(slices.Repeat([]float64{rate}, int(length.Seconds())), seed)
		}, 1, 0.02},
	} {
		a := tt.make(1)
		if got := variation(a); math.Abs(got-tt.cv) > tt.near {
			t.Errorf("%s: the gaps have a variation of %.2f, expected %.2f", tt.name, got, tt.cv)
		}
		if got := a.Rate(); math.Abs(got/rate-1) > 0.06 {
			t.Errorf("%s: %.0f arrivals per second, expected %d", tt.name, got, rate)
		}
		if !slices.IsSorted(a) || !slices.Equal(a, tt.make(1)) || slices.Equal(a, tt.make(2)) {
			t.Errorf("%s: arrivals are not in order, or do not depend on the seed alone", tt.name)
		}
	}
}

// TestScale checks that scaled arrivals begin at 0 and have the rate.
func TestScale(t *testing.T) {
	t.Parallel()
	a := sim.Arrivals{time.Second, 2 * time.Second, 5 * time.Second}
	if got := a.Scale(1); a.Rate() != 0.5 || !slices.Equal(got, sim.Arrivals{0, time.Second / 2, 2 * time.Second}) {
		t.Errorf("%v at %v per second, scaled to 1 per second: %v", a, a.Rate(), got)
	}
	if one := (sim.Arrivals{time.Second}); one.Rate() != 0 || !slices.Equal(one.Scale(3), sim.Arrivals{0}) {
		t.Errorf("one arrival: rate %v, scaled %v", one.Rate(), one.Scale(3))
	}
}
