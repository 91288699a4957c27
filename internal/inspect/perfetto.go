package inspect

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Perfetto writes a trace in Chrome's JSON format, which ui.perfetto.dev opens: a track for the
// request with the parts of its time, one for each step, and one for each instance that executed a step.
func Perfetto(w io.Writer, v *TraceView) error {
	p := &perfettoTrace{view: v, Unit: "ns", Other: map[string]string{
		"trace_id": v.ID, "model": v.Model, "version": strconv.FormatInt(v.Version, 10), "status": v.Status, "request_id": v.Request,
	}}
	p.process(requestTracks, fmt.Sprintf("%s %d, request", v.Model, v.Version))
	p.request()
	order := make([]int, len(v.Spans))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(v.Spans[a].begin(), v.Spans[b].begin()) })
	for n, i := range order {
		p.step(n+2, &v.Spans[i])
	}
	p.instances(order)
	return json.NewEncoder(w).Encode(p)
}

// The processes of a trace, by which viewers group tracks.
const (
	requestTracks = iota + 1
	instanceTracks
)

// perfettoTrace is a file of Chrome's format.
type perfettoTrace struct {
	Events []perfettoEvent   `json:"traceEvents"`
	Unit   string            `json:"displayTimeUnit"`
	Other  map[string]string `json:"otherData"`

	view *TraceView
}

// perfettoEvent is an event of Chrome's format: of phase X, a slice with a duration; I, an instant; or M, the name of a track. Times are
// microseconds.
type perfettoEvent struct {
	Name     string         `json:"name"`
	Category string         `json:"cat,omitempty"`
	Phase    string         `json:"ph"`
	At       float64        `json:"ts"`
	Duration *float64       `json:"dur,omitempty"`
	Process  int            `json:"pid"`
	Thread   int            `json:"tid"`
	Scope    string         `json:"s,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// micros returns the wall-clock time of an offset.
func (p *perfettoTrace) micros(ns int64) float64 { return float64(p.view.StartUs) + float64(ns)/1e3 }

func (p *perfettoTrace) process(pid int, name string) {
	p.Events = append(p.Events, perfettoEvent{Name: "process_name", Phase: "M", Process: pid, Args: map[string]any{"name": name}})
}

// track names a track; tracks of a process are in the order of their numbers.
func (p *perfettoTrace) track(pid, tid int, name string) {
	p.Events = append(
		p.Events,
		perfettoEvent{Name: "thread_name", Phase: "M", Process: pid, Thread: tid, Args: map[string]any{"name": name}},
		perfettoEvent{Name: "thread_sort_index", Phase: "M", Process: pid, Thread: tid, Args: map[string]any{"sort_index": tid}},
	)
}

// slice adds an interval of a track. One without a duration is left out.
func (p *perfettoTrace) slice(pid, tid int, category, name string, from, to int64, args map[string]any) {
	if to <= from {
		return
	}
	took := float64(to-from) / 1e3
	p.Events = append(p.Events, perfettoEvent{
		Name: name, Category: category, Phase: "X", At: p.micros(from), Duration: &took, Process: pid, Thread: tid, Args: args,
	})
}

// request adds the track of the request: the parts of its time inside of the whole.
func (p *perfettoTrace) request() {
	const tid = 1
	v := p.view
	p.track(requestTracks, tid, "request")
	args := map[string]any{"trace_id": v.ID, "span_id": v.Span, "status": v.Status, "request_id": v.Request}
	if v.Error != "" {
		args["error"] = v.Error
	}
	for _, x := range v.Params {
		args["parameter."+x.Key] = x.Value
	}
	p.slice(requestTracks, tid, "request", v.Model, 0, v.DurationNs, args)
	for _, x := range v.Split {
		p.slice(requestTracks, tid, x.Kind, x.Kind, x.StartNs, x.StartNs+x.Ns, map[string]any{"text": x.Text})
	}
	for _, m := range v.Moments {
		p.instant(tid, m.Name, m.Ns, nil)
	}
	for i := range v.Events {
		e := &v.Events[i]
		p.instant(tid, e.Kind, e.Ns, map[string]any{
			"node": e.Node, "tensor": e.Tensor, "bytes": e.Bytes, "duration_ns": e.DurationNs, "from": e.From, "to": e.To, "reason": e.Reason,
		})
	}
}

func (p *perfettoTrace) instant(tid int, name string, at int64, args map[string]any) {
	p.Events = append(p.Events, perfettoEvent{Name: name, Phase: "I", At: p.micros(at), Process: requestTracks, Thread: tid, Scope: "t", Args: args})
}

// begin returns when a step was ready to run.
func (s *StepView) begin() int64 { return cmp.Or(s.ReadyNs, s.EnqueuedNs) }

// step adds the track of a step: its queue and the phases of its execution inside of the whole.
func (p *perfettoTrace) step(tid int, s *StepView) {
	name := s.Model
	if s.SubRun > 0 {
		name = fmt.Sprintf("%s, sub-run %d", s.Model, s.SubRun)
	}
	p.track(requestTracks, tid, name)
	p.slice(requestTracks, tid, "step", s.Model, s.begin(), s.DoneNs, s.args())
	if s.Batch == 0 {
		return
	}
	p.slice(requestTracks, tid, "queue", "queue", s.EnqueuedNs, s.StartNs, nil)
	p.phases(requestTracks, tid, s)
}

// phases adds the phases of the execution of a step.
func (p *perfettoTrace) phases(pid, tid int, s *StepView) {
	p.slice(pid, tid, "copies", "input", s.StartNs, s.InputEndNs, nil)
	p.slice(pid, tid, "compute", "compute", s.InputEndNs, s.InferEndNs, nil)
	p.slice(pid, tid, "copies", "output", s.InferEndNs, s.EndNs, nil)
}

func (s *StepView) args() map[string]any {
	a := map[string]any{"span_id": s.Span, "node": s.Node, "version": s.Version, "status": s.Status, "critical": s.Critical, "cached": s.Cached}
	if s.Batch != 0 {
		a["batch"], a["rows"], a["batch_rows"], a["members"] = s.Batch, s.Rows, s.BatchRows, s.Members
		a["instance"], a["place"], a["padding"] = s.Instance, s.Place, s.Padding
	}
	return a
}

// instances adds a track for each instance, with the batches that it executed for the request: on a device when the device did.
func (p *perfettoTrace) instances(order []int) {
	tracks, seen := map[string]int{}, map[uint64]bool{}
	for _, i := range order {
		s := &p.view.Spans[i]
		if s.Batch == 0 || seen[s.Batch] {
			continue // several items of a fan-out may share a batch
		}
		seen[s.Batch] = true
		name := fmt.Sprintf("%s, instance %d on %s", s.Model, s.Instance, s.Place)
		tid, ok := tracks[name]
		if !ok {
			if len(tracks) == 0 {
				p.process(instanceTracks, "instances")
			}
			tid = len(tracks) + 1
			tracks[name] = tid
			p.track(instanceTracks, tid, name)
		}
		start, end := s.StartNs, s.EndNs
		if s.DeviceEndNs > 0 {
			start, end = s.DeviceStartNs, s.DeviceEndNs
		}
		p.slice(instanceTracks, tid, "batch", fmt.Sprintf("batch %d", s.Batch), start, end, map[string]any{"rows": s.BatchRows, "members": s.Members})
		if s.DeviceEndNs == 0 {
			p.phases(instanceTracks, tid, s)
		}
	}
}
