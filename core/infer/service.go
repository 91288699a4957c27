package infer

import (
	"context"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Sink receives a request's answers: any number of Send, the last perhaps marked
// Final, then exactly one Close, whose error is nil after success. Neither may block.
type Sink interface {
	// Send moves r to the sink.
	Send(r *Response)
	Close(err error)
}

// Pacer is a Sink whose client may take answers more slowly than a decoupled model
// gives them.
type Pacer interface {
	Sink
	// Pace returns when the client has taken so many answers that another one is
	// welcome, or with ctx's error. A decoupled model waits here before each Send.
	Pace(ctx context.Context) error
	// Full reports whether Pace would wait now. It never waits itself.
	Full() bool
}

// Failer is a Sink whose client learns of an error at once, while the model may still send responses.
type Failer interface {
	Sink
	// Fail sends err to the client; final says that no response follows. Close is called with it later.
	Fail(err error, final bool)
}

// Inferer runs requests.
type Inferer interface {
	// Submit moves req to the service, which releases it on every path. Every
	// failure arrives at sink.Close. Submit may lend the calling goroutine to the
	// work at hand; it returns at the latest when the request is answered.
	Submit(ctx context.Context, req *Request, sink Sink)
}

// Catalog tells what is served.
type Catalog interface {
	// Ready reports whether every model that should serve does.
	Ready() bool
	// ModelReady returns nil when the version (0: any) serves, else why not.
	ModelReady(model string, version int64) error
	// Describe tells what decoding a request and encoding its answer need to know.
	Describe(model string, version int64) (*Description, error)
	Metadata(model string, version int64) (*Metadata, error)
	// Config returns the completed configuration, not to be changed.
	Config(model string, version int64) (*modelconfig.ModelConfig, error)
	// Statistics returns those of one version (0: all its versions) or, with an
	// empty model, of every ready version, sorted by name and version. An unknown
	// version is InvalidArg here, where the other methods say NotFound.
	Statistics(model string, version int64) ([]Statistics, error)
}

// Description is a loaded version as the front ends see it. It is made once and
// shared: nobody changes it.
type Description struct {
	Model   string
	Version int64
	// Decoupled marks a model that answers a request any number of times.
	Decoupled bool
	// MaxBatch is max_batch_size; 0 means that tensors carry no batch dimension.
	MaxBatch        int
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
	// Labels names the classes of an output, one per index; nil when it has none.
	Labels []string
}

// Metadata describes a model to a client.
type Metadata struct {
	Name     string           `json:"name"`
	Versions []string         `json:"versions"`
	Platform string           `json:"platform"`
	Inputs   []TensorMetadata `json:"inputs"`
	Outputs  []TensorMetadata `json:"outputs"`
}

// TensorMetadata describes an input or output to a client; Shape has the batch
// dimension and -1 for a variable extent.
type TensorMetadata struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

// Duration is a count of events and the time they took together.
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
