// Package backends is the contract between the scheduler and the runtimes that execute models. It corresponds to Triton's
// backend API: a Factory opens a Backend, a Backend loads Models, a Model creates Instances, and an Instance executes
// Batches. Each child package implements the contract for one runtime. A backend does not know about queues, other models
// or network protocols.
//
// # Lifecycle
//
//  1. Factory.New opens the backend when the first model that needs it is loaded.
//  2. Backend.Load opens one version of one model. Several goroutines may call it at once.
//  3. Model.Signature describes the inputs and outputs; the server checks it once, against the configuration.
//  4. Model.NewInstance is called once for each instance of the configuration's instance_group.
//  5. Instance.Execute runs batches, for as long as the model is loaded.
//  6. Instance.Close, then Model.Close, then Backend.Close. Each closes after all that it created has been closed.
//
// A failed phase returns an error and leaves nothing open: for example, when NewInstance fails, the server closes the
// instances that exist and then the model.
//
// # Memory
//
// An input is borrowed: it is valid until Execute returns, and other requests may share it, so an instance must not write to
// it. An output moves to the batch. It may be memory of Batch.Alloc, memory of the runtime wrapped as a tensor, or an input
// that is passed through by Retain.
package backends

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Factory declares a backend and opens it. Factories are listed in the server's components; there is no global registry.
type Factory struct {
	// Name is the value of the field backend in config.pbtxt.
	Name string
	// Platforms are the values of the field platform that select this backend instead. For example, the backend
	// "onnxruntime" has the platform "onnxruntime_onnx".
	Platforms []string
	// DefaultFile is the name of the model file in the version folder, or empty for models without files.
	DefaultFile string
	// Native is true for a backend that opens a separate library or program, which may be missing. The Backend must then be
	// a Describer.
	Native bool
	// ConfigKeys are the keys of Options.Config that New reads, sorted.
	ConfigKeys []string
	// Params are the parameters of config.pbtxt that the backend reads. A trailing * matches any suffix. Nil allows every
	// parameter, for backends whose models read them.
	Params []string
	// New opens the backend.
	New func(Options) (Backend, error)
	// Auto returns the meaning of KIND_AUTO for models of the backend on a machine with GPUs, with these values of Options.Config. It
	// may look for libraries but must not open them. For example, config.AutoGPU where the runtime has CUDA. Nil: the CPU.
	Auto func(values map[string]string) config.Auto
	// Devices returns the device places that the backend adds when it is opened with these values of Options.Config.
	// Optional.
	Devices func(values map[string]string) []tensor.Place
	// Around returns the factory to use instead of that of another backend, with these values of Options.Config. For tests: the
	// backend sim runs models of all others at devices. Optional.
	Around func(values map[string]string, of Factory) Factory
	// Adopts returns why the backend loads a model although its configuration names another one, or one that is not listed: the path of a
	// file. For example, that of libtriton_mine.so for a model of the backend "mine". It returns "" for a model of others. It may look
	// for files but must not open them. Optional.
	Adopts func(Named) string
	// Guide is the documentation of the backend.
	Guide Guide
	// Prepare completes a fetched library on this machine. For example, pytorch compiles its C++ shim. It must keep results
	// that are still valid. progress may be nil. Optional.
	Prepare func(ctx context.Context, library string, progress io.Writer) error
}

// Guide is the user documentation of a backend. Together with the rest of its Factory it becomes a section of
// docs/backends.md.
type Guide struct {
	// Doc describes the models of the backend, in sentences.
	Doc string
	// Limits describes unsupported features, in sentences. It is empty for a backend without model files.
	Limits string
	// Params documents the parameters of config.pbtxt that the backend reads.
	Params []Param
}

// Param documents one parameter of config.pbtxt, or several similar ones: Key then has their names, separated by commas.
type Param struct{ Key, Doc string }

// Registry finds factories by backend name or platform. It is immutable and safe for concurrent use.
type Registry struct {
	byName     map[string]*Factory
	byPlatform map[string]*Factory
	adopters   []*Factory // those with Adopts
}

// NewRegistry returns a registry of the given factories. A name or platform that is listed twice is an error.
func NewRegistry(factories ...Factory) (*Registry, error) {
	r := &Registry{byName: map[string]*Factory{}, byPlatform: map[string]*Factory{}}
	for _, f := range factories {
		if r.byName[f.Name] != nil {
			return nil, fmt.Errorf("backend '%s' is listed twice", f.Name)
		}
		r.byName[f.Name] = &f
		if f.Adopts != nil {
			r.adopters = append(r.adopters, &f)
		}
		for _, p := range f.Platforms {
			if r.byPlatform[p] != nil {
				return nil, fmt.Errorf("platform '%s' is listed twice", p)
			}
			r.byPlatform[p] = &f
		}
	}
	return r, nil
}

