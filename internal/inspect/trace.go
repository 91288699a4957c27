package inspect

import "github.com/tutti-server/tutti/internal/tracing"

// Inspector finds traces of recent requests. Implementations must be safe for concurrent use.
type Inspector interface {
	Traces(q *TraceQuery) (*TraceList, error) // returns the stored traces that match a query, newest first
	// FindTrace returns a stored trace by its id, 32 hexadecimal digits. If a caller has sent several requests of
	// one trace, the suffix "-" and the span id select one.
	FindTrace(id string) (*TraceView, error)
	FindBatch(id uint64) (*BatchView, error) // returns an executed batch, if it is still stored
	Sampling() Sampling                      // returns the rules of retention; SetSampling replaces them
	SetSampling(s Sampling) error
}

// TraceQuery selects traces; zero fields match everything. For example, Model "detector" and MinNs 5e7 select the
// requests with that model that lasted 50 ms or more.
type TraceQuery struct {
	Request, TraceID, Model string
	Status                  string // "ok", "failed" or the name of a code in lower_snake_case
	Retained                string // the reason of retention: "failed", "slow", "requested" or "sampled"
	// MinNs and MaxNs bound the duration, FromUs and ToUs the begin of the request.
	MinNs, MaxNs, FromUs, ToUs int64
	// Param and Value are the name and value of a request parameter.
	Param, Value string
	After        uint64 // selects traces stored after an earlier list: the Newest of that list
	// Cursor continues a list: the Next of the page before. Limit bounds the page, 0 for 50.
	Cursor uint64
	Limit  int
}

// TraceList is a page of traces. Next continues it, 0 at the end; Newest counts the traces stored so far.
type TraceList struct {
	Traces []TraceSummary `json:"traces"`
	Next   uint64         `json:"next"`
	Newest uint64         `json:"newest"`
}

// TraceSummary is the entry of a trace in a list.
type TraceSummary struct {
	ID         string `json:"id"`
	Span       string `json:"span_id"`
	Request    string `json:"request_id,omitempty"`
	Model      string `json:"model"`
	Version    int64  `json:"version"`
	Ensemble   bool   `json:"ensemble"`
	StartUs    int64  `json:"start_us"`
	DurationNs int64  `json:"duration_ns"`
	Status     string `json:"status"`
	Error      string `json:"error,omitempty"`
	Retained   string `json:"retained"`
	Steps      int    `json:"steps"`
	// Captured reports whether the request's tensors were captured; they may have been dropped since.
	Captured bool `json:"captured,omitempty"`
}

// TraceView is a whole trace. Offsets are nanoseconds since its start.
type TraceView struct {
	TraceSummary
	Parent  string          `json:"parent_span_id,omitempty"`
	Params  []tracing.Param `json:"params"`
	Moments []MomentView    `json:"moments"`
	Spans   []StepView      `json:"spans"`
	Events  []EventView     `json:"events"`
	Split   []PartView      `json:"split"`
	Batches []BatchSummary  `json:"batches"`
}

// MomentView is the time at which a request passed a point, named as in Triton's trace files.
type MomentView struct {
	Name string `json:"name"`
	Ns   int64  `json:"ns"`
}

// StepView is one step of a request. Times of phases that it did not reach are 0.
type StepView struct {
	Span       string `json:"span_id"`
	Node       int32  `json:"node"`
	After      int32  `json:"after"`
	SubRun     int32  `json:"sub_run"`
	Model      string `json:"model"`
	Version    int64  `json:"version"`
	Critical   bool   `json:"critical"`
	Cached     bool   `json:"cached"`
	Native     bool   `json:"native"`
	Status     string `json:"status"`
	ReadyNs    int64  `json:"ready_ns"`
	EnqueuedNs int64  `json:"enqueued_ns"`
	StartNs    int64  `json:"start_ns"`
	InputEndNs int64  `json:"input_end_ns"`
	InferEndNs int64  `json:"infer_end_ns"`
	EndNs      int64  `json:"end_ns"`
	DoneNs     int64  `json:"done_ns"`
	Batch      uint64 `json:"batch"`
	Rows       int32  `json:"rows"`
	BatchRows  int32  `json:"batch_rows"`
	Members    int32  `json:"members"`
	Elements   int64  `json:"elements"`
	Padding    int64  `json:"padding"`
	Instance   int32  `json:"instance"`
	Place      string `json:"place"`
	Before     uint64 `json:"before"`
}

// EventView is an event of a request.
type EventView struct {
	Kind   string `json:"kind"`
	Ns     int64  `json:"ns"`
	Node   int32  `json:"node"`
	Tensor string `json:"tensor,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"`
	From   string `json:"from,omitempty"`
	To     string `json:"to,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// PartView is a part of a request's time. The parts are contiguous and add up to all of it.
type PartView struct {
	Kind    string `json:"kind"`
	Node    int32  `json:"node"`
	Model   string `json:"model,omitempty"`
	Batch   uint64 `json:"batch,omitempty"`
	StartNs int64  `json:"start_ns"`
	Ns      int64  `json:"ns"`
	Text    string `json:"text"`
}

// BatchSummary is an executed batch with the trace ids of its known members.
type BatchSummary struct {
	ID      uint64   `json:"id"`
	Model   string   `json:"model"`
	Version int64    `json:"version"`
	Rows    int32    `json:"rows"`
	Members int32    `json:"members"`
	Traces  []string `json:"traces"`
}

// BatchView is an executed batch.
type BatchView struct {
	BatchSummary
	StartUs     int64  `json:"start_us"`
	InputNs     int64  `json:"input_ns"`
	InferNs     int64  `json:"infer_ns"`
	OutputNs    int64  `json:"output_ns"`
	Instance    int32  `json:"instance"`
	Place       string `json:"place"`
	Elements    int64  `json:"elements"`
	Padding     int64  `json:"padding"`
	Before      uint64 `json:"before"`
	BeforeEndUs int64  `json:"before_end_us"`
	Failed      bool   `json:"failed"`
}

// Sampling selects the finished requests whose traces are stored.
type Sampling struct {
	// Failed stores all failed and refused requests. Slow stores the slowest requests of each model and minute, and
	// those above the 99th percentile. Every stores one in so many of the others, 0 for none.
	Failed bool   `json:"failed"`
	Slow   bool   `json:"slow"`
	Every  uint32 `json:"every"`
}

// StoreView is the size and use of the trace store.
type StoreView struct {
	Bytes int64       `json:"bytes"`
	Rings []RingStats `json:"rings"`
}

// RingStats is one of the store's rings: "failed", "slow", "requested" or "sampled".
type RingStats struct {
	Retained string `json:"retained"`
	Bytes    int64  `json:"bytes"`
	Used     int64  `json:"used_bytes"`
	Traces   int    `json:"traces"`
	OldestUs int64  `json:"oldest_us"`
}
