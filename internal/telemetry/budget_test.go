//go:build !race

package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// TestModelAllocBudget checks that counting does not allocate. It is not parallel: the runtime counts the
// allocations of all goroutines.
func TestModelAllocBudget(t *testing.T) {
	m := &telemetry.Model{}
	times := &telemetry.Times{Start: 1, InputEnd: 2, InferEnd: 4, End: 7}
	sums := &telemetry.Sums{Infer: 1}
	step := m.Steps([]string{"s"})[0]
	if got := testing.AllocsPerRun(100, func() {
		for _, rows := range []int{1, 63, 64, 500} {
			m.Queued(1)
			m.Executed(rows, times)
			m.Succeeded(rows, telemetry.Now(), times)
			m.SucceededSum(rows, 1, 2, sums)
			m.Failed(telemetry.Backend, 1)
			m.Refused(telemetry.QueueFull, 1)
			m.Slack(1_000_000)
			m.Predicted(2, 1)
			m.Due(telemetry.InTime)
			m.Padded(3, 1)
			step.Done(0, times)
		}
	}); got != 0 {
		t.Errorf("%v allocations, want none once every batch size was seen", got)
	}
}

// TestScrapeAllocBudget checks the allocations of scraping 1,000 models whose histograms are all used.
func TestScrapeAllocBudget(t *testing.T) {
	h, w := telemetry.Handler(crowd(), nil), &discard{header: http.Header{}}
	req := httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil)
	h.ServeHTTP(w, req)
	const most = 25_000 // a scrape that makes everything anew has 400,000
	if got := testing.AllocsPerRun(5, func() { h.ServeHTTP(w, req) }); got > most {
		t.Errorf("%v allocations, want at most %d", got, most)
	}
}
