package repository

import (
	"context"
	"log/slog"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/cache"
	"github.com/tutti-server/tutti/internal/cloud"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/scheduler/device"
)

// Mode selects who decides which models are loaded after the start.
type Mode uint8

// The control modes.
const (
	// Fixed serves the models found at the start: Triton's model control mode "none".
	Fixed Mode = iota
	// Explicit serves the models that Load and Unload select.
	Explicit
	// Polled follows changes of the folders.
	Polled
)

// Settings configure a Repository.
type Settings struct {
	Build string // identifies the code of the native steps, for Fingerprint. For example, the version of the server.
	// Roots are folders that hold models, or addresses of buckets. For example, "/models" or "s3://bucket/models".
	Roots []string
	// Cache is the folder for models from buckets. Empty: the folder of TRITON_AWS_MOUNT_DIRECTORY,
	// TRITON_GCS_MOUNT_DIRECTORY or TRITON_AZURE_MOUNT_DIRECTORY, else a folder in the user's cache.
	Cache string
	// OpenBucket opens the bucket at an address. Nil: cloud.Open.
	OpenBucket func(ctx context.Context, address string) (cloud.Bucket, error)
	// BucketTimeout is the limit for listing a bucket, and for a download without a received byte. 0: one minute.
	BucketTimeout time.Duration
	// Progress receives the downloaded and the total bytes of a model, in place of the log. It must be safe for
	// concurrent use. Optional.
	Progress func(model string, done, total int64)
	Mode     Mode
	// Only names the models to load at the start. The models of an ensemble among them are loaded too. Nil loads
	// every model.
	Only []string
	// Tolerant makes Open succeed when a root cannot be read. The repository then serves no models and Err returns
	// the reason. A name in Only that no root holds is logged.
	Tolerant bool
	// PollInterval is the time between two looks at the folders in mode Polled. 0: only Poll looks.
	PollInterval time.Duration
	ConfigName   string // selects configs/NAME.pbtxt over config.pbtxt in models that have it
	LoadThreads  int    // the number of versions that load concurrently. 0: 4, as in Triton.
	LoadRetries  int    // the number of further attempts after a version fails to load
	// StrictConfig rejects a configuration without inputs or outputs. Otherwise the model's own are used.
	StrictConfig bool
	// Watchdog is the longest time of an execution, and WatchdogFactor that times the 99.9th percentile of a model's; 0 for none.
	Watchdog       time.Duration
	WatchdogFactor float64
	// TimeoutPerStep makes the timeout of a request that of each step of an ensemble, as in Triton.
	TimeoutPerStep bool
	// StrictEnsembleConfig requires ensembles to declare inputs and outputs, as Triton does. Otherwise they are
	// derived from the steps.
	StrictEnsembleConfig bool
	// StrictParams rejects model parameters that nothing reads. Otherwise they are logged as a warning.
	StrictParams bool
	QuietNotices bool // keeps notices about configurations out of the log
	GPUFallback  bool // runs KIND_GPU instances on the CPU when the machine lacks the GPU
	// Namespacing makes each root a namespace, so that models in different roots may share a name. An ensemble
	// looks for its models in its own namespace first.
	Namespacing bool

	// Accelerators are the devices where instances may execute. Backends may add others. The caller closes them after the
	// repository. NoAccelerator is why there are none, for the log if a model asks for one.
	Accelerators  []tensor.Accelerator
	NoAccelerator error
	Pinned        tensor.Allocator // pinned memory for copies to and from devices; nil for none
	// Room returns why no further instance may be made at a device, or nil. Optional.
	Room func(at tensor.Place) error
	// EvictIdle makes room at a full device by unloading the models there that have been idle longest. They serve on: the next request
	// loads them again. Otherwise a load that does not fit fails.
	EvictIdle bool
	// Residence is how long a model stays loaded at least while it has requests, before others get its place. 0: one second.
	Residence time.Duration
	Limits    device.Settings // bound what executes concurrently
	// HostPolicies bind instances to CPUs and NUMA nodes, by the name of the policy.
	HostPolicies map[string]*device.Policy
	// DelayScheduler makes a batcher wait for this many requests before its first batch. 0: no wait. For tests, as
	// Triton's TRITONSERVER_DELAY_SCHEDULER.
	DelayScheduler int
	// BacklogDelayScheduler makes a sequence batcher wait until this many requests have no slot before its first
	// batch. 0: no wait. For tests.
	BacklogDelayScheduler int

	Crashes  backends.CrashRecorder // see backends.Options
	Isolate  bool                   // runs models in processes of their own where the backend can, see backends.Options
	Backends *backends.Registry
	// BackendConfig holds the values of --backend-config by backend name.
	BackendConfig map[string]map[string]string
	Alloc         tensor.Allocator
	// Responses stores responses of models with response_cache. Nil: no cache. The caller closes it after the
	// repository.
	Responses cache.Cache
	Metrics   *telemetry.Metrics
	Log       *slog.Logger
	Tracer    *tracing.Tracer // selects the requests to trace. Nil: none.

	_ struct{}
}
