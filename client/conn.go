package client

import (
	"context"
)

// Conn is a Manager with the rest of the protocol: health, settings and shared memory. HTTP and GRPC implement it.
type Conn interface {
	Manager
	// Live reports whether the server is live.
	Live(ctx context.Context) (bool, error)
	// ModelReady reports whether a model is ready. An empty version leaves the choice to the server.
	ModelReady(ctx context.Context, model, version string) (bool, error)
	// Server describes the server.
	Server(ctx context.Context) (*ServerMetadata, error)
	// LoadWith loads a model with a configuration, and files, that replace those of its repository. nil is Load.
	LoadWith(ctx context.Context, model string, o *LoadOptions) error
	// TraceSettings returns the trace settings of a model, or of the server if model is empty.
	TraceSettings(ctx context.Context, model string) (TraceSettings, error)
	// SetTrace changes trace settings of a model, or of the server, and returns all. A setting without values is reset to that of
	// the server.
	SetTrace(ctx context.Context, model string, changes TraceSettings) (TraceSettings, error)
	// LogSettings returns the log settings.
	LogSettings(ctx context.Context) (LogSettings, error)
	// SetLog changes log settings and returns all.
	SetLog(ctx context.Context, changes LogSettings) (LogSettings, error)
	SharedMemory
}

// SharedMemory has the calls for shared memory regions. The server must allow them (--allow-client-shm).
type SharedMemory interface {
	// RegisterSystem registers size bytes from an offset of a POSIX shared memory object under a name. CreateShared makes one.
	RegisterSystem(ctx context.Context, name, key string, offset, size uint64) error
	// UnregisterSystem unregisters a region, or all if name is empty. It fails while a request uses the region.
	UnregisterSystem(ctx context.Context, name string) error
	// SystemRegions returns the region of a name, or all if name is empty, in no order.
	SystemRegions(ctx context.Context, name string) ([]SystemRegion, error)
	// RegisterCUDA registers memory of a GPU, of which handle is the cudaIpcMemHandle_t, under a name.
	RegisterCUDA(ctx context.Context, name string, handle []byte, device int64, size uint64) error
	// UnregisterCUDA unregisters a region, or all if name is empty.
	UnregisterCUDA(ctx context.Context, name string) error
	// CUDARegions returns the region of a name, or all if name is empty, in no order.
	CUDARegions(ctx context.Context, name string) ([]CUDARegion, error)
}

// ServerMetadata describes a server.
type ServerMetadata struct {
	Name       string   `json:"name"`
	Version    string   `json:"version"`
	Extensions []string `json:"extensions"`
}

// LoadOptions are the options of a load.
type LoadOptions struct {
	// Config replaces config.pbtxt: a configuration as JSON; empty for that of the repository.
	Config string
	// Files replace the files of the model, all of them: contents by path. For example: "1/model.onnx". Config is then required.
	Files map[string][]byte

	_ struct{}
}

// TraceSettings are trace settings: values by name. For example: {"trace_level": {"TIMESTAMPS"}, "trace_rate": {"100"}}.
type TraceSettings map[string][]string

// LogSettings are log settings by name: values of type bool, string or uint32. For example: {"log_verbose_level": uint32(1)}.
type LogSettings map[string]any

// SystemRegion is a registered region of POSIX shared memory.
type SystemRegion struct {
	Name   string `json:"name"`
	Key    string `json:"key"`
	Offset uint64 `json:"offset"`
	Size   uint64 `json:"byte_size"`
}

// CUDARegion is a registered region of a GPU's memory.
type CUDARegion struct {
	Name   string `json:"name"`
	Device int64  `json:"device_id"`
	Size   uint64 `json:"byte_size"`
}