// Configured returns the registry in which factories with Around have replaced others. settings has the values of Options.Config by
// backend.
func (r *Registry) Configured(settings map[string]map[string]string) *Registry {
	out := &Registry{byName: maps.Clone(r.byName), byPlatform: maps.Clone(r.byPlatform), adopters: r.adopters}
	for _, name := range r.Names() {
		around := r.byName[name].Around
		if around == nil || settings[name] == nil {
			continue
		}
		for _, other := range r.Names() {
			if other != name {
				f := around(settings[name], *out.byName[other])
				out.byName[other] = &f
			}
		}
	}
	for platform, f := range r.byPlatform {
		out.byPlatform[platform] = out.byName[f.Name]
	}
	return out
}

// ByName returns the factory of a backend name, or nil.
func (r *Registry) ByName(name string) *Factory { return r.byName[name] }

// Params returns Factory.Params of the backend with that name, or nil.
func (r *Registry) Params(name string) []string {
	if f := r.byName[name]; f != nil {
		return f.Params
	}
	return nil
}

// Auto returns what Factory.Auto of the backend with that name returns for values.
func (r *Registry) Auto(name string, values map[string]string) config.Auto {
	if f := r.byName[name]; f != nil && f.Auto != nil {
		return f.Auto(values)
	}
	return config.AutoCPU
}

// Names returns the names of all backends, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// ByPlatform returns the factory of a platform name, or nil.
func (r *Registry) ByPlatform(platform string) *Factory { return r.byPlatform[platform] }

// Options are the arguments of Factory.New.
type Options struct {
	Log *slog.Logger
	// Config has the values of --backend-config=NAME,key=value.
	Config map[string]string
	// Others has the values of all backends by name, for a backend that opens other backends.
	Others map[string]map[string]string
	// Places registers devices. A backend with devices adds them when it is opened and removes them when it is closed.
	Places *tensor.Places
	// Infer, Control and Catalog give models access to the server: to call, load and inspect other models. Each may be nil.
	Infer   infer.Inferer
	Control infer.Lifecycle
	Catalog infer.Catalog
	// Metrics receives custom metrics of models. It is nil when the server exports no metrics.
	Metrics *telemetry.Metrics
	// Isolate runs models in processes of their own unless their configuration says otherwise (--isolation=process). Backends that cannot
	// ignore it.
	Isolate bool
	// Crashes keeps the inputs of requests that end the processes of models. It is nil when the server captures no requests.
	Crashes CrashRecorder

	_ struct{}
}

// CrashRecorder keeps the inputs of requests that end the processes of models, bounded in number and size. It is safe for concurrent use.
type CrashRecorder interface {
	// RecordCrash copies the inputs of a request and returns the id under which they are kept, or "" if they are not. The tensors are
	// borrowed, and on the host.
	RecordCrash(model string, version int64, request string, in []infer.Named) string
}

// Backend loads models of one runtime.
//
// Lifecycle:
//
//  1. Factory.New returns the open backend.
//  2. Load may be called any number of times, by several goroutines at once.
//  3. Close is called once, after every model of the backend has been closed. Load must not be called afterwards.
//
// For example, the backend "onnxruntime" opens libonnxruntime.so in New, creates one session per model in Load, and releases
// the library in Close.
type Backend interface {
	// Load opens one version of a model. It should return soon after ctx is cancelled. An error makes the version
	// unavailable; its text is the reason that clients and the log see.
	Load(ctx context.Context, s Settings) (Model, error)
	// Close frees the runtime.
	Close() error
}

// Describer is a Backend that reports its runtime, for example "ONNX Runtime 1.24.1, /usr/lib/libonnxruntime.so".
type Describer interface {
	Backend
	// Describe returns the version of the runtime and the path of its library.
	Describe() string
}

// Checker is a Backend that opens even when a dependency of some models is missing. For example, the python backend opens
// without an interpreter, because models may bring their own.
type Checker interface {
	Backend
	// Check returns an error that names the missing dependency, or nil.
	Check() error
}

// Settings are the arguments of Backend.Load.
type Settings struct {
	Model   string
	Version int64
	// ModelDir is the folder of config.pbtxt, Dir the folder of the version.
	ModelDir, Dir string
	// Config is the normalised configuration, before completion. Borrowed: the backend must not change it.
	Config *modelconfig.ModelConfig
	// Declared is Config without the inputs and outputs that sequence batching adds to it: what Triton shows to models. Nil means Config.
	// Borrowed.
	Declared *modelconfig.ModelConfig
	// Filename is the file of cc_model_filenames for the GPUs of the instances; empty if there is none.
	Filename string
	// Origin is the file that the model file was converted from, for errors; empty if it is the user's own.
	Origin string
	// Instances is the number of instances that will be created.
	Instances int
	// Strict is true when the configuration must not be completed from the model (--disable-auto-complete-config).
	Strict bool
	// Alloc allocates tensors outside of a batch.
	Alloc tensor.Allocator
	// Copied counts a copy of a tensor to or from a process of the model that no batch knows. For example, of an output of a call that a
	// Python model makes. It is safe for concurrent use. Nil counts nothing.
	Copied func(name string, from, to tensor.Place, bytes int)
	Log    *slog.Logger

	_ struct{}
}

