package tracing_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/tracing"
)

// kept keeps what a sink is shown.
type kept struct{ list []tracing.Record }

func (k *kept) Trace(t *tracing.Trace) {
	var r tracing.Record
	t.Record().CopyTo(&r)
	k.list = append(k.list, r)
}

func (*kept) Batch(*tracing.Batch) {}

// TestRefused checks that sinks receive requests that no model accepted, with their origin.
func TestRefused(t *testing.T) {
	t.Parallel()
	k := &kept{}
	tr, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{k}, All: true})
	must(t, err)
	read := tr.Begin()
	read.End()
	o := tracing.Origin{Read: read, Start: tracing.HTTPRecvStart, Done: tracing.HTTPRecvEnd}
	o.Follow("00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01", "")
	tr.RecordRefusal("gho\xffst"+strings.Repeat("x", 1000), 0, "id", &o, errors.New("unknown"))
	off := tracing.Origin{}
	tr.RecordRefusal("off", 0, "id", &off, errors.New("unknown"))
	(*tracing.Tracer)(nil).RecordRefusal("nil", 0, "id", &o, errors.New("unknown"))
	must(t, tr.Close())
	tr.RecordRefusal("closed", 0, "id", &o, errors.New("unknown"))
	if len(k.list) != 1 {
		t.Fatalf("%d traces, expected 1", len(k.list))
	}
	r := &k.list[0]
	start, end := r.Bounds()
	if r.Error != "unknown" || !r.Failed || r.Request != "id" || r.ID.String() != "0102030405060708090a0b0c0d0e0f10" ||
		!strings.HasPrefix(r.Model, "gho\ufffdst") || len(r.Model) > 300 || start != read.Began || end != read.Ended {
		t.Errorf("%+v", r)
	}
	want := []tracing.Moment{{Point: tracing.HTTPRecvStart, Ns: read.Began}, {Point: tracing.HTTPRecvEnd, Ns: read.Ended}}
	if diff := cmp.Diff(want, r.Moments); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, p := range tracing.Split(r) {
		if p.Kind != tracing.PartReceive {
			t.Errorf("the time went into %s", p.Kind)
		}
	}
}
