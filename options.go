package tutti

import (
	"math"
	"time"

	"tutti/core/logs"
	"tutti/server/httpapi"
)

// Options is what a server can be told. ParseOptions makes it from a command line, the
// environment and a file; each field is a flag of Flags.
type Options struct {
	// ID is the server's name in its metadata.
	ID string
	// Repositories are folders that hold models.
	Repositories []string
	// ControlMode is none, poll or explicit.
	ControlMode string
	// LoadModels are the models to load in mode explicit; "*" alone stands for all.
	LoadModels []string
	// PollInterval is the time between two looks at the repositories in mode poll.
	PollInterval time.Duration
	// ModelConfigName, when not empty, picks configs/NAME.pbtxt of a model that has it.
	ModelConfigName string
	// LoadThreads is how many models load at a time, LoadRetries how often a load that
	// failed is tried again.
	LoadThreads, LoadRetries int
	// ModelCache is the folder for models of buckets; empty for the usual one.
	ModelCache string
	// Namespacing lets several repositories hold models of one name.
	Namespacing bool
	// DisableAutoComplete takes every configuration as it is written.
	DisableAutoComplete bool
	// StrictEnsembleConfig asks ensembles to declare what their steps could tell.
	StrictEnsembleConfig bool
	// ExitOnError ends a server that cannot load every model.
	ExitOnError bool
	// StrictReadiness makes the server ready only when every model is.
	StrictReadiness bool
	// ExitTimeout bounds the orderly end.
	ExitTimeout time.Duration
	// BackendConfig holds settings by backend name; those of the empty name are every backend's.
	BackendConfig map[string]map[string]string
	HTTP          HTTPOptions
	GRPC          GRPCOptions
	Metrics       Endpoint
	// ClientSHM lets clients register shared memory.
	ClientSHM bool
	Log       logs.Settings
	Trace     TraceOptions
	// Notices are what the server says about its options when it starts.
	Notices []Notice
}

// Endpoint is where a protocol is served.
type Endpoint struct {
	Enabled bool
	Address string
	// Port 0 takes a free one.
	Port int
	// ReusePort lets several servers share the port; the kernel spreads connections.
	ReusePort bool
}

// TLSOptions are the files of encrypted connections, PEM each.
type TLSOptions struct {
	Enabled bool
	// Mutual asks the client for a certificate that RootCert has signed.
	Mutual                          bool
	ServerCert, ServerKey, RootCert string
}

// HTTPOptions is how HTTP is served.
type HTTPOptions struct {
	Endpoint
	TLS TLSOptions
	// MaxInput bounds a request in bytes.
	MaxInput int64
	// ForwardPattern picks the headers that become request parameters, as a regular
	// expression in which case does not matter; empty for none.
	ForwardPattern string
	Restricted     []Restriction
}

// GRPCOptions is how gRPC is served.
type GRPCOptions struct {
	Endpoint
	TLS TLSOptions
	// ForwardPattern picks the metadata that become request parameters; empty for none.
	ForwardPattern string
	Restricted     []Restriction
	// Compression of responses is none, low, medium or high.
	Compression string
	// KeepaliveTime is when an idle connection is asked for a sign of life,
	// KeepaliveTimeout how long the answer may take.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// MinPingInterval is the shortest time between a client's pings; PermitWithoutCalls
	// allows pings while no call is open.
	MinPingInterval    time.Duration
	PermitWithoutCalls bool
	// MaxAge ends a connection after this time, MaxAgeGrace after that also cuts off
	// its calls; 0 for never.
	MaxAge, MaxAgeGrace time.Duration
}

// Restriction lets only those who send a header use some of the API.
type Restriction struct {
	// APIs are the restricted categories, as in "model-repository".
	APIs []string
	// Key and Value are of the header that opens them.
	Key, Value string
}

// TraceOptions is which requests are traced, and where to.
type TraceOptions struct {
	// Mode is triton or opentelemetry.
	Mode string
	// Levels are OFF, TIMESTAMPS and TENSORS.
	Levels []string
	// Rate traces one request in so many, Count ends after so many (-1: never).
	Rate, Count int
	// File is where traces go, LogFrequency after how many a new one is begun (0: one).
	File         string
	LogFrequency int
	// OpenTelemetry holds the settings of that mode, in the order given.
	OpenTelemetry [][2]string
}

const (
	defaultHTTPPort    = 8000
	defaultGRPCPort    = 8001
	defaultMetricsPort = 8002
	defaultAddress     = "0.0.0.0"
	defaultExitTimeout = 30 * time.Second
	defaultPoll        = 15 * time.Second
	defaultLoadThreads = 4
	defaultKeepalive   = 2 * time.Hour
	defaultKeepTimeout = 20 * time.Second
	defaultMinPing     = 5 * time.Minute
	defaultTraceRate   = 1000

	modeNone, modePoll, modeExplicit = "none", "poll", "explicit"

	traceTriton, traceOpenTelemetry = "triton", "opentelemetry"
	traceOff                        = "OFF"
	traceForever                    = -1

	maxInt = math.MaxInt32 // what Triton's numbers hold
)

// DefaultOptions returns the defaults of serve, which lack a repository only.
func DefaultOptions() Options {
	return Options{
		ID:              tritonID,
		ControlMode:     modeNone,
		PollInterval:    defaultPoll,
		LoadThreads:     defaultLoadThreads,
		ExitOnError:     true,
		StrictReadiness: true,
		ExitTimeout:     defaultExitTimeout,
		BackendConfig:   map[string]map[string]string{},
		HTTP: HTTPOptions{
			Endpoint: Endpoint{Enabled: true, Address: defaultAddress, Port: defaultHTTPPort},
			MaxInput: httpapi.DefaultMaxInput,
		},
		GRPC: GRPCOptions{
			Endpoint:    Endpoint{Enabled: true, Address: defaultAddress, Port: defaultGRPCPort},
			Compression: "none", KeepaliveTime: defaultKeepalive, KeepaliveTimeout: defaultKeepTimeout, MinPingInterval: defaultMinPing,
		},
		Metrics: Endpoint{Enabled: true, Port: defaultMetricsPort},
		Log:     logs.Settings{Info: true, Warning: true, Error: true, Format: logs.Default},
		Trace:   TraceOptions{Mode: traceTriton, Rate: defaultTraceRate, Count: traceForever},
	}
}

// tritonID is the name by which clients know a server that was given none.
const tritonID = "triton"

// Models returns the models to load at start, nil for all of them.
func (o *Options) Models() []string {
	if o.ControlMode != modeExplicit || len(o.LoadModels) == 1 && o.LoadModels[0] == allModels {
		return nil
	}
	return append([]string{}, o.LoadModels...)
}

// allModels is the --load-model that stands for every model.
const allModels = "*"
