package inspect

import "io"

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
	ID   uint64      `json:"id"`
	Rule CaptureRule `json:"rule"`
	// Active reports whether it still selects requests, at the latest until EndsUs.
	Active bool  `json:"active"`
	EndsUs int64 `json:"ends_us"`
	// Matched counts the requests that match the patterns, Taken the captured ones that have ended, Pending those
	// that have not, Dropped those that were replaced by newer ones, Missed those for which memory was short.
	Matched uint64 `json:"matched"`
	Taken   uint64 `json:"taken"`
	Pending uint64 `json:"pending"`
	Dropped uint64 `json:"dropped"`
	Missed  uint64 `json:"missed"`
	// Snapshots are the retained ones, oldest first.
	Snapshots []SnapshotView `json:"snapshots"`
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
	// More counts the tensors beyond the limit of the list.
	More int `json:"more,omitempty"`
}

// TensorView is a captured tensor, named by its producer.
type TensorView struct {
	N int `json:"n"`
	// Name is STEP.TENSOR, with the suffix @SUBRUN after a response of a decoupled step. Files use it.
	Name    string   `json:"name"`
	Step    string   `json:"step"`
	Tensor  string   `json:"tensor"`
	Node    int32    `json:"node"`
	SubRun  int32    `json:"wave"`
	Readers []string `json:"readers"`
	Type    string   `json:"datatype"`
	Shape   []int64  `json:"shape"`
	Bytes   int64    `json:"bytes"`
	Place   string   `json:"place"`
	// HasContent reports whether the content was captured; if not, Reason is why.
	HasContent bool         `json:"kept"`
	Reason     string       `json:"why,omitempty"`
	Preview    *PreviewView `json:"preview,omitempty"`
}

// PreviewView is a preview of a tensor's content.
type PreviewView struct {
	// Kind is "text", "numbers" or "image".
	Kind string `json:"kind"`
	// Values are the first elements as text; More counts the others.
	Values []string `json:"values,omitempty"`
	More   int64    `json:"more,omitempty"`
	// Min, Max and Mean are statistics of the finite numbers; Odd counts the others.
	Min  string `json:"min,omitempty"`
	Max  string `json:"max,omitempty"`
	Mean string `json:"mean,omitempty"`
	Odd  int64  `json:"odd,omitempty"`
	// Top are the largest values of the first row.
	Top []TopView `json:"top,omitempty"`
	// PNG is a thumbnail of the first image; Width and Height are the original's.
	PNG    []byte `json:"png,omitempty"`
	Width  int    `json:"width,omitempty"`
	Height int    `json:"height,omitempty"`
}

// TopView is an element of a row.
type TopView struct {
	Index int    `json:"index"`
	Value string `json:"value"`
}
