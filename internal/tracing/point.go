package tracing

// Point is something that a request passes on its way. Their order is that in which
// they are passed.
type Point uint8

// The points, of which a trace file has the names. A request's queue time ends at
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

// First returns when the request passed a point for the first time, 0 when it did not.
func (r *Record) First(p Point) int64 {
	for _, m := range r.Moments {
		if m.Point == p {
			return m.Ns
		}
	}
	return 0
}

// Last returns when the request passed a point for the last time, 0 when it did not.
func (r *Record) Last(p Point) int64 {
	at := int64(0)
	for _, m := range r.Moments {
		if m.Point == p {
			at = max(at, m.Ns)
		}
	}
	return at
}

// Bounds returns when the first and the last of everything recorded happened.
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

// CopyTo makes to the same, in the memory that it has.
func (r *Record) CopyTo(to *Record) {
	kept := *to
	*to = *r
	to.Moments, to.Steps, to.Events, to.Params = kept.Moments[:0], kept.Steps[:0], kept.Events[:0], kept.Params[:0]
	to.Moments = append(to.Moments, r.Moments...)
	to.Steps = append(to.Steps, r.Steps...)
	to.Events = append(to.Events, r.Events...)
	to.Params = append(to.Params, r.Params...)
}