// EditConfigs replaces Config and Declared by copies with a change. For example, a backend that has another one load the model changes both.
func (s *Settings) EditConfigs(change func(*modelconfig.ModelConfig)) {
	s.Config = proto.CloneOf(s.Config)
	change(s.Config)
	if s.Declared != nil {
		s.Declared = proto.CloneOf(s.Declared)
		change(s.Declared)
	}
}

// DeclaredConfig returns Declared, or Config if that is nil.
func (s *Settings) DeclaredConfig() *modelconfig.ModelConfig { return cmp.Or(s.Declared, s.Config) }

// Param returns the string value of a parameter of config.pbtxt, or "" when it is not set.
func (s *Settings) Param(key string) string {
	return s.Config.GetParameters()[key].GetStringValue()
}

// File returns the path of the model file in the version folder. default_model_filename of the configuration overrides name, and
// Filename both.
func (s *Settings) File(name string) string {
	return filepath.Join(s.Dir, cmp.Or(s.Filename, s.Config.GetDefaultModelFilename(), name))
}

// Model is one loaded version of a model.
//
// Lifecycle:
//
//  1. Backend.Load returns the model.
//  2. Signature and the methods of the optional interfaces below may be called at any time, concurrently.
//  3. NewInstance is called Settings.Instances times. Several goroutines may call it at once.
//  4. Close is called after every instance has been closed. A second call must do nothing.
//
// For example, a model "resnet" with instance_group [ { count: 2 } ] is loaded once; two calls of NewInstance create two
// executors that share its weights.
type Model interface {
	// Signature returns the inputs and outputs, in the order of Batch.In and Batch.Out. It must not change.
	//
	// Ports that the configuration declares must be returned as declared; for ports that it leaves out the model's own are
	// returned. Dims are those at the model: of a port with a reshape, the reshaped ones. Ragged inputs, inputs of
	// batch_input and outputs of batch_output have no batch dimension and must be marked Whole; the server refuses such
	// a configuration when the backend does not mark them.
	Signature() *config.Signature
	// NewInstance returns an executor at a place, the host or one of DeviceModel.Places.
	NewInstance(ctx context.Context, at tensor.Place) (Instance, error)
	// Close frees the model.
	Close() error
}

// ConfigCompleter is a Model that completes more of its configuration than the ports of its Signature. For example,
// auto_complete_config of a Python model may set max_batch_size.
type ConfigCompleter interface {
	Model
	// CompletedConfig returns the whole configuration, or nil when the given one is complete. The result must not change.
	CompletedConfig() *modelconfig.ModelConfig
}

// DeviceModel is a Model with instances at devices. The instances of any other model run on the host.
type DeviceModel interface {
	Model
	// Places returns the places that NewInstance accepts, at least one.
	Places() []tensor.Place
}

// GroupModel is a Model whose instances depend on their instance group. For example, those of a TensorRT plan execute with the
// optimization profiles that the field profile of the group lists.
type GroupModel interface {
	Model
	// NewGroupInstance is called instead of NewInstance. The group is borrowed.
	NewGroupInstance(ctx context.Context, at tensor.Place, g *modelconfig.ModelInstanceGroup) (Instance, error)
}

// HostModel is a Model without instances at devices that can say why. The plans of ensembles show the reason.
type HostModel interface {
	Model
	// WhyHost returns the reason, for example "step 'tokenize' has no kernel". It returns "" if there are no devices.
	WhyHost() string
}

// DeviceInstance is an Instance at a device. The server moves its inputs there, and expects its outputs there. BYTES tensors
// are always on the host.
type DeviceInstance interface {
	Instance
	// Stream returns the stream on which the instance executes. Borrowed: it is closed by Close.
	Stream() tensor.Stream
}

// StreamOf returns the stream of an instance at a device, or nil for an instance on the host. It looks through wrappers that
// have a method Unwrap.
func StreamOf(inst Instance) tensor.Stream {
	for {
		if p, ok := inst.(DeviceInstance); ok {
			return p.Stream()
		}
		w, ok := inst.(interface{ Unwrap() Instance })
		if !ok {
			return nil
		}
		inst = w.Unwrap()
	}
}

