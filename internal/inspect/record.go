package inspect

import (
	"cmp"
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
		switch {
		case p.Step >= 0:
			s := &r.Steps[p.Step]
			text := cmp.Or(partTexts[p.Kind], "in the server itself, at %[1]s")
			if p.Kind == tracing.PartQueue && p.Batch == 0 {
				text = "in the queue of %[1]s"
			}
			v.Node, v.Model, v.Text = s.Node, s.Model, fmt.Sprintf(text, s.Model, p.Batch, s.BatchRows)
		case p.Kind == tracing.PartReceive:
			v.Text = "reading and decoding the request"
		case p.Kind == tracing.PartEncode:
			v.Text = "encoding and sending the response"
		}
		list = append(list, v)
	}
	return list
}

// partTexts describe the parts that belong to a step, by its model, the batch and the batch's rows.
var partTexts = map[tracing.PartKind]string{
	tracing.PartLimit:    "waiting for one of the requests in flight of %[1]s to end",
	tracing.PartQueue:    "in the queue of %[1]s behind batch %[2]d",
	tracing.PartBatching: "waiting for others to join the batch of %[1]s",
	tracing.PartCopies:   "gathering, copying and scattering tensors of %[1]s",
	tracing.PartPadding:  "computing the padding of batch %[2]d of %[1]s",
	tracing.PartCompute:  "%[1]s computing batch %[2]d of %[3]d rows",
	tracing.PartNative:   "%[1]s computing batch %[2]d of %[3]d rows",
	tracing.PartCache:    "looking up a cached response of %[1]s",
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
	b := fmt.Appendf(nil, "trace %s: %s version %d, %s, %s", v.ID, v.Model, v.Version, v.Status, span(v.DurationNs))
	if v.Request != "" {
		b = fmt.Appendf(b, ", request %q", v.Request)
	}
	b = append(b, '\n')
	if v.Error != "" {
		b = fmt.Appendf(b, "  failed: %s\n", v.Error)
	}
	for _, p := range v.Split {
		share := 0.0
		if v.DurationNs > 0 {
			share = float64(p.Ns) / float64(v.DurationNs)
		}
		b = fmt.Appendf(b, "%12s %5.1f%% %-10s %-9s %s\n", span(p.Ns), 100*share, strings.Repeat("#", int(10*share+0.5)), p.Kind, p.Text)
	}
	_, err := w.Write(b)
	return err
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
