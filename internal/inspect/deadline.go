package inspect

import (
	"cmp"
	"fmt"

	"github.com/tutti-server/tutti/internal/tracing"
)

// DueView is the deadline of a request, with what was predicted as it arrived. Predictions are for requests to ensembles whose steps the
// server knows.
type DueView struct {
	DeadlineNs  int64          `json:"deadline_ns"`
	PredictedNs int64          `json:"predicted_ns,omitempty"` // when the response was expected
	EndNs       int64          `json:"end_ns"`                 // when the response was complete, or the error
	Steps       []ForecastView `json:"steps"`
}

// ForecastView is when a step was expected to be done, and when it was; EndNs is absent for one that did not run.
type ForecastView struct {
	Node        int32  `json:"node"`
	Step        string `json:"step"`
	PredictedNs int64  `json:"predicted_ns"`
	EndNs       int64  `json:"end_ns,omitempty"`
}

// newDueView returns the view of a request's deadline, nil without one.
func newDueView(r *tracing.Record, start int64) *DueView {
	if r.Deadline == 0 {
		return nil
	}
	_, end := r.Bounds()
	v := &DueView{DeadlineNs: r.Deadline - start, EndNs: cmp.Or(r.Last(tracing.RequestEnd), end) - start, Steps: []ForecastView{}}
	if r.Predicted != 0 {
		v.PredictedNs = r.Predicted - start
	}
	for _, f := range r.Forecasts {
		x := ForecastView{Node: f.Node, Step: f.Step, PredictedNs: f.End - start}
		if end := r.Ended(f.Node); end != 0 {
			x.EndNs = end - start
		}
		v.Steps = append(v.Steps, x)
	}
	return v
}

// append appends a line for the deadline, and one for each prediction.
func (d *DueView) append(b []byte) []byte {
	b = fmt.Appendf(b, "  deadline: after %s, ended after %s", span(d.DeadlineNs), span(d.EndNs))
	if d.PredictedNs != 0 {
		b = fmt.Appendf(b, ", predicted on arrival: %s", span(d.PredictedNs))
	}
	b = append(b, '\n')
	for i := range d.Steps {
		s := &d.Steps[i]
		ended := "did not run"
		if s.EndNs != 0 {
			ended = "done after " + span(s.EndNs)
		}
		b = fmt.Appendf(b, "  predicted: '%s' done after %s, %s\n", s.Step, span(s.PredictedNs), ended)
	}
	return b
}
