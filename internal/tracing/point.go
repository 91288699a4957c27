package tracing

// Point is an event in the life of a request, for example the start of its computation. The constants are in
// chronological order.
type Point uint8

// The points, named as in trace files. A request's queue time ends at
// ComputeStart, and the model runs from ComputeInputEnd to ComputeOutputStart.
const (
	HTTPRecvStart Point = iota
	HTTPRecvEnd
	GRPCWaitReadStart
	GRPCWaitReadEnd
	RequestStart
	QueueStart
	ComputeStart
	ComputeInputEnd
	ComputeOutputStart
	ComputeEnd
	InferResponseComplete
	RequestEnd
	HTTPSendStart
	HTTPSendEnd
	GRPCSendStart
	GRPCSendEnd
	numPoints
)

var pointNames = [numPoints]string{
	"HTTP_RECV_START", "HTTP_RECV_END", "GRPC_WAITREAD_START", "GRPC_WAITREAD_END",
	"REQUEST_START", "QUEUE_START", "COMPUTE_START", "COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START", "COMPUTE_END",
	"INFER_RESPONSE_COMPLETE", "REQUEST_END",
	"HTTP_SEND_START", "HTTP_SEND_END", "GRPC_SEND_START", "GRPC_SEND_END",
}

// String returns the name that trace files have.
func (p Point) String() string {
	if p < numPoints {
		return pointNames[p]
	}
	return "UNKNOWN"
}

// First returns the time of the first moment at a point, 0 without one.
func (r *Record) First(p Point) int64 {
	for _, m := range r.Moments {
		if m.Point == p {
			return m.Ns
		}
	}
	return 0
}

// Last returns the time of the last moment at a point, 0 without one.
func (r *Record) Last(p Point) int64 {
	at := int64(0)
	for _, m := range r.Moments {
		if m.Point == p {
			at = max(at, m.Ns)
		}
	}
	return at
}

// Bounds returns the earliest and the latest recorded time.
func (r *Record) Bounds() (start, end int64) {
	start = r.BeganAt
	end = start
	for _, m := range r.Moments {
		start, end = min(start, m.Ns), max(end, m.Ns)
	}
	for i := range r.Steps {
		start, end = min(start, r.Steps[i].Ready), max(end, r.Steps[i].Done)
	}
	return start, end
}

// UnixMicro returns the wall-clock time of one of the record's times, in microseconds since 1970.
func (r *Record) UnixMicro(ns int64) int64 { return (r.Began + ns - r.BeganAt) / 1000 }

// CopyTo copies the record to *to and reuses the memory of to's lists.
func (r *Record) CopyTo(to *Record) {
	old := *to
	*to = *r
	to.Moments, to.Steps, to.Events, to.Params = old.Moments[:0], old.Steps[:0], old.Events[:0], old.Params[:0]
	to.Moments = append(to.Moments, r.Moments...)
	to.Steps = append(to.Steps, r.Steps...)
	to.Events = append(to.Events, r.Events...)
	to.Params = append(to.Params, r.Params...)
}