// AnyPlaceInstance is an Instance on the host that reads and writes tensors at devices too. For example, a Python model may take an
// input from GPU 0 and return an output on it. Its outputs may be at any device of the server, ready when Execute returns.
type AnyPlaceInstance interface {
	Instance
	// InputsStay reports whether inputs stay where they are; otherwise the server moves them to the host. Rows of several
	// requests are joined at a device if one of them is there.
	InputsStay() bool
	// StreamAt returns a stream of a device for the server's work on the inputs and outputs of the instance. Borrowed: it is
	// closed by Close.
	StreamAt(at tensor.Place) (tensor.Stream, error)
}

// AnyPlaceOf returns the instance as an AnyPlaceInstance, or nil. It looks through wrappers as StreamOf does.
func AnyPlaceOf(inst Instance) AnyPlaceInstance {
	for {
		if p, ok := inst.(AnyPlaceInstance); ok {
			return p
		}
		w, ok := inst.(interface{ Unwrap() Instance })
		if !ok {
			return nil
		}
		inst = w.Unwrap()
	}
}

// ConcurrentModel is a Model whose instances are safe for concurrent use, for example because they have no state. The server
// creates a single instance.
type ConcurrentModel interface {
	Model
	// Inline reports whether an execution is so short (microseconds) that it should run in the goroutine that completed the
	// previous step, without a queue.
	Inline() bool
}

// ParallelModel is a ConcurrentModel whose executions wait for something else than this machine's processors. For example, those
// of a remote model wait for another server.
type ParallelModel interface {
	ConcurrentModel
	// Parallelism returns the number of instances, which is that of executions at a time, when the configuration has no
	// instance_group. Other concurrent models get one for each processor.
	Parallelism() int
}

// SerialModel is a Model whose instances execute several requests one after the other in one call of Execute, see Batch.Serial, where a
// call costs much more than a short execution. For example, the call of a model in another process is a switch of processes, there and
// back. The server makes such calls if requests wait for an instance of a model that does not batch. No response leaves before the call has
// ended, so an instance should end a call once its executions have taken a few times what the call itself costs, and leave the other requests
// unexecuted: Request.Unexecuted.
type SerialModel interface {
	Model
	// Serial returns how many requests the next call may have at most, by what executions have taken lately: 1 for a model whose
	// executions are long. It must not block.
	Serial() int
}

// ReadinessChecker is a Model that may become unready after it was loaded. For example, a Python model is not ready while its
// worker process restarts.
type ReadinessChecker interface {
	Model
	// Ready returns nil when the model can serve, else the reason. It may be called while instances execute.
	Ready() error
}

// Reporter is a Model with something to report while it serves: the reason of its version in the index. For example, a request ends its
// process again and again.
type Reporter interface {
	Model
	// Report returns the text, or "". It may be called while instances execute.
	Report() string
}

// ThreadedModel is a Model that reports its number of computing threads. Any other model counts as one thread per execution,
// and a ConcurrentModel as none.
type ThreadedModel interface {
	Model
	// Threads returns the number of threads that one execution computes with. 0 means that it only waits.
	Threads() int
}

// PreciseModel is a Model that reports the precision of its matrix products and convolutions, for plans and traces.
type PreciseModel interface {
	Model
	// Precision returns "fp32", "bf16", "fp16" or "int8" where the configuration declares it, or where it is not fp32. Otherwise it
	// returns "".
	Precision() string
}

// Instance executes batches of one model.
//
// Lifecycle:
//
//  1. Model.NewInstance returns the instance.
//  2. Execute is called repeatedly, by one goroutine at a time, not always the same one. Two exceptions: instances of a
//     ConcurrentModel, and batches that call Batch.Detach, must support concurrent calls.
//  3. Close is called once no Execute runs. A second call must do nothing. Outputs of earlier executions stay valid.
//
// For example, three queued requests of one row each become one call of Execute with Batch.Rows 3.
type Instance interface {
	// Execute fills in the outputs of the batch. An error fails every request of the batch; Batch.Fail fails a single one.
	// The batch is borrowed: the instance must not keep references to it or to its inputs. ctx is cancelled when no client
	// waits for the batch; Execute may then return status.ErrCancelled.
	Execute(ctx context.Context, b *Batch) error
	// Close frees the instance.
	Close() error
}

// Loader is a Backend without a runtime: a function that loads models. For example, Factory.New of the backend "square"
// returns Loader(load). It is safe for concurrent use if the function is.
type Loader func(ctx context.Context, s Settings) (Model, error)

// Load calls f.
func (f Loader) Load(ctx context.Context, s Settings) (Model, error) { return f(ctx, s) }

// Close does nothing.
func (Loader) Close() error { return nil }

// Ports is embedded by a Model that has nothing to free, and by its instances.
type Ports struct{ Sig *config.Signature }

// Signature returns p.Sig.
func (p Ports) Signature() *config.Signature { return p.Sig }

// Close does nothing.
func (Ports) Close() error { return nil }
