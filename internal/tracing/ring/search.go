package ring

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Bounds of a page of traces.
const (
	defaultLimit = 50
	maxLimit     = 1000
)

// found is a trace that matches a query.
type found struct {
	seq     uint64
	summary inspect.TraceSummary
}

// Traces implements inspect.Inspector.
func (s *Store) Traces(q *inspect.TraceQuery) (*inspect.TraceList, error) {
	limit := min(cmp.Or(max(q.Limit, 0), defaultLimit), maxLimit)
	var all []found
	for i, name := range reasons {
		if q.Retained != "" && q.Retained != name {
			continue
		}
		list, err := s.rings[i].search(q, name, limit+1)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(b.seq, a.seq) })
	list := &inspect.TraceList{Traces: []inspect.TraceSummary{}, Newest: s.seq.Load()}
	for i := range all[:min(len(all), limit)] {
		list.Traces = append(list.Traces, all[i].summary)
		if i == limit-1 && len(all) > limit {
			list.Next = all[i].seq
		}
	}
	return list, nil
}

// search returns at most limit traces of a ring, the newest first.
func (g *ring) search(q *inspect.TraceQuery, name string, limit int) (list []found, err error) {
	w := walk{g: g}
	var id tracing.TraceID
	if q.TraceID != "" {
		var ok bool
		if id, ok = tracing.ParseTraceID(q.TraceID); !ok {
			return nil, errID(q.TraceID)
		}
	}
	want := func(h *header) bool {
		return (q.Cursor == 0 || h.seq < q.Cursor) && h.seq > q.After && (q.TraceID == "" || h.id == id) &&
			h.duration >= q.MinNs && (q.MaxNs == 0 || h.duration <= q.MaxNs) && h.at >= q.FromUs && (q.ToUs == 0 || h.at <= q.ToUs)
	}
	var some []entry
	for !w.over && len(list) < limit {
		if w.seq != 0 && w.seq <= q.After {
			break
		}
		some = w.more(want, some[:0])
		for i := range some {
			r, err := decodeRecord(some[i].bytes)
			if err != nil {
				return nil, err
			}
			if matches(q, r) && len(list) < limit {
				list = append(list, found{some[i].seq, inspect.NewTraceSummary(r, name)})
			}
		}
	}
	return list, nil
}

// matches reports whether a record matches a query whose header already matched.
func matches(q *inspect.TraceQuery, r *tracing.Record) bool {
	isStep := func(s tracing.Step) bool { return s.Model == q.Model }
	if q.Request != "" && q.Request != r.Request || q.Model != "" && r.Model != q.Model && !slices.ContainsFunc(r.Steps, isStep) {
		return false
	}
	if q.Status != "" && q.Status != inspect.StatusOf(r.Failed, r.Code) && (q.Status != "failed" || !r.Failed) {
		return false
	}
	return q.Param == "" || slices.ContainsFunc(r.Params, func(p tracing.Param) bool {
		return p.Key == q.Param && (q.Value == "" || p.Value == q.Value)
	})
}

func errID(id string) error {
	return status.Errorf(status.InvalidArg, "invalid trace id '%s', expected 32 hexadecimal digits", id)
}

// FindTrace implements inspect.Inspector.
func (s *Store) FindTrace(id string) (*inspect.TraceView, error) {
	id, span, one := strings.Cut(id, "-")
	want, ok := tracing.ParseTraceID(id)
	if !ok {
		return nil, errID(id)
	}
	for i, name := range reasons {
		w := walk{g: &s.rings[i]}
		for !w.over {
			for _, k := range w.more(func(h *header) bool { return h.id == want }, nil) {
				r, err := decodeRecord(k.bytes)
				if err != nil {
					return nil, err
				}
				if !one || r.Span.String() == span {
					return s.view(r, name), nil
				}
			}
		}
	}
	return nil, status.Errorf(status.NotFound, "trace '%s' is not stored", id)
}

func (s *Store) view(r *tracing.Record, name string) *inspect.TraceView {
	v := inspect.NewTraceView(r, name)
	for i := range r.Steps {
		if b, ok := s.batches.find(r.Steps[i].Batch); ok {
			v.Batches = append(v.Batches, inspect.NewBatchSummary(&b))
		}
	}
	return v
}

// FindBatch implements inspect.Inspector.
func (s *Store) FindBatch(id uint64) (*inspect.BatchView, error) {
	b, ok := s.batches.find(id)
	if !ok {
		return nil, status.Errorf(status.NotFound, "batch %d is not stored", id)
	}
	return inspect.NewBatchView(&b, s.epoch), nil
}

// Sampling implements inspect.Inspector.
func (s *Store) Sampling() inspect.Sampling { return *s.sampling.Load() }

// SetSampling implements inspect.Inspector.
func (s *Store) SetSampling(set inspect.Sampling) error {
	s.sampling.Store(&set)
	return nil
}

// Stats returns the size and the use of the store.
func (s *Store) Stats() *inspect.StoreView {
	v := &inspect.StoreView{Bytes: s.bytes}
	for i, name := range reasons {
		bytes, used, n, oldest := s.rings[i].stats()
		v.Rings = append(v.Rings, inspect.RingStats{Retained: name, Bytes: bytes, Used: used, Traces: n, OldestUs: oldest})
	}
	return v
}
