package overview //nolint:testpackage // the test drives the private samples second by second

import (
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
)

// totals are models with counters that the test sets.
type totals struct{ list []inspect.Counters }

func (c *totals) Counters() []inspect.Counters { return c.list }
func (*totals) Index(bool) []infer.Entry       { return nil }
func (*totals) Opened() []infer.Entry          { return nil }
func (*totals) Platform(name, _ string) string {
	if name == "pipe" {
		return "ensemble"
	}
	return "native"
}
func (*totals) Graph(string, int64) (*inspect.GraphView, error) { return nil, nil } //nolint:nilnil // the test has no graph

// TestExecutions checks the counts of intervals within, at the ends of and outside of the samples. Model m executes two batches in each
// second from the first on, model n three from the third second on, when it is loaded.
func TestExecutions(t *testing.T) {
	t.Parallel()
	c := &totals{}
	w := &Window{set: Settings{Models: c}, versions: map[versionKey]*samples{}}
	for second := 1; second <= 100; second++ {
		n := uint64(second)
		c.list = []inspect.Counters{{Name: "m", Version: 1, Requests: n, Executions: 2 * n}, {Name: "pipe", Version: 1, Requests: n, Executions: n}}
		if second >= 60 {
			c.list = append(c.list, inspect.Counters{Name: "n", Version: 1, Requests: n, Executions: 3 * (n - 59)})
		}
		w.sample()
		w.times[w.second%windowSize] = int64(second) * 1e6
	}
	for _, tt := range []struct {
		from, to int64
		models   []string
		wantFrom int64
		wantTo   int64
		want     uint64
		ok       bool
	}{
		{45e6, 50e6, nil, 45e6, 50e6, 10, true},
		{45.5e6, 49.5e6, nil, 45e6, 50e6, 10, true},
		{58.5e6, 61e6, nil, 58e6, 61e6, 6 + 6, true},
		{58.5e6, 61e6, []string{"n"}, 58e6, 61e6, 6, true},
		{58.5e6, 61e6, []string{"pipe", "none"}, 58e6, 61e6, 0, true},
		{99.2e6, 100.7e6, []string{"m"}, 99e6, 100e6, 2, true}, // the next sample is not taken yet
		{1e6, 41e6, []string{"m"}, 40e6, 41e6, 2, true},        // the older samples are replaced
		{100.2e6, 100.7e6, nil, 0, 0, 0, false},
		{1e6, 2e6, nil, 0, 0, 0, false},
	} {
		from, to, got, ok := w.Executions(tt.from, tt.to, tt.models)
		if from != tt.wantFrom || to != tt.wantTo || got != tt.want || ok != tt.ok {
			t.Errorf("%d to %d of %v: %d to %d, %d %v, want %+v", tt.from, tt.to, tt.models, from, to, got, ok, tt)
		}
	}
}
