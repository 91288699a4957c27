package tracing_test

import (
	"errors"
	"testing"

	"tutti/core/tracing"
)

// counted counts what a sink is shown.
type counted struct{ traces, failed, chosen int }

func (c *counted) Trace(t *tracing.Trace) {
	c.traces++
	if t.Record().Failed {
		c.failed++
	}
	if t.Chosen() {
		c.chosen++
	}
}

func (*counted) Batch(*tracing.Batch) {}

// TestQuota bounds what is traced for a sink alone, but not what the settings choose,
// nor failures.
func TestQuota(t *testing.T) {
	t.Parallel()
	c := &counted{}
	tr, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{c}, All: true, AtMost: 1})
	must(t, err)
	if !tr.On() {
		t.Error("nothing is traced")
	}
	trace(tr, "m", 60)
	if c.traces != 2 { // of the first stretch, and that which found it over
		t.Errorf("%d requests are traced, expected 2", c.traces)
	}
	tr.Missed("m", 1, "id", 1, &tracing.Origin{}, errors.New("gone"))
	if c.traces != 3 || c.failed != 1 {
		t.Errorf("a failure is not seen: %+v", c)
	}
	must(t, tr.Close())
	tr.Missed("m", 1, "id", 1, &tracing.Origin{}, errors.New("gone"))
	if got := trace(tr, "m", 100); c.traces != 3 {
		t.Errorf("a closed tracer traces: %s", got)
	}
}
