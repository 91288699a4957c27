package telemetry

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// exemplars are the latest values with a retained trace: one for each classic bucket of secondsScale, and one for
// larger values.
type exemplars struct {
	by []atomic.Pointer[dto.Exemplar]
}

// maxTraceID bounds the id of an exemplar: OpenMetrics allows 128 characters for its label and value together.
const maxTraceID = 119

// Exemplar links the latency of a request, in nanoseconds, to its trace. Call it only for retained traces: each
// call allocates. An empty id and an id of more than 119 characters are ignored.
func (m *Model) Exemplar(traceID string, ns int64) {
	if traceID == "" || len(traceID) > maxTraceID {
		return
	}
	e := m.exemplars.Load()
	if e == nil {
		m.exemplars.CompareAndSwap(nil, &exemplars{by: make([]atomic.Pointer[dto.Exemplar], len(secondsScale.bounds)+1)})
		e = m.exemplars.Load()
	}
	v, name := seconds(ns), "trace_id"
	i, _ := slices.BinarySearch(secondsScale.bounds, v)
	e.by[i].Store(&dto.Exemplar{
		Label: []*dto.LabelPair{{Name: &name, Value: &traceID}}, Value: &v, Timestamp: timestamppb.New(time.Now()),
	})
}

// addTo adds the exemplars to the buckets of h.
func (e *exemplars) addTo(h *dto.Histogram, native bool) {
	if e == nil {
		return
	}
	for i := range e.by {
		x := e.by[i].Load()
		if x == nil {
			continue
		}
		if i == len(h.GetBucket()) {
			inf := math.Inf(1)
			h.Bucket = append(h.Bucket, &dto.Bucket{UpperBound: &inf, CumulativeCount: h.SampleCount})
		}
		h.Bucket[i].Exemplar = x
		if native {
			h.Exemplars = append(h.Exemplars, x)
		}
	}
}
