package tracing

import "github.com/tutti-server/tutti/internal/telemetry"

// Report records a named event that a step's model reports. In ModeOpenTelemetry NAME_START opens a span NAME and
// NAME_END closes it.
//
// hot: nothing when the request is not traced.
func (t *Trace) Report(node int32, name string) {
	if t != nil {
		t.Event(&Event{Kind: EventReport, At: telemetry.Now(), Node: node, Reason: name})
	}
}

// Reports calls f with the name and the time of each report of a step's model, in order.
func (r *Record) Reports(s *Step, f func(name string, at int64)) {
	for i := range r.Events {
		// An event has a node, not a sub-run: the time selects the sub-run.
		if e := &r.Events[i]; e.Kind == EventReport && e.Node == s.Node && e.At >= s.Ready && e.At <= s.Done {
			f(e.Reason, e.At)
		}
	}
}

// reported appends the reports of a step's model.
func (r *Record) reported(list []entry, s *Step) []entry {
	r.Reports(s, func(name string, at int64) {
		list = append(list, entry{Moment: Moment{ComputeStart, at}, name: name})
	})
	return list
}
