package options

import (
	"math"
	"regexp"
	"time"

	"github.com/tutti-server/tutti/internal/cache/redis"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler/device"
)

// Options is what a server can be told. Parse makes it from a command line, the
// environment and a file; each field is a flag of Flags.
type Options struct {
	// ID is the server's name in its metadata.
	ID string
	// Repositories are folders that hold models.
	Repositories []string
	// ControlMode is ModeNone, ModePoll or ModeExplicit.
	ControlMode string
	// LoadModels are the models to load in mode explicit; "*" alone stands for all.
	LoadModels []string
	// PollInterval is the time between two looks at the repositories in mode poll.
	PollInterval time.Duration
	// ModelConfigName, when not empty, picks configs/NAME.pbtxt of a model that has it.
	ModelConfigName string
	// BacklogDelayScheduler is how many requests must be without a slot before a model's
	// first batch: the test hook TRITONSERVER_BACKLOG_DELAY_SCHEDULER.
	BacklogDelayScheduler int
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
	// StrictParameters refuses settings of models, backends and caches that nobody reads.
	StrictParameters bool
	// GPUFallback is FallbackNone, or FallbackCPU to run on the CPU what asks for GPUs that are not there.
	GPUFallback string
	// ExitOnError ends a server that cannot load every model.
	ExitOnError bool
	// StrictReadiness makes the server ready only when every model is.
	StrictReadiness bool
	// ExitTimeout bounds the orderly end, ExitConnections how long open HTTP connections are waited for at its beginning.
	ExitTimeout     time.Duration
	ExitConnections time.Duration
	BackendConfig   BackendConfig
	Limits          Limits
	// HostPolicies are the settings of host policies by name; every one was parsed.
	HostPolicies map[string]map[string]string
	Cache        Cache
	HTTP         HTTP
	GRPC         GRPC
	Metrics      Metrics
	// ClientSHM lets clients register shared memory.
	ClientSHM bool
	Log       logs.Settings
	Trace     Trace
	// Dashboard and TraceStore are what the server shows of itself.
	Dashboard  Dashboard
	TraceStore TraceStore
	Capture    Capture
	// DelayScheduler is how many requests a dynamic batcher waits for before its first
	// batch: the test hook TRITONSERVER_DELAY_SCHEDULER.
	DelayScheduler int
	// Notices are what the server says about its options when it starts.
	Notices []Notice
}

// Cache is where answers of models with response_cache are kept.
type Cache struct {
	// Name is local or redis; empty for nowhere.
	Name string
	// Local is the size of the local cache in bytes.
	Local int64
	Redis redis.Config

	// Settings are those of each cache as they were given; nil once they are read.
	Settings map[string]map[string]string
}

// Limits say what may execute at a time.
type Limits struct {
	// RateLimit has instances take the resources of their rate_limiter; Resources is how
	// much there is, of which the instance that needs most has enough when empty.
	RateLimit bool
	Resources []device.Limit
	// Executions bounds the executions of each device, Threads those of models on the
	// CPU; 0 for no bound.
	Executions, Threads int
	// InFlight is the bytes of requests that may be in flight, 0 for any number; nil for
	// half of the memory there is.
	InFlight *int64
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

// TLS are the files of encrypted connections, PEM each.
type TLS struct {
	Enabled bool
	// Mutual asks the client for a certificate that RootCert has signed.
	Mutual                          bool
	ServerCert, ServerKey, RootCert string
}

// HTTP is how HTTP is served.
type HTTP struct {
	Endpoint
	TLS TLS
	// MaxInput bounds a request in bytes.
	MaxInput int64
	// FastPath serves plain HTTP/1.1 requests without net/http, and reads and writes the connections of both protocols with
	// direct system calls.
	FastPath bool
	// ForwardPattern picks the headers that become request parameters, as a regular
	// expression in which case does not matter; empty for none.
	ForwardPattern string
	Restricted     []Restriction
}

// ignoreCase begins the patterns of headers, whose names have no case; a pattern that begins with (?-i) takes it back.
const ignoreCase = "(?i)"

// Forward compiles ForwardPattern; it returns nil when that is empty.
func (h *HTTP) Forward() (*regexp.Regexp, error) { return forward(h.ForwardPattern) }

// GRPC is how gRPC is served.
type GRPC struct {
	Endpoint
	TLS TLS
	// ForwardPattern picks the metadata that become request parameters, as that of HTTP does; empty for none.
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
	// MaxMessage bounds a message in bytes, before and after decompression.
	MaxMessage int
}

// Forward compiles ForwardPattern; it returns nil when that is empty.
func (g *GRPC) Forward() (*regexp.Regexp, error) { return forward(g.ForwardPattern) }

func forward(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil //nolint:nilnil // nothing is forwarded
	}
	return regexp.Compile(ignoreCase + pattern)
}

