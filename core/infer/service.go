// Package infer defines requests and responses, and the interfaces through which front ends submit them: Inferer,
// Sink, Catalog and Lifecycle (service.go). It also holds what all front ends share: the validation of requests
// (check.go), Call for requests with one response, the limit of bytes in flight (InFlight), restrictions of endpoints
// (admission.go) and the best classes of an output (Classify).
package infer

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Sink receives the responses of one request.
//
// Lifecycle:
//
//  1. Send is called any number of times, in the order of the responses. At most the last response is marked Final.
//  2. Close is called exactly once, after the last Send. Its error is nil if the request
//     succeeded. For example, a request that is refused gets no Send and Close(err).
//
// Calls never overlap, but may come from different goroutines. Neither method may block: the
// caller may be the run loop of an instance. Call is the Sink of a request with one response.
type Sink interface {
	// Send moves r to the sink, which must release it.
	Send(r *Response)
	Close(err error)
}

// Pacer is a Sink with flow control: its client may read responses more slowly than a decoupled model sends them.
type Pacer interface {
	Sink
	// Pace waits until the client has read enough responses for one more, or returns ctx's
	// error. A decoupled model calls it before each Send.
	Pace(ctx context.Context) error
	// Full reports whether Pace would wait now. It must not block.
	Full() bool
}

// Failer is a Sink that sends an error to its client at once, while the model may still send responses.
type Failer interface {
	Sink
	// Fail sends err to the client; final says that no response follows. Close is called with it later.
	Fail(err error, final bool)
}

// Inferer executes requests. Implementations must be safe for concurrent use.
type Inferer interface {
	// Submit moves req to the service, which releases it on every path: the caller must not use it afterwards. Every
	// failure is reported by sink.Close. Submit may execute the request on the calling goroutine, unless req.Async is
	// set; it returns at the latest when the sink is closed. A cancelled ctx ends the request, still by sink.Close.
	Submit(ctx context.Context, req *Request, sink Sink)
}

// Checker is an Inferer that checks requests without executing them.
type Checker interface {
	Inferer
	// CheckRequest returns the error with which Submit would refuse a request before any model executes, nil if it would not. The
	// caller keeps the request. For example, the error of a wrong shape has the code InvalidArg.
	CheckRequest(req *Request) error
}

// Catalog describes the served models. Implementations must be safe for concurrent use.
type Catalog interface {
	// Ready reports whether every model that should serve does.
	Ready() bool
	// ModelReady returns nil if the version (0: any) is ready, else the reason.
	ModelReady(model string, version int64) error
	// Describe returns the description with which a front end decodes requests and encodes responses.
	Describe(model string, version int64) (*Description, error)
	Metadata(model string, version int64) (*Metadata, error)
	// Config returns the completed configuration, which must not be modified.
	Config(model string, version int64) (*modelconfig.ModelConfig, error)
	// Statistics returns the statistics of one version (0: all its versions) or, with an empty model, of every
	// ready version, sorted by name and version. An unknown version is InvalidArg here, where the other methods
	// return NotFound.
	Statistics(model string, version int64) ([]Statistics, error)
}

// Lister is a Catalog that lists what it serves.
type Lister interface {
	Catalog
	// Generation changes when a model is loaded or unloaded.
	Generation() uint64
	// Names returns the names of the models with a loaded version, sorted.
	Names() []string
}

// Description is a loaded version as the front ends see it. It is shared and must not be modified.
type Description struct {
	Model           string
	Version         int64
	Decoupled       bool // marks a model that sends any number of responses to a request
	Early           bool // marks an ensemble that sends outputs as soon as they are known, where the request is Early
	MaxBatch        int  // max_batch_size; 0 means that tensors carry no batch dimension
	Inputs, Outputs []Port
}

// Output returns the named output, or nil.
func (d *Description) Output(name string) *Port {
	for i := range d.Outputs {
		if d.Outputs[i].Name == name {
			return &d.Outputs[i]
		}
	}
	return nil
}

// Port is one input or output; Shape has the batch dimension and -1 for a variable extent.
type Port struct {
	Name     string
	DType    tensor.DType
	Shape    tensor.Shape
	Optional bool
	Labels   []string // names the classes of an output, one per index; nil when it has none
}

