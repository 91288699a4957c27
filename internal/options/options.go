// Package options defines every option of the server: the table of flags, and how their values are read from the
// command line, the environment and a YAML file. The root package builds a server from the resulting Options.
//
//   - options.go: Options and its defaults
//   - flag.go: Flag, a row of the table, and the text of --help; flags*.go: the rows by group; setter.go: the functions that
//     check and store values
//   - source.go: Parse, the precedence of the sources, and the YAML file
//   - finish.go: checks across flags, and the memory of the machine; backendconfig.go: the settings of backends and of the cache
//
// For example, Parse([]string{"--http-port=80"}, []string{"TUTTI_GRPC_PORT=81"}) sets both ports.
package options

import (
	"regexp"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/cache/redis"
	"github.com/tutti-server/tutti/internal/gpu"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/device"
)

// Options are the options of a server. Parse reads them from a command line, the environment and a file; each field
// is the value of a row of Flags.
type Options struct {
	ID           string        // the server's name in its metadata
	Repositories []string      // folders that hold models
	ControlMode  string        // ModeNone, ModePoll or ModeExplicit
	LoadModels   []string      // the models to load in mode explicit; "*" alone stands for all
	PollInterval time.Duration // the time between two scans of the repositories in mode poll
	// ModelConfigName, unless empty, selects configs/NAME.pbtxt in the folders of models that have this file.
	ModelConfigName string
	// BacklogDelayScheduler is the number of requests without a slot that must wait before a sequence model
	// executes its first batch: the test hook TRITONSERVER_BACKLOG_DELAY_SCHEDULER.
	BacklogDelayScheduler int
	// LoadThreads is the number of models that load at a time, LoadRetries how often a failed load is repeated.
	LoadThreads, LoadRetries int
	ModelCache               string // the folder for models from buckets; empty for the default in the user's cache
	Namespacing              bool   // Namespacing allows several repositories to have models of one name
	DisableAutoComplete      bool   // DisableAutoComplete uses every configuration as it is written
	// StrictEnsembleConfig requires ensembles to declare all inputs and outputs, also those that follow from their
	// steps.
	StrictEnsembleConfig bool
	StrictParameters     bool   // StrictParameters refuses unknown settings of models, backends and caches
	Isolation            string // IsolationNone, or IsolationProcess to run native models in processes of their own
	GPUFallback          string // FallbackNone, or FallbackCPU to run models for missing GPUs on the CPU
	ExitOnError          bool   // ExitOnError ends a server if a model cannot be loaded at its start
	StrictReadiness      bool   // StrictReadiness makes the server ready only if every model is ready
	// ExitTimeout bounds the time of an orderly stop, ExitConnections its first part, in which the server waits for
	// clients to close HTTP connections.
	ExitTimeout     time.Duration
	ExitConnections time.Duration
	Upgrade         bool // Upgrade takes the ports of the server that runs at the same addresses
	AllowUpgrade    bool // AllowUpgrade offers the ports to a process with Upgrade
	// Drain is how long a server that was told to stop is not ready and serves requests as before. The exit timeout follows.
	Drain         time.Duration
	BackendConfig BackendConfig
	Limits        Limits
	HostPolicies  map[string]map[string]string // the settings of host policies by name. Their syntax was checked.
	Cache         Cache
	HTTP          HTTP
	GRPC          GRPC
	Metrics       Metrics
	GPU           gpu.Settings
	GPULoadLimits map[int]float64 // used fraction of a GPU's memory above which no model is loaded, by GPU
	ModelMemory   string          // MemoryRefuse or MemoryLRU
	ClientSHM     bool            // ClientSHM allows clients to register shared memory
	Log           logs.Settings
	LogNotices    bool // LogNotices logs the notices about configurations that tutti validate prints
	Trace         Trace
	Dashboard     Dashboard // Dashboard and TraceStore configure the dashboard and the traces that it shows
	TraceStore    TraceStore
	Capture       Capture
	Access        Access
	Jobs          Jobs
	// DelayScheduler is the number of requests that must wait before a dynamic batcher executes its first batch:
	// the test hook TRITONSERVER_DELAY_SCHEDULER.
	DelayScheduler int
	Notices        []Notice // logged when the server starts
}

