package tracing

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/internal/jsontext"
)

// encode appends the trace's members of the trace file's array: the request, then its steps.
func (t *Trace) encode(b []byte) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.rec
	entries := make([]entry, 0, 32)
	for _, m := range r.Moments {
		entries = append(entries, entry{Moment: m})
	}
	var own *Step
	for i := range r.Steps {
		if r.Steps[i].Single {
			own = &r.Steps[i]
			entries = r.reported(own.entries(entries), own)
		}
	}
	b = t.appendMember(b, r.Number, 0, r.Model, r.Version, t.tensors(entries, -1, 0, own))
	for i := range r.Steps {
		s := &r.Steps[i]
		if s.Single {
			continue
		}
		entries = append(s.entries(append(entries[:0], entry{Moment: Moment{RequestStart, s.Enqueued}})), entry{Moment: Moment{RequestEnd, s.Done}})
		entries = r.reported(entries, s)
		b = t.appendMember(append(b, ','), s.Number, r.Number, s.Model, s.Version, t.tensors(entries, s.Node, s.SubRun, s))
	}
	return b
}

// entry is one line of a member: a moment, a report or a tensor.
type entry struct {
	Moment
	what   Activity
	tensor []byte // its JSON, nil for a moment
	name   string // of a report, empty for a point
}

// entries appends the moments of a step. A failed or cached step has only its queue start.
func (s *Step) entries(list []entry) []entry {
	list = append(list, entry{Moment: Moment{QueueStart, s.Enqueued}})
	if s.Failed || s.Cached {
		return list
	}
	for _, m := range [...]Moment{{ComputeStart, s.Start}, {ComputeInputEnd, s.InputEnd}, {ComputeOutputStart, s.InferEnd}, {ComputeEnd, s.End}} {
		list = append(list, entry{Moment: m})
	}
	return list
}

// tensors appends the tensors of a step, or of the request for node -1, to list. s is the executed step, if there
// is exactly one. Moments are removed unless the level includes them.
func (t *Trace) tensors(list []entry, node, subRun int32, s *Step) []entry {
	if t.set.level&timestamps == 0 {
		list = list[:0]
	}
	for i := range t.seen {
		x := &t.seen[i]
		switch {
		case x.node != node || x.subRun != subRun:
		case x.output:
			list = append(list, entry{Moment: Moment{ComputeOutputStart, x.at}, what: TensorBackendOutput, tensor: x.text})
		default:
			queued := x.at
			if s != nil {
				queued = max(queued, s.Enqueued)
			}
			list = append(list, entry{Moment: Moment{QueueStart, queued}, what: TensorQueueInput, tensor: x.text})
			if s != nil && !s.Failed && !s.Cached {
				list = append(list, entry{Moment: Moment{ComputeInputEnd, s.InputEnd}, what: TensorBackendInput, tensor: x.text})
			}
		}
	}
	return list
}

// appendMember appends a member with its ids and one object per entry, sorted by time: events are not always
// recorded in order.
func (t *Trace) appendMember(b []byte, id, parent uint64, model string, version int64, entries []entry) []byte {
	b = strconv.AppendUint(append(b, `{"id":`...), id, 10)
	b = jsontext.AppendValid(append(b, `,"model_name":`...), model)
	b = strconv.AppendInt(append(b, `,"model_version":`...), version, 10)
	if t.rec.Request != "" {
		b = jsontext.AppendValid(append(b, `,"request_id":`...), t.rec.Request)
	}
	if parent != 0 {
		b = strconv.AppendUint(append(b, `,"parent_id":`...), parent, 10)
	}
	b = append(b, '}')
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Or(cmp.Compare(a.Ns, b.Ns), cmp.Compare(a.Point, b.Point)) })
	for i := range entries {
		m := &entries[i]
		b = strconv.AppendUint(append(b, `,{"id":`...), id, 10)
		if m.tensor != nil {
			b = append(append(append(b, `,"activity":"`...), m.what.String()...), `","tensor":`...)
			b = append(append(b, m.tensor...), '}')
			continue
		}
		b = jsontext.AppendValid(append(b, `,"timestamps":[{"name":`...), cmp.Or(m.name, m.Point.String()))
		b = strconv.AppendInt(append(b, `,"ns":`...), m.Ns, 10)
		b = append(b, `}]}`...)
	}
	return b
}