// Metadata describes a model to a client.
type Metadata struct {
	Name     string           `json:"name"`
	Versions []string         `json:"versions"`
	Platform string           `json:"platform"`
	Inputs   []TensorMetadata `json:"inputs"`
	Outputs  []TensorMetadata `json:"outputs"`
}

// TensorMetadata describes an input or output to a client; Shape has the batch dimension and -1 for a variable extent.
type TensorMetadata struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

// Duration counts events and sums their durations.
type Duration struct {
	Count uint64 `json:"count"`
	Ns    uint64 `json:"ns"`
}

// Statistics are those of one model version since it was loaded.
type Statistics struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// LastInference is the time of the last one in milliseconds since the epoch.
	LastInference uint64 `json:"last_inference"`
	// InferenceCount counts batch rows, ExecutionCount executed batches.
	InferenceCount uint64         `json:"inference_count"`
	ExecutionCount uint64         `json:"execution_count"`
	Inference      InferenceStats `json:"inference_stats"`
	Batches        []BatchStats   `json:"batch_stats"`
}

// InferenceStats are the durations summed over requests.
type InferenceStats struct {
	Success       Duration `json:"success"`
	Fail          Duration `json:"fail"`
	Queue         Duration `json:"queue"`
	ComputeInput  Duration `json:"compute_input"`
	ComputeInfer  Duration `json:"compute_infer"`
	ComputeOutput Duration `json:"compute_output"`
	CacheHit      Duration `json:"cache_hit"`
	CacheMiss     Duration `json:"cache_miss"`
}

// BatchStats are the durations summed over executed batches of one size.
type BatchStats struct {
	BatchSize     uint64   `json:"batch_size"`
	ComputeInput  Duration `json:"compute_input"`
	ComputeInfer  Duration `json:"compute_infer"`
	ComputeOutput Duration `json:"compute_output"`
}

// State is the state of a model version, as the protocol spells it.
type State string

// The states of a version. One that was never loaded has none.
const (
	Unavailable State = "UNAVAILABLE"
	Loading     State = "LOADING"
	Ready       State = "READY"
	Unloading   State = "UNLOADING"
)

// Entry is a row of the repository index. Version, State and Reason are empty for a model that was never loaded.
type Entry struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	State   State  `json:"state,omitempty"`
	Reason  string `json:"reason,omitempty"` // why the version is not ready
	// Ensemble reports that the configuration, if it could be read, has ensemble_scheduling.
	Ensemble bool `json:"-"`
}

// Degradation is a part of a server that does not work as configured.
type Degradation struct {
	What    string    `json:"what"` // model, memory, repository or cache
	Name    string    `json:"name,omitempty"`
	Version string    `json:"version,omitempty"`
	Reason  string    `json:"reason"`
	Since   time.Time `json:"since"` // within a second; of an execution that is stuck, its start
}

// ModelLoad is how much a version of a model or ensemble has to do.
type ModelLoad struct {
	Model   string
	Version int64
	// Queued and Running are its requests that wait for an instance and the others in flight.
	Queued, Running int64
	// Wait is how long a request is predicted to wait for instances; of an ensemble, on the longest way through its steps.
	Wait time.Duration
	// Utilization is the part of its instances that execute now, from 0 to 1; of an ensemble, that of its busiest step.
	Utilization float64
}

// LoadOptions override the repository's content for one load; the zero value overrides nothing.
type LoadOptions struct {
	Config string // Config, if not empty, is a JSON ModelConfig that replaces config.pbtxt
	// Files, if not empty, replace the model's folder. Keys are relative paths, for example "1/model.onnx". They
	// require a Config.
	Files map[string][]byte
}

// Lifecycle loads and unloads models while others serve. Implementations must be safe for concurrent use.
type Lifecycle interface {
	// Index returns every known version, sorted by name and version; with ready only those that are ready.
	Index(ready bool) []Entry
	// Load loads a model again, with the models that an ensemble uses, and returns when it is ready or has failed.
	// The previous version serves until then, and continues to serve if the load fails.
	Load(ctx context.Context, model string, o LoadOptions) error
	// Unload stops a model from accepting requests; with dependents also models that are loaded only as its parts.
	// It may return before the requests in flight are complete.
	Unload(ctx context.Context, model string, dependents bool) error
}