// Cache configures the response cache, for models with response_cache.
type Cache struct {
	Name  string // local or redis; empty for no cache
	Local int64  // the size of the local cache in bytes
	Redis redis.Config

	Settings map[string]map[string]string // those of each cache as they were given; nil after they have been read
}

// Limits bound concurrent executions and requests.
type Limits struct {
	// RateLimit makes instances acquire the resources of their rate_limiter before they execute. Resources are the
	// available amounts; of others there is as much as the instance that needs the most.
	RateLimit bool
	Resources []device.Limit
	// Executions is the most concurrent executions of each device, Threads the most threads of concurrent
	// executions on the CPU; 0 for no bound.
	Executions, Threads int
	// TimeoutPerStep makes the timeout of a request that of each step of an ensemble, as in Triton, and not that of the whole.
	TimeoutPerStep bool
	// Watchdog is the longest time of an execution, and WatchdogFactor that times the 99.9th percentile of the model's; 0 for none.
	Watchdog       time.Duration
	WatchdogFactor float64
	// Memory is the bound of the memory of the server and its child processes; 0 for none, nil for that of the control group or the machine.
	Memory   *int64
	InFlight *int64 // the most bytes of requests in flight, 0 for no bound; nil for half of the memory
	// ClientKey is what tells clients apart, empty for nothing: header:NAME, identity or address. ClientWeights are their weights.
	ClientKey     string
	ClientWeights map[string]float64
}

// Endpoint is the address at which a protocol is served.
type Endpoint struct {
	Enabled   bool
	Address   string
	Port      int  // Port 0 selects a free port
	ReusePort bool // ReusePort allows several servers to share the port; the kernel distributes connections
}

// TLS names the PEM files of encrypted connections.
type TLS struct {
	Enabled                         bool
	Mutual                          bool // Mutual requires clients to present a certificate that RootCert has signed
	ServerCert, ServerKey, RootCert string
}

// HTTP configures the HTTP endpoint.
type HTTP struct {
	Endpoint
	TLS      TLS
	MaxInput int64 // the largest request in bytes
	// FastPath serves plain HTTP/1.1 requests without net/http, and reads and writes the connections of both protocols with
	// direct system calls.
	FastPath bool
	// TextAPI serves the routes of OpenAI, Cohere, Jina and Text Embeddings Inference.
	TextAPI bool
	// Tools serves models as tools of the Model Context Protocol.
	Tools bool
	// ForwardPattern picks the headers that become request parameters, as a regular
	// expression in which case does not matter; empty for none.
	ForwardPattern string
	Restricted     []infer.Restriction
	// Hosts are further names by which browsers may reach the server, Origins those of other sites whose pages may change it.
	Hosts, Origins []string
}

// ignoreCase is the prefix of patterns of headers, whose names ignore case. A pattern that begins with (?-i)
// restores it.
const ignoreCase = "(?i)"

// Forward compiles ForwardPattern; it returns nil if the pattern is empty.
func (h *HTTP) Forward() (*regexp.Regexp, error) { return forward(h.ForwardPattern) }

// GRPC configures the gRPC endpoint.
type GRPC struct {
	Endpoint
	TLS TLS
	// ForwardPattern picks the metadata that become request parameters, as that of HTTP does; empty for none.
	ForwardPattern string
	Restricted     []infer.Restriction
	Compression    string // Compression of responses is none, low, medium or high
	// KeepaliveTime is the time after which an idle connection is pinged, KeepaliveTimeout the longest wait for the
	// response.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// MinPingInterval is the shortest time between a client's pings; PermitWithoutCalls allows pings while no call
	// is open.
	MinPingInterval    time.Duration
	PermitWithoutCalls bool
	// MaxAge is the time after which a connection is closed in order; open calls are cut off MaxAgeGrace later. 0
	// for never.
	MaxAge, MaxAgeGrace time.Duration
	MaxMessage          int // the largest message in bytes, before and after decompression
}

