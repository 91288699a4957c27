package telemetry

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// exemplars are the last values whose traces are kept, one for each classic bucket of
// secondsScale and for what is beyond.
type exemplars struct {
	by []atomic.Pointer[dto.Exemplar]
}

// maxTraceID is how long the id of an exemplar may be: OpenMetrics allows 128
// characters for its label and value together.
const maxTraceID = 119

// Exemplar has the latency of a request that took ns nanoseconds point at its trace. It
// is for traces that are kept, once that is decided: each allocates. An id of no or of
// more than 119 characters is ignored.
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

// addTo gives the buckets of h their exemplars.
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
