// Package inspect defines the views of a running server: the interfaces behind the dashboard and the commands "tutti
// why" and "tutti capture", and their data. Every view has a JSON form, which the dashboard's API serves unchanged.
//
// - overview.go: Overview, the server, its models and their plans; Captures, the tensors of selected requests
// - trace.go: Inspector, the traces of recent requests; views of trace records, also as text
package inspect

import (
	"io"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// Overview describes the server and its models. Implementations must be safe for concurrent use.
type Overview interface {
	Server() *ServerView
	Models() []ModelView
	// Graph returns the compiled plan of a model, version 0 for the preferred one.
	Graph(model string, version int64) (*GraphView, error)
}

// ServerView describes the server.
type ServerView struct {
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	StartedUs  int64      `json:"started_us"`
	NowUs      int64      `json:"now_us"`
	Ready      bool       `json:"ready"`
	CPUSeconds float64    `json:"cpu_seconds"`
	Cores      int        `json:"cores"`
	Memory     int64      `json:"memory_bytes"`
	Tensors    int64      `json:"tensor_bytes"`
	Store      *StoreView `json:"store"`
	GPUs       []GPUView  `json:"gpus"` // the GPUs of the machine, none where they are not measured
	// Degraded is what does not work as configured, as /v2/health/ready?verbose lists it.
	// DegradedMore counts those beyond the first hundred.
	Degraded     []DegradedView `json:"degraded"`
	DegradedMore int            `json:"degraded_more,omitempty"`
}

// DegradedView is a part of a server that does not work as configured. What is model, memory, repository or cache.
type DegradedView struct {
	What    string `json:"what"`
	Name    string `json:"name,omitempty"`
	Version string `json:"version,omitempty"`
	Reason  string `json:"reason"`
	SinceUs int64  `json:"since_us"`
}

// GPUView is a measurement of a GPU, of all its processes. A value that the GPU does not report is nil. Utilization
// is the busy share, 0 to 1.
type GPUView struct {
	UUID        string   `json:"uuid"`
	Utilization *float64 `json:"utilization"`
	MemoryTotal *float64 `json:"memory_total_bytes"`
	MemoryUsed  *float64 `json:"memory_used_bytes"`
	Power       *float64 `json:"power_watts"`
}

// ModelView is one version of a model. Its figures are those of the last minute. Durations are those of the traced
// requests of all its versions.
type ModelView struct {
	Name      string    `json:"name"`
	Version   string    `json:"version"`
	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"`
	Platform  string    `json:"platform"`
	Ensemble  bool      `json:"ensemble"`
	Rate      float64   `json:"rate"`
	Errors    float64   `json:"error_rate"`
	P50Ns     int64     `json:"p50_ns"`
	P99Ns     int64     `json:"p99_ns"`
	Queue     int64     `json:"queue"`
	BatchRows float64   `json:"batch_rows"`
	QueueNs   int64     `json:"queue_ns"`
	ComputeNs int64     `json:"compute_ns"`
	Requests  uint64    `json:"requests"`
	Failures  uint64    `json:"failures"`
	Copied    uint64    `json:"copied_bytes"`
	Rates     []float64 `json:"rates"` // the request rates of the last 60 seconds, oldest first
	// Due counts the requests with deadlines of an ensemble, nil before the first one ended. Refused are the rates of requests that were not
	// executed, by reason.
	Due     *OutcomesView      `json:"due,omitempty"`
	Refused map[string]float64 `json:"refused,omitempty"`
}

// OutcomesView are the rates of an ensemble's requests with deadlines, by how they ended; the rate of those in time is the goodput. InTimes
// are the rates of those in time of the last 60 seconds, oldest first.
type OutcomesView struct {
	InTime  float64   `json:"in_time"`
	Late    float64   `json:"late"`
	Refused float64   `json:"refused"`
	Failed  float64   `json:"failed"`
	InTimes []float64 `json:"in_times"`
}

// GraphView is a compiled plan.
type GraphView struct {
	Model   string     `json:"model"`
	Version int64      `json:"version"`
	Nodes   []NodeView `json:"nodes"`
	Edges   []EdgeView `json:"edges"`
}

// NodeView is a node of a plan with the current figures of its model.
type NodeView struct {
	Node      int      `json:"node"`
	Name      string   `json:"name"`
	Model     string   `json:"model"`
	Version   int64    `json:"version"`
	Platform  string   `json:"platform"`
	Places    []string `json:"places"`
	Lost      []string `json:"lost"` // those of Places whose device is lost
	Site      string   `json:"site"`
	Ensembles []string `json:"ensembles"`
	Stream    int32    `json:"stream"`
	Inflight  uint32   `json:"max_inflight"`
	MaxBatch  int      `json:"max_batch"`
	Instances int      `json:"instances"`
	Precision string   `json:"precision,omitempty"` // of the model, empty for fp32 that is not declared
	// InFlight counts the model's requests that are queued or executing, from all callers.
	InFlight int64      `json:"in_flight"`
	Live     *ModelView `json:"live"` // the model's entry of Models, nil before the first second

	// Kind is what a node without a model does, for example "condition"; FallbackOf the step that the node runs instead of.
	Kind       string `json:"kind,omitempty"`
	FallbackOf string `json:"fallback_of,omitempty"`
	// Within are the numbers of the nodes that begin the fan-outs around the node, outermost first.
	Within []int `json:"within,omitempty"`
	// Rows is set for a condition, Items for the begin of a fan-out, Share for an alternative of a split or canary: the node that
	// takes it and the steps that execute it. Copies is set for a shadow, Fault for a step with rules about failures.
	Rows   *RowsView   `json:"rows,omitempty"`
	Items  *ItemsView  `json:"items,omitempty"`
	Share  *ShareView  `json:"share,omitempty"`
	Copies *ShadowView `json:"shadow,omitempty"`
	Fault  *FaultView  `json:"fault,omitempty"`
}

// RowsView counts the rows for which a condition was true and false. All counts are since the ensemble was loaded first.
type RowsView struct {
	Step   string `json:"step"`
	Held   uint64 `json:"held"`
	Failed uint64 `json:"failed"`
}

// ItemsView counts what a fan-out divided: requests or, inside of another fan-out, groups of items.
type ItemsView struct {
	Divided uint64 `json:"divided"`
	Items   uint64 `json:"items"`
	Groups  uint64 `json:"groups"`
}

// ShareView is an alternative of a step, with the share of requests that it gets now, 0 to 1, and those that it executed. Kind is "split"
// or "canary".
type ShareView struct {
	Step        string  `json:"step"`
	Kind        string  `json:"kind"`
	Alternative string  `json:"alternative"`
	Share       float64 `json:"share"`
	Succeeded   uint64  `json:"succeeded"`
	Failed      uint64  `json:"failed"`
	MeanNs      uint64  `json:"mean_ns"` // of those that succeeded
}

// ShadowView counts the copies of a step's requests by the comparison of the responses.
type ShadowView struct {
	Step      string  `json:"step"`
	Model     string  `json:"model"`
	Share     float64 `json:"share"`
	Equal     uint64  `json:"equal"`
	Different uint64  `json:"different"`
	Failed    uint64  `json:"failed"`
	Dropped   uint64  `json:"dropped"`
}

// FaultView are the rules about failures of a step. Used counts how often its fallback or optional result took its place.
type FaultView struct {
	Rules    string `json:"rules"`
	Fallback string `json:"fallback,omitempty"`
	Absorbed bool   `json:"absorbed"`
	Used     uint64 `json:"used"`
}

// EdgeView is a tensor between two nodes. From is -1 for the request, To is -1 for the response.
type EdgeView struct {
	From   int     `json:"from"`
	To     int     `json:"to"`
	Tensor string  `json:"tensor"`
	Input  string  `json:"input"`
	Type   string  `json:"datatype"`
	Shape  []int64 `json:"shape"`
	// At is the place where the tensor is written, for example "device:0", and Why the reason.
	At  string `json:"at"`
	Why string `json:"why"`
	// Place is the place to which it is copied, empty if it is not copied; Plan describes the copy, with its size where
	// that is declared. Bytes and Copies count its copies between places since the model was loaded; Made counts all its
	// copies, also those of rows within a device, by direction.
	Place  string     `json:"place,omitempty"`
	Plan   string     `json:"copy,omitempty"`
	Bytes  uint64     `json:"copied_bytes"`
	Copies uint64     `json:"copies"`
	Made   []CopyView `json:"made"`
	// Carried counts all tensors of the edge, copied or not, by the kind of place in which they were put. A tensor
	// with several readers counts on each of its edges. Plain models count none.
	Carried []CarriedView `json:"carried"`
}

// CopyView counts the copies of one direction: "host_to_device", "device_to_host", "within_device" or "peer".
type CopyView struct {
	Direction string `json:"direction"`
	Copies    uint64 `json:"copies"`
	Bytes     uint64 `json:"bytes"`
}

// CarriedView is an edge's traffic at a kind of place: bytes since the model was loaded, and their current rate.
type CarriedView struct {
	Place string  `json:"place"`
	Bytes uint64  `json:"bytes"`
	Rate  float64 `json:"rate"`
}

// Counters are the totals of one served version since it was loaded.
type Counters struct {
	Name     string
	Version  int64
	Ensemble bool
	Waiting  int64 // the number of requests that wait for an instance
	// Requests counts those that succeeded and Failures those that did not. Rows counts the batch rows of Executions.
	Requests, Failures, Rows, Executions uint64
	// QueueNs and ComputeNs are sums over requests; CopiedBytes were copied between places.
	QueueNs, ComputeNs, CopiedBytes uint64
	Edges                           []*telemetry.Edge // count the bytes between the steps of an ensemble
	Outcomes                        telemetry.OutcomeCounts
	Refusals                        telemetry.RefusalCounts
}

// Captures records the tensors of selected requests. Implementations must be safe for concurrent use.
//
// Lifecycle: StartCapture begins a capture. It ends by StopCapture, by its count or by its time. Snapshots of an
// ended capture stay readable until newer ones replace them.
type Captures interface {
	// StartCapture starts to select requests and returns the capture with the rule's defaults filled in.
	StartCapture(rule CaptureRule) (*CaptureView, error)
	// StopCapture ends a capture. Its snapshots stay.
	StopCapture(id uint64) error
	// Captures returns the active and the latest ended captures, newest first. FindCapture returns one of them.
	Captures() *CaptureList
	FindCapture(id uint64) (*CaptureView, error)
	// Tensors returns the tensors of a request by its trace id, or TRACE-SPAN if several requests share a trace.
	// With previews, it includes previews of the contents.
	Tensors(trace string, previews bool) (*TensorList, error)
	// NPY returns a function that writes tensor n of a request as a .npy file, NPZ one that writes all its tensors
	// as a .npz file.
	NPY(trace string, n int) (func(io.Writer) error, error)
	NPZ(trace string) (func(io.Writer) error, error)
}

// CaptureRule selects the requests that match all patterns, in which * matches any text and ? one character. An
// empty pattern matches everything. For example, {"model": "detector", "every": 100} selects one in a hundred
// requests to the model detector.
type CaptureRule struct {
	// Model is the requested model, Request the client's request id, Trace the trace id.
	Model   string `json:"model,omitempty"`
	Request string `json:"request,omitempty"`
	Trace   string `json:"trace,omitempty"`
	// Every: one in so many matching requests is captured, 0 for each. Count: how many are captured, 0 for no
	// limit. Seconds: the duration of the capture, 0 for ten minutes.
	Every   int64 `json:"every,omitempty"`
	Count   int64 `json:"count,omitempty"`
	Seconds int64 `json:"seconds,omitempty"`
	// RequestBytes bounds the tensors of a request, 0 for the server's limit.
	RequestBytes int64 `json:"request_bytes,omitempty"`
	// RedactTensors and RedactModels are patterns in addition to the server's.
	RedactTensors []string `json:"redact_tensors,omitempty"`
	RedactModels  []string `json:"redact_models,omitempty"`
}

// CaptureView is an active or ended capture.
type CaptureView struct {
	ID     uint64      `json:"id"`
	Rule   CaptureRule `json:"rule"`
	Active bool        `json:"active"` // reports whether it still selects requests, at the latest until EndsUs
	EndsUs int64       `json:"ends_us"`
	// Matched counts the requests that match the patterns, Taken the captured ones that have ended, Pending those
	// that have not, Dropped those that were replaced by newer ones, Missed those for which memory was short.
	Matched   uint64         `json:"matched"`
	Taken     uint64         `json:"taken"`
	Pending   uint64         `json:"pending"`
	Dropped   uint64         `json:"dropped"`
	Missed    uint64         `json:"missed"`
	Snapshots []SnapshotView `json:"snapshots"` // the retained ones, oldest first
}

// SnapshotView is a request whose tensors are captured.
type SnapshotView struct {
	Trace   string `json:"trace_id"`
	Span    string `json:"span_id"`
	Request string `json:"request_id,omitempty"`
	Model   string `json:"model"`
	Version int64  `json:"version"`
	StartUs int64  `json:"start_us"`
	Status  string `json:"status"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// CaptureList is all captures, with the size and use of their memory.
type CaptureList struct {
	Captures []CaptureView `json:"captures"`
	Bytes    int64         `json:"bytes"`
	Used     int64         `json:"used_bytes"`
}

// TensorList is the tensors of a request.
type TensorList struct {
	SnapshotView
	List []TensorView `json:"list"`
	More int          `json:"more,omitempty"` // counts the tensors beyond the limit of the list
	// Sent is what the request said besides its tensors. It is shown like the contents of tensors, and nil elsewhere.
	Sent *SentView `json:"sent,omitempty"`
}

// SentView is what a request said besides its tensors.
type SentView struct {
	Outputs  []string      `json:"outputs,omitempty"` // the requested outputs, empty for all
	Sequence *SequenceView `json:"sequence,omitempty"`
	Params   []ParamView   `json:"parameters,omitempty"`
	Redacted []string      `json:"redacted_parameters,omitempty"` // the names of the parameters that are not in Params
}

// SequenceView is the place of a request in a sequence. The sequence has an ID or a Name.
type SequenceView struct {
	ID    uint64 `json:"id,omitempty"`
	Name  string `json:"name,omitempty"`
	Start bool   `json:"start,omitempty"`
	End   bool   `json:"end,omitempty"`
}

// ParamView is a parameter of a request. Type is bool, int64, uint64, double or string.
type ParamView struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// TensorView is a captured tensor, named by its producer.
type TensorView struct {
	N int `json:"n"`
	// Name is STEP.TENSOR, with the suffix @SUBRUN after a response of a decoupled step. Files use it.
	Name       string       `json:"name"`
	Step       string       `json:"step"`
	Tensor     string       `json:"tensor"`
	Node       int32        `json:"node"`
	SubRun     int32        `json:"wave"`
	Readers    []string     `json:"readers"`
	Type       string       `json:"datatype"`
	Shape      []int64      `json:"shape"`
	Bytes      int64        `json:"bytes"`
	Place      string       `json:"place"`
	HasContent bool         `json:"kept"` // reports whether the content was captured; if not, Reason is why
	Reason     string       `json:"why,omitempty"`
	Preview    *PreviewView `json:"preview,omitempty"`
}

// PreviewView is a preview of a tensor's content.
type PreviewView struct {
	Kind   string   `json:"kind"`             // "text", "numbers" or "image"
	Values []string `json:"values,omitempty"` // the first elements as text; More counts the others
	More   int64    `json:"more,omitempty"`
	// Min, Max and Mean are statistics of the finite numbers; Odd counts the others.
	Min    string    `json:"min,omitempty"`
	Max    string    `json:"max,omitempty"`
	Mean   string    `json:"mean,omitempty"`
	Odd    int64     `json:"odd,omitempty"`
	Top    []TopView `json:"top,omitempty"` // the largest values of the first row
	PNG    []byte    `json:"png,omitempty"` // a thumbnail of the first image; Width and Height are the original's
	Width  int       `json:"width,omitempty"`
	Height int       `json:"height,omitempty"`
}

// TopView is an element of a row.
type TopView struct {
	Index int    `json:"index"`
	Value string `json:"value"`
}
