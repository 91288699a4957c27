package tracing_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/tracing"
)

// counted counts what a sink is shown.
type counted struct{ traces, failed, chosen, retained int }

func (c *counted) Trace(t *tracing.Trace) {
	c.traces++
	if t.Record().Failed {
		c.failed++
	}
	if t.Sampled() {
		c.chosen++
	}
	if t.Record().Retain {
		c.retained++
	}
}

func (*counted) Batch(*tracing.Batch) {}

// TestQuota checks that the quota limits requests traced only for sinks, but neither sampled requests nor failures.
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
	x := tr.Failure("m", 1, "id", &tracing.Origin{})
	x.Fail(errors.New("gone"))
	x.End()
	if c.traces != 3 || c.failed != 1 {
		t.Errorf("a failure is not seen: %+v", c)
	}
	must(t, tr.Close())
	if tr.Failure("m", 1, "id", &tracing.Origin{}) != nil {
		t.Error("a closed tracer records a failure")
	}
	if got := trace(tr, "m", 100); c.traces != 3 {
		t.Errorf("a closed tracer traces: %s", got)
	}
}

// TestRetained checks that requested traces exceed the quota, up to maxRetained.
func TestRetained(t *testing.T) {
	t.Parallel()
	c := &counted{}
	tr, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{c}, All: true, AtMost: 1})
	must(t, err)
	trace(tr, "m", 60) // more than the quota
	before, began := *c, time.Now()
	o := &tracing.Origin{Retain: true}
	if x := tr.SampleFrom("m", 1, "id", o); x == nil || x.Sampled() {
		t.Error("the trace that a client asks for is not made")
	} else {
		x.End()
	}
	if c.traces != before.traces+1 || c.retained != 1 {
		t.Errorf("%+v after %+v", c, before)
	}
	for range 10_000 {
		if x := tr.SampleFrom("m", 1, "id", o); x != nil {
			x.End()
		}
	}
	const most = 20 // at once, and in each second
	if bound := most + int(time.Since(began).Seconds()*most) + 1; c.retained < most || c.retained > bound {
		t.Errorf("%d traces are retained, expected %d to %d", c.retained, most, bound)
	}
	must(t, tr.Close())
	if x := tr.SampleFrom("m", 1, "id", o); x != nil {
		t.Error("a closed tracer traces")
	}
}
