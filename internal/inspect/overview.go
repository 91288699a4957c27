package inspect

import "github.com/tutti-server/tutti/internal/telemetry"

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
	// GPUs are the GPUs of the machine, none where they are not measured.
	GPUs []GPUView `json:"gpus"`
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
	Name      string  `json:"name"`
	Version   string  `json:"version"`
	State     string  `json:"state"`
	Reason    string  `json:"reason,omitempty"`
	Platform  string  `json:"platform"`
	Ensemble  bool    `json:"ensemble"`
	Rate      float64 `json:"rate"`
	Errors    float64 `json:"error_rate"`
	P50Ns     int64   `json:"p50_ns"`
	P99Ns     int64   `json:"p99_ns"`
	Queue     int64   `json:"queue"`
	BatchRows float64 `json:"batch_rows"`
	QueueNs   int64   `json:"queue_ns"`
	ComputeNs int64   `json:"compute_ns"`
	Requests  uint64  `json:"requests"`
	Failures  uint64  `json:"failures"`
	Copied    uint64  `json:"copied_bytes"`
	// Rates are the request rates of the last 60 seconds, oldest first.
	Rates []float64 `json:"rates"`
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
	Site      string   `json:"site"`
	Ensembles []string `json:"ensembles"`
	Stream    int32    `json:"stream"`
	Inflight  uint32   `json:"max_inflight"`
	MaxBatch  int      `json:"max_batch"`
	Instances int      `json:"instances"`
	// InFlight counts the model's requests that are queued or executing, from all callers.
	InFlight int64 `json:"in_flight"`
	// Live is the model's entry of Models, nil before the first second.
	Live *ModelView `json:"live"`
}

// EdgeView is a tensor between two nodes. From is -1 for the request, To is -1 for the response.
type EdgeView struct {
	From   int     `json:"from"`
	To     int     `json:"to"`
	Tensor string  `json:"tensor"`
	Input  string  `json:"input"`
	Type   string  `json:"datatype"`
	Shape  []int64 `json:"shape"`
	// Place is the place to which it is copied, empty if it is not copied. Bytes and Copies count its copies since
	// the model was loaded.
	Place  string `json:"place,omitempty"`
	Bytes  uint64 `json:"copied_bytes"`
	Copies uint64 `json:"copies"`
	// Carried counts all tensors of the edge, copied or not, by the kind of place in which they were put. A tensor
	// with several readers counts on each of its edges. Plain models count none.
	Carried []CarriedView `json:"carried"`
}

// CarriedView is an edge's traffic at a kind of place: bytes since the model was loaded, and their current rate.
type CarriedView struct {
	Place string  `json:"place"`
	Bytes uint64  `json:"bytes"`
	Rate  float64 `json:"rate"`
}

// Counters are the totals of one served version since it was loaded.
type Counters struct {
	Name    string
	Version int64
	// Waiting is the number of requests that wait for an instance.
	Waiting int64
	// Requests counts those that succeeded and Failures those that did not. Rows counts
	// the batch rows of Executions.
	Requests, Failures, Rows, Executions uint64
	// QueueNs and ComputeNs are sums over requests; CopiedBytes were copied between places.
	QueueNs, ComputeNs, CopiedBytes uint64
	// Edges count the bytes between the steps of an ensemble.
	Edges []*telemetry.Edge
}
