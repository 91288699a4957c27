package load_test

import (
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	upTo := func(n int) []time.Duration {
		all := make([]time.Duration, n)
		for i := range all {
			all[i] = time.Duration(i + 1)
		}
		return all
	}
	for _, tt := range []struct {
		name   string
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{"nothing", nil, 0.5, 0},
		{"one", upTo(1), 0.999, 1},
		{"the lower of two", upTo(2), 0.5, 1},
		{"the middle of three", upTo(3), 0.5, 2},
		{"half of a hundred", upTo(100), 0.5, 50},
		{"99 of a hundred", upTo(100), 0.99, 99},
		{"more than 99 of a hundred", upTo(100), 0.999, 100},
		{"999 of a thousand, which no float has", upTo(1000), 0.999, 999},
		{"none", upTo(10), 0, 1},
		{"all", upTo(10), 1, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := load.Percentile(tt.sorted, tt.q); got != tt.want {
				t.Errorf("Percentile(%v) = %d, want %d", tt.q, got, tt.want)
			}
		})
	}
}

func TestResult(t *testing.T) {
	t.Parallel()
	r := load.NewResult([]time.Duration{4, 1, 3, 2}, 2*time.Second)
	if r.Requests != 4 || r.Throughput != 2 || r.Mean != 2 || r.P50 != 2 || r.P99 != 4 || r.P999 != 4 {
		t.Errorf("unexpected result %+v", r)
	}
	if r := load.NewResult(nil, time.Second); r.Requests != 0 || r.Throughput != 0 {
		t.Errorf("unexpected result of nothing %+v", r)
	}
}
