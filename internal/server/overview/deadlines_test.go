package overview //nolint:testpackage // the test drives the private samples second by second

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// counted are models of which only the counters matter.
type counted struct{ list []inspect.Counters }

func (c *counted) Counters() []inspect.Counters                  { return c.list }
func (*counted) Index(bool) []infer.Entry                        { return []infer.Entry{{Name: "m", Version: "1"}} }
func (c *counted) Opened() []infer.Entry                         { return c.Index(false) }
func (*counted) Platform(string, string) string                  { return "ensemble" }
func (*counted) Graph(string, int64) (*inspect.GraphView, error) { return &inspect.GraphView{}, nil }

// TestDeadlineRates checks the rates of requests with deadlines by outcome, and of refusals by reason.
func TestDeadlineRates(t *testing.T) {
	t.Parallel()
	var m telemetry.Model
	models := &counted{list: []inspect.Counters{{Name: "m", Version: 1}}}
	w := &Window{set: Settings{Models: models}, versions: map[versionKey]*samples{}}
	sample := func() {
		c := &models.list[0]
		c.Requests++
		c.Outcomes, c.Refusals = m.Outcomes(), m.Refusals()
		w.sample()
	}
	if sample(); w.Models()[0].Due != nil || w.Models()[0].Refused != nil {
		t.Errorf("before the first request with a deadline: %+v", w.Models()[0])
	}
	for range 2 {
		for o, n := range map[telemetry.Outcome]int{telemetry.InTime: 3, telemetry.Late: 1, telemetry.Refused: 2} {
			for range n {
				m.Due(o)
			}
		}
		m.Refused(telemetry.DeadlineMissed, 0)
		m.Refused(telemetry.DeadlineMissed, 0)
		sample()
	}
	sample()
	got := w.Models()[0]
	want := &inspect.OutcomesView{InTime: 6. / 4, Late: 2. / 4, Refused: 4. / 4, InTimes: []float64{0, 3, 3, 0}}
	if diff := cmp.Diff(want, got.Due); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]float64{"deadline_predicted": 1}, got.Refused); diff != "" {
		t.Errorf("refusals (-want +got):\n%s", diff)
	}
}