// Forward compiles ForwardPattern; it returns nil if the pattern is empty.
func (g *GRPC) Forward() (*regexp.Regexp, error) { return forward(g.ForwardPattern) }

func forward(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil //nolint:nilnil // nothing is forwarded
	}
	return regexp.Compile(ignoreCase + pattern)
}

// Trace selects the requests that are traced, and where traces are written.
type Trace struct {
	Mode   string   // triton or opentelemetry
	Levels []string // OFF, TIMESTAMPS and TENSORS
	// Rate N traces one of N requests. Count is the number of traces after which tracing ends, -1 for no end.
	Rate, Count   int
	File          string // the trace file. LogFrequency is the number of traces in each file, 0 for a single file.
	LogFrequency  int
	OpenTelemetry [][2]string // OpenTelemetry holds the settings of that mode in the order given
}

// Metrics configures the endpoint for metrics and the exported metrics.
type Metrics struct {
	Endpoint
	Export telemetry.ExportOptions
}

// Dashboard configures the dashboard under /ui/.
type Dashboard struct {
	Enabled bool
	Token   string // Token allows clients that send it to change things; the dashboard is read-only if it is empty
	// Links lead from the page of a request to its trace in other programs.
	Links []inspect.LinkTemplate
}

// Access configures who may use what.
type Access struct {
	File  string // the auth file; empty for none
	Audit string // the audit log, a file or stderr; empty for none
	// RemoteControl lets clients of other machines change the server if there is no auth file.
	RemoteControl bool
}

// TraceStore configures the store of traces of recent requests.
type TraceStore struct {
	Bytes int64 // the size of the store, 0 for none
	// Every N stores one of N requests that neither fail nor are slow, 0 for none. AtMost is the most requests
	// examined in a second.
	Every, AtMost int
	Params        []string // Params names the request parameters that are stored with a trace
}

// Capture configures the capture of request tensors.
type Capture struct {
	// Bytes is the most memory for all captured requests, 0 to disable capturing; RequestBytes bounds the contents
	// of one request.
	Bytes, RequestBytes int64
	// RedactTensors and RedactModels are patterns of tensors and models whose contents are never captured.
	RedactTensors, RedactModels []string
}

// The values of ControlMode.
const (
	ModeNone     = "none"
	ModePoll     = "poll"
	ModeExplicit = "explicit"
)

// What becomes of models for GPUs that are not there.
const (
	FallbackNone = "none"
	FallbackCPU  = "cpu"
)

// The values of Isolation.
const (
	IsolationNone    = "none"
	IsolationProcess = "process"
)

// What becomes of a load that does not fit on its GPU.
const (
	MemoryRefuse = "refuse"
	MemoryLRU    = "lru"
)

const (
	traceTriton, traceOpenTelemetry = "triton", "opentelemetry"
	traceOff                        = "OFF"
)

// Default returns the default options. They have no repository, which is the only mandatory option.
func Default() Options {
	o := Options{BackendConfig: BackendConfig{}, Trace: Trace{Mode: traceTriton}}
	for _, f := range o.flags() {
		if f.Default == "" || f.Class != Honoured {
			continue
		}
		if err := f.set(f.Default); err != nil {
			panic("default of --" + f.Name + ": " + err.Error())
		}
	}
	return o
}

// Models returns the models to load at start, nil for all of them.
func (o *Options) Models() []string {
	if o.ControlMode != ModeExplicit || len(o.LoadModels) == 1 && o.LoadModels[0] == allModels {
		return nil
	}
	return append([]string{}, o.LoadModels...)
}

// allModels is the value of --load-model that stands for every model.
const allModels = "*"
