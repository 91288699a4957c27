package tutti

import (
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/infer"
)

// TestDegradedSince checks that a part is degraded since it was found so first, whatever its reason, and anew after it was sound.
func TestDegradedSince(t *testing.T) {
	t.Parallel()
	var g guard
	at := func(s int) time.Time { return time.Date(2026, 1, 1, 0, 0, s, 0, time.UTC) }
	part := func(reason string) []infer.Degradation {
		return []infer.Degradation{{What: "model", Name: "m", Reason: reason}}
	}
	for _, step := range []struct {
		list []infer.Degradation
		now  int
		want time.Time
	}{
		{part("a"), 1, at(1)},
		{part("b"), 2, at(1)},
		{nil, 3, time.Time{}},
		{part("a"), 4, at(4)},
		{[]infer.Degradation{{What: "model", Name: "m", Reason: "stuck", Since: at(2)}}, 5, at(2)},
		{[]infer.Degradation{{What: "model", Name: "m", Reason: "stuck", Since: at(3)}}, 6, at(2)},
		{[]infer.Degradation{{What: "memory", Reason: "full"}}, 7, at(7)},
		{part("a"), 8, at(8)},
	} {
		list := g.date(step.list, at(step.now))
		if len(list) != len(step.list) || len(list) > 0 && !list[0].Since.Equal(step.want) {
			t.Errorf("at %d: %+v, want since %v", step.now, list, step.want)
		}
	}
}
