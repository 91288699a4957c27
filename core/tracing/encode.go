package tracing

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
)

// encode appends the members of the trace file's array that the trace is: the
// request's, then those of its steps.
func (t *Trace) encode(b []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.rec
	moments := slices.Clone(r.Moments)
	for i := range r.Steps {
		if r.Steps[i].Own {
			moments = r.Steps[i].moments(moments)
		}
	}
	b = appendMember(b, r.Number, 0, r.Model, r.Version, r.Request, moments)
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Own {
			continue
		}
		moments = append(s.moments(append(moments[:0], Moment{RequestStart, s.Enqueued})), Moment{RequestEnd, s.Done})
		b = appendMember(append(b, ','), s.Number, r.Number, s.Model, s.Version, r.Request, moments)
	}
	return b
}

// moments appends what the step has passed. One that failed may not have come further
// than the queue, one whose answer was kept never came further.
func (s *Step) moments(list []Moment) []Moment {
	list = append(list, Moment{QueueStart, s.Enqueued})
	if s.Failed || s.Cached {
		return list
	}
	return append(list, Moment{ComputeStart, s.Start}, Moment{ComputeInputEnd, s.InputEnd}, Moment{ComputeOutputStart, s.InferEnd}, Moment{ComputeEnd, s.End})
}

// appendMember appends a member that says whose trace it is and one per moment, in
// order: what happened is not always recorded at once.
func appendMember(b []byte, id, parent uint64, model string, version int64, request string, moments []Moment) []byte {
	b = strconv.AppendUint(append(b, `{"id":`...), id, 10)
	b = appendString(append(b, `,"model_name":`...), model)
	b = strconv.AppendInt(append(b, `,"model_version":`...), version, 10)
	if request != "" {
		b = appendString(append(b, `,"request_id":`...), request)
	}
	if parent != 0 {
		b = strconv.AppendUint(append(b, `,"parent_id":`...), parent, 10)
	}
	b = append(b, '}')
	slices.SortStableFunc(moments, func(a, b Moment) int { return cmp.Or(cmp.Compare(a.Ns, b.Ns), cmp.Compare(a.Point, b.Point)) })
	for _, m := range moments {
		b = strconv.AppendUint(append(b, `,{"id":`...), id, 10)
		b = appendString(append(b, `,"timestamps":[{"name":`...), m.Point.String())
		b = strconv.AppendInt(append(b, `,"ns":`...), m.Ns, 10)
		b = append(b, `}]}`...)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	j, _ := json.Marshal(s) // a string always has a JSON form
	return append(b, j...)
}
