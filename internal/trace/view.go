package trace

import (
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// StatusOf is how a request ended, as the dashboard spells it.
func StatusOf(failed bool, c status.Code) string {
	if !failed {
		return "ok"
	}
	return strings.ReplaceAll(strings.ToLower(c.String()), " ", "_")
}

// unix returns the wall-clock time of a record's moment in microseconds.
func unix(r *tracing.Record, ns int64) int64 { return (r.Began + ns - r.BeganAt) / 1000 }

// Summary is the line about a record that was kept for a reason.
func Summary(r *tracing.Record, kept string) inspect.TraceSummary {
	start, end := r.Bounds()
	return inspect.TraceSummary{
		ID: r.ID.String(), Span: r.Span.String(), Request: r.Request, Model: r.Model, Version: r.Version, Ensemble: r.Ensemble,
		StartUs: unix(r, start), DurationNs: end - start, Status: StatusOf(r.Failed, r.Code), Error: r.Error, Kept: kept, Steps: len(r.Steps), Captured: r.Captured,
	}
}

// View is all of a record. Batches, those that its steps were in, are left to whoever
// knows them.
func View(r *tracing.Record, kept string) *inspect.TraceView {
	start, _ := r.Bounds()
	v := &inspect.TraceView{
		TraceSummary: Summary(r, kept),
		Params:       []inspect.ParamView{}, Moments: []inspect.MomentView{}, Spans: []inspect.StepView{}, Events: []inspect.EventView{},
		Split: Parts(r), Mates: []inspect.BatchSummary{},
	}
	if r.Parent != (tracing.SpanID{}) {
		v.Parent = r.Parent.String()
	}
	for _, p := range r.Params {
		v.Params = append(v.Params, inspect.ParamView{Key: p.Key, Value: p.Value})
	}
	for _, m := range r.Moments {
		v.Moments = append(v.Moments, inspect.MomentView{Name: m.Point.String(), Ns: m.Ns - start})
	}
	critical := tracing.CriticalSteps(r)
	for i := range r.Steps {
		s := stepView(&r.Steps[i], start)
		s.Critical = slices.Contains(critical, i)
		v.Spans = append(v.Spans, s)
	}
	for i := range r.Events {
		v.Events = append(v.Events, eventView(&r.Events[i], start))
	}
	return v
}

func stepView(s *tracing.Step, start int64) inspect.StepView {
	v := inspect.StepView{
		Span: s.Span.String(), Node: s.Node, After: s.After, Wave: s.Wave, Model: s.Model, Version: s.Version,
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

func eventView(e *tracing.Event, start int64) inspect.EventView {
	v := inspect.EventView{Kind: e.Kind.String(), Ns: e.At - start, Node: e.Node, Tensor: e.Tensor, Bytes: e.Bytes, Reason: e.Reason}
	if e.Kind == tracing.EventCopy {
		v.From, v.To = e.From.String(), e.To.String()
	}
	return v
}

// Parts is what a record's time went into.
func Parts(r *tracing.Record) []inspect.PartView {
	start, _ := r.Bounds()
	list := []inspect.PartView{}
	for _, p := range tracing.Split(r) {
		v := inspect.PartView{Kind: p.Kind.String(), Node: -1, Batch: p.Batch, StartNs: p.From - start, Ns: p.To - p.From}
		if p.Step >= 0 {
			v.Node, v.Model = r.Steps[p.Step].Node, r.Steps[p.Step].Model
		}
		v.Text = sentence(r, &p)
		list = append(list, v)
	}
	return list
}

// sentence says in words what a part is.
func sentence(r *tracing.Record, p *tracing.Part) string {
	if p.Step < 0 {
		switch p.Kind { //nolint:exhaustive // the others have a step
		case tracing.PartReceive:
			return "reading and decoding the request"
		case tracing.PartEncode:
			return "encoding and sending the answer"
		}
		return "in the server itself"
	}
	s := &r.Steps[p.Step]
	switch p.Kind { //nolint:exhaustive // the others have no step
	case tracing.PartLimit:
		return "waiting for a place among the requests in flight of " + s.Model
	case tracing.PartQueue:
		if p.Batch == 0 {
			return "in the queue of " + s.Model
		}
		return "in the queue of " + s.Model + " behind batch " + strconv.FormatUint(p.Batch, 10)
	case tracing.PartMates:
		return "waiting for others to join the batch of " + s.Model
	case tracing.PartCopies:
		return "gathering, moving and scattering tensors of " + s.Model
	case tracing.PartPadding:
		return "computing the padding of batch " + strconv.FormatUint(p.Batch, 10) + " of " + s.Model
	case tracing.PartCompute, tracing.PartNative:
		return s.Model + " computing batch " + strconv.FormatUint(p.Batch, 10) + " of " + strconv.Itoa(int(s.BatchRows)) + " rows"
	case tracing.PartCache:
		return "looking up a kept answer of " + s.Model
	}
	return "in the server itself, at " + s.Model
}

// BatchViewOf is an executed batch; began is the wall-clock time at which
// telemetry.Now was 0.
func BatchViewOf(b *tracing.Batch, began int64) *inspect.BatchView {
	return &inspect.BatchView{
		BatchSummary: *BatchSummaryOf(b),
		StartUs:      (began + b.Start) / 1000, InputNs: b.InputEnd - b.Start, InferNs: b.InferEnd - b.InputEnd, OutputNs: b.End - b.InferEnd,
		Instance: b.Instance, Place: b.Place.String(), Elements: b.Elements, Padding: b.Padding,
		Before: b.Before, BeforeEndUs: (began + b.BeforeEnd) / 1000, Failed: b.Failed,
	}
}

// BatchSummaryOf is the line about a batch.
func BatchSummaryOf(b *tracing.Batch) *inspect.BatchSummary {
	s := &inspect.BatchSummary{ID: b.Batch, Model: b.Model, Version: b.Version, Rows: b.BatchRows, Members: b.Members, Traces: []string{}}
	for _, id := range b.Traces[:b.Known] {
		s.Traces = append(s.Traces, id.String())
	}
	return s
}
