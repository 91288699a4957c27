package inspect

import "io"

// Captures keeps the tensors of chosen requests, for people to look at.
type Captures interface {
	// StartCapture has requests chosen from now on. It returns what it made of the rule.
	StartCapture(rule CaptureRule) (*CaptureView, error)
	// StopCapture ends one; what was kept stays.
	StopCapture(id uint64) error
	// Captures returns those that go on and the latest of those that have ended, newest
	// first. FindCapture returns one.
	Captures() *CaptureList
	FindCapture(id uint64) (*CaptureView, error)
	// Tensors lists those of a request, by its trace id, or TRACE-SPAN where several
	// requests are of one trace. Contents are previewed when asked for.
	Tensors(trace string, previews bool) (*TensorList, error)
	// NPY returns what writes tensor n of a request as a .npy file, NPZ all of its
	// tensors as a .npz file.
	NPY(trace string, n int) (func(io.Writer) error, error)
	NPZ(trace string) (func(io.Writer) error, error)
}

// CaptureRule chooses requests: those that all patterns fit, in which * stands for any
// text and ? for a character; an empty one fits everything.
type CaptureRule struct {
	// Model is the one that is asked, Request the client's id, Trace the trace id.
	Model   string `json:"model,omitempty"`
	Request string `json:"request,omitempty"`
	Trace   string `json:"trace,omitempty"`
	// Every is of how many such requests one is kept, 0 for each; Count how many are
	// kept, 0 for any number; Seconds how long this goes on, 0 for ten minutes.
	Every   int64 `json:"every,omitempty"`
	Count   int64 `json:"count,omitempty"`
	Seconds int64 `json:"seconds,omitempty"`
	// RequestBytes bounds a request's tensors, 0 for the server's bound.
	RequestBytes int64 `json:"request_bytes,omitempty"`
	// RedactTensors and RedactModels are patterns that go beyond those of the server.
	RedactTensors []string `json:"redact_tensors,omitempty"`
	RedactModels  []string `json:"redact_models,omitempty"`
}

// CaptureView is a capture that goes on or has ended.
type CaptureView struct {
	ID   uint64      `json:"id"`
	Rule CaptureRule `json:"rule"`
	// Active tells that it goes on, at the latest until EndsUs.
	Active bool  `json:"active"`
	EndsUs int64 `json:"ends_us"`
	// Matched counts the requests that the patterns fit, Taken those that were kept
	// and have ended, Pending those that go on, Dropped those of them that had to make room for others, Missed
	// those for which there was no room.
	Matched uint64 `json:"matched"`
	Taken   uint64 `json:"taken"`
	Pending uint64 `json:"pending"`
	Dropped uint64 `json:"dropped"`
	Missed  uint64 `json:"missed"`
	// Shots are those that are still there, oldest first.
	Snapshots []SnapshotView `json:"snapshots"`
}

// ShotView is a request whose tensors are kept.
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

// CaptureList is all captures, with how much of the memory for them is in use.
type CaptureList struct {
	Captures []CaptureView `json:"captures"`
	Bytes    int64         `json:"bytes"`
	Used     int64         `json:"used_bytes"`
}

// TensorList is the tensors of a request.
type TensorList struct {
	SnapshotView
	List []TensorView `json:"list"`
	// More counts the tensors for which there was no room in the list.
	More int `json:"more,omitempty"`
}

// TensorView is a tensor of a request, under the name of who made it.
type TensorView struct {
	N int `json:"n"`
	// Name is STEP.TENSOR, with @WAVE behind it for what follows from an answer of a
	// decoupled step; files use it.
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
	// Kept tells that there is content, Why else why there is none.
	HasContent bool         `json:"kept"`
	Reason     string       `json:"why,omitempty"`
	Preview    *PreviewView `json:"preview,omitempty"`
}

// PreviewView shows the first of a tensor's content.
type PreviewView struct {
	// Kind is "text", "numbers" or "image".
	Kind string `json:"kind"`
	// Values are the first elements as text; More counts those that follow.
	Values []string `json:"values,omitempty"`
	More   int64    `json:"more,omitempty"`
	// Min, Max and Mean are those of the numbers that are finite, of which Odd are not.
	Min  string `json:"min,omitempty"`
	Max  string `json:"max,omitempty"`
	Mean string `json:"mean,omitempty"`
	Odd  int64  `json:"odd,omitempty"`
	// Top are the largest of the first row.
	Top []TopView `json:"top,omitempty"`
	// PNG is the first image, made small; Width and Height are the original's.
	PNG    []byte `json:"png,omitempty"`
	Width  int    `json:"width,omitempty"`
	Height int    `json:"height,omitempty"`
}

// TopView is an element of a row.
type TopView struct {
	Index int    `json:"index"`
	Value string `json:"value"`
}
