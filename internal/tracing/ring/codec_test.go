package ring //nolint:testpackage // the format is private

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

func record() *tracing.Record {
	return &tracing.Record{
		ID: tracing.TraceID{1, 2}, Span: tracing.SpanID{3}, Parent: tracing.SpanID{4}, Began: 1_700_000_000_000_000_000, BeganAt: 77_000,
		Model: "e", Version: -1, Request: "r", Ensemble: true, Failed: true, Captured: true, Code: status.Unavailable, Error: "full",
		Reason: status.DeadlineUnreachable, Cause: "m", Finish: time.Second, Deadline: 98_000, Predicted: 99_500,
		Forecasts: []tracing.Forecast{{Node: 1, Step: "first", End: 90_000}, {Node: 2, Step: "n", End: 99_500}},
		Moments:   []tracing.Moment{{Point: tracing.RequestStart, Ns: 76_000}, {Point: tracing.RequestEnd, Ns: 99_000}},
		Steps: []tracing.Step{
			{Span: tracing.SpanID{5}, Node: 1, After: -1, SubRun: 2, Model: "m", Version: 3, Cached: true, Ready: 78_000, Enqueued: 78_001, Done: 78_010},
			{Node: 2, After: 1, Model: "n", Single: true, Failed: true, Code: status.Internal, Ready: 80_000, Enqueued: 80_001, Done: 90_000, Execution: tracing.Execution{
				Start: 80_010, InputEnd: 80_020, InferEnd: 89_000, End: 89_900, Batch: 9, Instance: 1, Place: tensor.Place{Kind: tensor.Device, ID: 1}, Precision: "int8",
				Native: true, Rows: 1, BatchRows: 8, Members: 4, Elements: 100, Padding: 20, Before: 8, BeforeEnd: 80_005, Held: 80_006, Newest: 80_007,
				Device: telemetry.Times{Start: 80_030, InputEnd: 80_040, InferEnd: 90_100, End: 90_200},
			}},
		},
		Events: []tracing.Event{{Kind: tracing.EventCopy, At: 81_000, Duration: 900, Node: 2, Tensor: "X", Bytes: 1 << 20, To: tensor.Place{Kind: tensor.Device}, Reason: "device_step"}},
		Params: []tracing.Param{{Key: "tenant", Value: "t"}},
	}
}

func TestCodec(t *testing.T) {
	t.Parallel()
	want := record()
	b := appendRecord(nil, want)
	got, err := decodeRecord(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(tracing.Step{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i := range b {
		if _, err := decodeRecord(b[:i]); err == nil {
			t.Errorf("%d of %d bytes are a trace", i, len(b))
		}
	}
	want.Error = strings.Repeat("x", 1<<20)
	if n := len(appendRecord(nil, want)); n > 2000 {
		t.Errorf("a long error takes %d bytes", n)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(appendRecord(nil, record()))
	f.Fuzz(func(_ *testing.T, b []byte) {
		if r, err := decodeRecord(b); err == nil {
			inspect.NewTraceView(r, "")
		}
	})
}