// Restriction lets only those who send a header use some of the API.
type Restriction struct {
	// APIs are the restricted categories, as in "model-repository".
	APIs []string
	// Key and Value are of the header that opens them.
	Key, Value string
}

// Trace is which requests are traced, and where to.
type Trace struct {
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

const (
	defaultHTTPPort    = 8000
	defaultGRPCPort    = 8001
	defaultMetricsPort = 8002
	defaultAddress     = "0.0.0.0"
	defaultExitTimeout = 30 * time.Second
	// defaultExitConnections is shorter than Triton's, which waits all of the exit timeout for idle clients.
	defaultExitConnections = 5 * time.Second
	defaultPoll            = 15 * time.Second
	defaultLoadThreads     = 4
	defaultKeepalive       = 2 * time.Hour
	defaultKeepTimeout     = 20 * time.Second
	defaultMinPing         = 5 * time.Minute
	defaultTraceRate       = 1000

	traceTriton, traceOpenTelemetry = "triton", "opentelemetry"
	traceOff                        = "OFF"
	traceForever                    = -1

	maxInt = math.MaxInt32 // what Triton's numbers hold
)

// Default returns what stands when nothing is given, which lacks a repository only.
func Default() Options {
	return Options{
		ID:              tritonID,
		ControlMode:     ModeNone,
		GPUFallback:     FallbackNone,
		PollInterval:    defaultPoll,
		LoadThreads:     defaultLoadThreads,
		ExitOnError:     true,
		StrictReadiness: true,
		ExitTimeout:     defaultExitTimeout,
		ExitConnections: defaultExitConnections,
		BackendConfig:   BackendConfig{},
		HTTP: HTTP{
			Endpoint: Endpoint{Enabled: true, Address: defaultAddress, Port: defaultHTTPPort},
			MaxInput: httpapi.DefaultMaxInput, FastPath: true,
		},
		GRPC: GRPC{
			Endpoint:   Endpoint{Enabled: true, Address: defaultAddress, Port: defaultGRPCPort},
			MaxMessage: math.MaxInt32, Compression: "none", KeepaliveTime: defaultKeepalive, KeepaliveTimeout: defaultKeepTimeout, MinPingInterval: defaultMinPing,
		},
		Metrics: Metrics{
			Endpoint: Endpoint{Enabled: true, Port: defaultMetricsPort},
			Export:   telemetry.ExportOptions{CPU: true, GPU: true, Interval: defaultInterval},
		},
		Log:   logs.Settings{Info: true, Warning: true, Error: true, Format: logs.Default},
		Trace: Trace{Mode: traceTriton, Rate: defaultTraceRate, Count: traceForever},

		Dashboard:  Dashboard{Enabled: true},
		TraceStore: TraceStore{Bytes: defaultStoreBytes, Every: defaultStoreEvery, AtMost: defaultStoreRate},
		Capture:    Capture{Bytes: defaultCaptureBytes, RequestBytes: defaultCaptureRequest},
	}
}

// tritonID is the name by which clients know a server that was given none.
const tritonID = "triton"

// Models returns the models to load at start, nil for all of them.
func (o *Options) Models() []string {
	if o.ControlMode != ModeExplicit || len(o.LoadModels) == 1 && o.LoadModels[0] == allModels {
		return nil
	}
	return append([]string{}, o.LoadModels...)
}

// allModels is the --load-model that stands for every model.
const allModels = "*"
