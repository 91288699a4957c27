package inspect

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/tracing"
)

// StatusOf returns the status of a request or step as the views spell it: "ok", or the code
// in lower_snake_case, for example "deadline_exceeded".
func StatusOf(failed bool, c status.Code) string {
	if !failed {
		return "ok"
	}
	return strings.ReplaceAll(strings.ToLower(c.String()), " ", "_")
}

// NewTraceSummary returns the summary of a record. Retained is the reason for which the record was stored.
func NewTraceSummary(r *tracing.Record, retained string) TraceSummary {
	start, end := r.Bounds()
	return TraceSummary{
		ID: r.ID.String(), Span: r.Span.String(), Request: r.Request, Model: r.Model, Version: r.Version, Ensemble: r.Ensemble,
		StartUs: r.UnixMicro(start), DurationNs: end - start, Status: StatusOf(r.Failed, r.Code), Error: r.Error,
		Retained: retained, Steps: len(r.Steps), Captured: r.Captured,
	}
}

// NewTraceView returns the view of a record. Its Batches are empty: a record refers to its batches by number only.
func NewTraceView(r *tracing.Record, retained string) *TraceView {
	start, _ := r.Bounds()
	v := &TraceView{
		TraceSummary: NewTraceSummary(r, retained),
		Params:       append([]tracing.Param{}, r.Params...), Moments: []MomentView{}, Spans: []StepView{}, Events: []EventView{},
		Split: newPartViews(r, start), Batches: []BatchSummary{},
	}
	if r.Parent != (tracing.SpanID{}) {
		v.Parent = r.Parent.String()
	}
	for _, m := range r.Moments {
		v.Moments = append(v.Moments, MomentView{Name: m.Point.String(), Ns: m.Ns - start})
	}
	critical := tracing.CriticalSteps(r)
	for i := range r.Steps {
		s := newStepView(&r.Steps[i], start)
		s.Critical = slices.Contains(critical, i)
		v.Spans = append(v.Spans, s)
	}
	for i := range r.Events {
		e := &r.Events[i]
		x := EventView{Kind: e.Kind.String(), Ns: e.At - start, Node: e.Node, Tensor: e.Tensor, Bytes: e.Bytes, Reason: e.Reason}
		if e.Kind == tracing.EventCopy {
			x.From, x.To = e.From.String(), e.To.String()
		}
		v.Events = append(v.Events, x)
	}
	return v
}

func newStepView(s *tracing.Step, start int64) StepView {
	v := StepView{
		Span: s.Span.String(), Node: s.Node, After: s.After, SubRun: s.SubRun, Model: s.Model, Version: s.Version,
		Cached: s.Cached, Native: s.Native, Status: StatusOf(s.Failed, s.Code),
		ReadyNs: s.Ready - start, EnqueuedNs: s.Enqueued - start, DoneNs: s.Done - start,
		Batch: s.Batch, Rows: s.Rows, BatchRows: s.BatchRows, Members: s.Members, Elements: s.Elements, Padding: s.Padding,
		Instance: s.Instance, Place: s.Place.String(), Before: s.Before,
	}
	if s.Batch != 0 {
		v.StartNs, v.InputEndNs, v.InferEndNs, v.EndNs = s.Start-start, s.InputEnd-start, s.InferEnd-start, s.End-start
	}
	return v
}

func newPartViews(r *tracing.Record, start int64) []PartView {
	list := []PartView{}
	for _, p := range tracing.Split(r) {
		v := PartView{Kind: p.Kind.String(), Node: -1, Batch: p.Batch, StartNs: p.From - start, Ns: p.To - p.From, Text: "in the server itself"}
		if p.Step >= 0 {
			s := &r.Steps[p.Step]
			v.Node, v.Model, v.Text = s.Node, s.Model, stepText(&p, s)
		} else if p.Kind == tracing.PartReceive {
			v.Text = "reading and decoding the request"
		} else if p.Kind == tracing.PartEncode {
			v.Text = "encoding and sending the response"
		}
		list = append(list, v)
	}
	return list
}

func stepText(p *tracing.Part, s *tracing.Step) string {
	switch p.Kind { //nolint:exhaustive // the others have no step
	case tracing.PartLimit:
		return "waiting for one of the requests in flight of " + s.Model + " to end"
	case tracing.PartQueue:
		if p.Batch == 0 {
			return "in the queue of " + s.Model
		}
		return fmt.Sprintf("in the queue of %s behind batch %d", s.Model, p.Batch)
	case tracing.PartBatching:
		return "waiting for others to join the batch of " + s.Model
	case tracing.PartCopies:
		return "gathering, copying and scattering tensors of " + s.Model
	case tracing.PartPadding:
		return fmt.Sprintf("computing the padding of batch %d of %s", p.Batch, s.Model)
	case tracing.PartCompute, tracing.PartNative:
		return fmt.Sprintf("%s computing batch %d of %d rows", s.Model, p.Batch, s.BatchRows)
	case tracing.PartCache:
		return "looking up a cached response of " + s.Model
	}
	return "in the server itself, at " + s.Model
}

// NewBatchView returns the view of an executed batch. Epoch is the wall-clock time, in
// nanoseconds since 1970, at which telemetry.Now was 0.
func NewBatchView(b *tracing.Batch, epoch int64) *BatchView {
	return &BatchView{
		BatchSummary: NewBatchSummary(b),
		StartUs:      (epoch + b.Start) / 1000, InputNs: b.InputEnd - b.Start, InferNs: b.InferEnd - b.InputEnd, OutputNs: b.End - b.InferEnd,
		Instance: b.Instance, Place: b.Place.String(), Elements: b.Elements, Padding: b.Padding,
		Before: b.Before, BeforeEndUs: (epoch + b.BeforeEnd) / 1000, Failed: b.Failed,
	}
}

// NewBatchSummary returns the summary of an executed batch.
func NewBatchSummary(b *tracing.Batch) BatchSummary {
	s := BatchSummary{ID: b.Batch, Model: b.Model, Version: b.Version, Rows: b.BatchRows, Members: b.Members, Traces: []string{}}
	for _, id := range b.Traces[:b.Known] {
		s.Traces = append(s.Traces, id.String())
	}
	return s
}

// Explain writes the parts of a request's duration and marks the largest.
func Explain(w io.Writer, v *TraceView) error {
	head := fmt.Sprintf("trace %s: %s version %d, %s, %s", v.ID, v.Model, v.Version, v.Status, span(v.DurationNs))
	if v.Request != "" {
		head += fmt.Sprintf(", request %q", v.Request)
	}
	if _, err := fmt.Fprintln(w, head); err != nil {
		return err
	}
	if v.Error != "" {
		if _, err := fmt.Fprintf(w, "  failed: %s\n", v.Error); err != nil {
			return err
		}
	}
	for _, p := range v.Split {
		share := 0.0
		if v.DurationNs > 0 {
			share = float64(p.Ns) / float64(v.DurationNs)
		}
		if _, err := fmt.Fprintf(w, "%12s %5.1f%% %-10s %-9s %s\n", span(p.Ns), 100*share, strings.Repeat("#", int(10*share+0.5)), p.Kind, p.Text); err != nil {
			return err
		}
	}
	return nil
}

func span(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Second:
		return d.Round(time.Millisecond).String()
	case d >= time.Millisecond:
		return d.Round(time.Microsecond).String()
	default:
		return d.Round(10 * time.Nanosecond).String()
	}
}
