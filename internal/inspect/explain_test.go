package inspect_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// record is a failed request to an ensemble: a step with a cached response, then one in a batch.
func record() *tracing.Record {
	return &tracing.Record{
		ID: tracing.TraceID{1, 2}, Span: tracing.SpanID{3}, Parent: tracing.SpanID{4}, Began: 1_700_000_000_000_000_000, BeganAt: 77_000,
		Model: "e", Version: -1, Request: "r", Ensemble: true, Failed: true, Captured: true, Code: status.Unavailable, Error: "full",
		Moments: []tracing.Moment{{Point: tracing.RequestStart, Ns: 76_000}, {Point: tracing.RequestEnd, Ns: 99_000}},
		Steps: []tracing.Step{
			{Span: tracing.SpanID{5}, Node: 1, After: -1, SubRun: 2, Model: "m", Version: 3, Cached: true, Ready: 78_000, Enqueued: 78_001, Done: 78_010},
			{Node: 2, After: 1, Model: "n", Single: true, Failed: true, Code: status.Internal, Ready: 80_000, Enqueued: 80_001, Done: 90_000, Execution: tracing.Execution{
				Start: 80_010, InputEnd: 80_020, InferEnd: 89_000, End: 89_900, Batch: 9, Instance: 1, Place: tensor.Place{Kind: tensor.Device, ID: 1},
				Native: true, Rows: 1, BatchRows: 8, Members: 4, Elements: 100, Padding: 20, Before: 8, BeforeEnd: 80_005, Held: 80_006, Newest: 80_007,
			}},
		},
		Events: []tracing.Event{{Kind: tracing.EventCopy, At: 81_000, Node: 2, Tensor: "X", Bytes: 1 << 20, To: tensor.Place{Kind: tensor.Device}, Reason: "device_step"}},
		Params: []tracing.Param{{Key: "tenant", Value: "t"}},
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := inspect.Explain(&b, inspect.NewTraceView(record(), "failed")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"e version -1, unavailable, 23µs, request \"r\"", "failed: full", "behind batch 8", "waiting for others", "padding of batch 9", "n computing batch 9 of 8 rows"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("expected %q in\n%s", want, b.String())
		}
	}
}

// TestExplainDeadline checks what is said of a deadline: the predictions, and which step did not run.
func TestExplainDeadline(t *testing.T) {
	t.Parallel()
	r := record()
	r.Deadline, r.Predicted, r.Reason, r.Cause, r.Finish = 90_000, 95_000, status.DeadlineUnreachable, "last", 1_500_000
	r.Forecasts = []tracing.Forecast{{Node: 1, Step: "first", End: 78_500}, {Node: 2, Step: "last", End: 95_000}}
	v := inspect.NewTraceView(r, "failed")
	want := &inspect.DueView{DeadlineNs: 14_000, PredictedNs: 19_000, EndNs: 23_000, Steps: []inspect.ForecastView{
		{Node: 1, Step: "first", PredictedNs: 2_500, EndNs: 2_010}, {Node: 2, Step: "last", PredictedNs: 19_000},
	}}
	if diff := cmp.Diff(want, v.Due); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if v.Reason != "DEADLINE_UNREACHABLE" || v.Step != "last" || v.FinishMs != 2 {
		t.Errorf("reason %q, step %q, predicted finish %d ms", v.Reason, v.Step, v.FinishMs)
	}
	var b bytes.Buffer
	if err := inspect.Explain(&b, v); err != nil {
		t.Fatal(err)
	}
	const lines = `  deadline: after 14µs, ended after 23µs, predicted on arrival: 19µs
  predicted: 'first' done after 2.5µs, done after 2.01µs
  predicted: 'last' done after 19µs, did not run
`
	if !strings.Contains(b.String(), lines) {
		t.Errorf("expected\n%s\nin\n%s", lines, b.String())
	}
}

// TestExplainConditions checks the lines of conditions, of which there are at most twenty.
func TestExplainConditions(t *testing.T) {
	t.Parallel()
	r := record()
	r.Events = append(r.Events,
		tracing.Event{Kind: tracing.EventChosen, At: 82_000, Node: 1, Reason: "'a' ran for 0 of 2 rows: x[0] > 1"},
		tracing.Event{Kind: tracing.EventSkipped, At: 82_001, Node: 2, Reason: "'a' did not run: x[0] > 1 holds for no row"})
	for range 20 {
		r.Events = append(r.Events, tracing.Event{Kind: tracing.EventSkipped, At: 82_002, Node: 3, Reason: "r"})
	}
	var b bytes.Buffer
	if err := inspect.Explain(&b, inspect.NewTraceView(r, "slow")); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "  condition: ")
	lines := strings.Split(got, "\n  condition: ")
	if len(lines) != 21 || lines[0] != "'a' ran for 0 of 2 rows: x[0] > 1" || lines[1] != "'a' did not run: x[0] > 1 holds for no row" || lines[20] != "2 more\n" {
		t.Errorf("%q", lines)
	}
}

// TestExplainFaults checks the lines of failures that were handled.
func TestExplainFaults(t *testing.T) {
	t.Parallel()
	r := record()
	r.Events = append(r.Events, tracing.Event{Kind: tracing.EventFault, At: 82_000, Node: 1, Reason: "'a' failed, its fallback 'b' runs: busy"})
	var b bytes.Buffer
	if err := inspect.Explain(&b, inspect.NewTraceView(r, "slow")); err != nil {
		t.Fatal(err)
	}
	if want := "  fault: 'a' failed, its fallback 'b' runs: busy\n"; !strings.Contains(b.String(), want) {
		t.Errorf("expected %q in\n%s", want, b.String())
	}
}

// TestExplainSpills checks the lines of spills, of which there are at most ten.
func TestExplainSpills(t *testing.T) {
	t.Parallel()
	r := record()
	spill := tracing.Event{
		Kind: tracing.EventSpill, At: 82_000, Node: 2, Tensor: "Y", Bytes: 64, From: tensor.Place{Kind: tensor.Device, ID: 1}, To: tensor.Place{Kind: tensor.Pinned}, Reason: "full",
	}
	own := spill
	own.Tensor, own.Node = "", -1
	r.Events = append(r.Events, spill, own)
	for range 11 {
		r.Events = append(r.Events, spill)
	}
	var b bytes.Buffer
	if err := inspect.Explain(&b, inspect.NewTraceView(r, "failed")); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "  spilled: ")
	lines := strings.Split(got, "\n  spilled: ")
	if len(lines) != 11 || lines[0] != "tensor 'Y' of n, 64 bytes, is at pinned instead of device:1: full" ||
		lines[1] != "memory of e, 64 bytes, is at pinned instead of device:1: full" || lines[10] != "3 more\n" {
		t.Errorf("%q", lines)
	}
}
