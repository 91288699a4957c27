package backends

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Factory opens a backend. It is a value: components list theirs, nothing registers itself.
type Factory struct {
	// Name is what config.pbtxt's backend field says.
	Name string
	// Platforms are the names its platform field may use instead.
	Platforms []string
	// DefaultFile is the model's file in the version folder, empty when there is none.
	DefaultFile string
	// Native says that the backend opens a library or program that is not part of this
	// one, and may be missing. It is a Described backend once it is open.
	Native bool
	// Keys are those of Options.Config that New reads, sorted.
	Keys []string
	// Params are the parameters of config.pbtxt that models of the backend read; a name that ends in * stands for all that
	// begin so. Nil stands for any: what runs reads them.
	Params []string
	New    func(Options) (Backend, error)
	// Devices returns the places besides the host that the backend brings when it is
	// opened with such values of Options.Config; nil: none ever.
	Devices func(values map[string]string) []tensor.Place
	// Guide describes the backend to its users.
	Guide Guide
	// Prepare makes on this machine what the backend needs beside its fetched library,
	// given by its path, and keeps what is there and good; nil: nothing. progress may be nil.
	Prepare func(ctx context.Context, library string, progress io.Writer) error
}

// Options are what every backend is opened with.
type Options struct {
	Log *slog.Logger
	// Config holds the values of --backend-config=NAME,key=value.
	Config map[string]string
	// Others holds the values for every backend by its name, for one that opens others.
	Others map[string]map[string]string
	// Places is where a backend of a device makes it known: when it is opened, until
	// it is closed.
	Places *tensor.Places
	// Infer, Control and Catalog are the server's, for models that call, load or ask
	// after other models; nil where there are none.
	Infer   infer.Inferer
	Control infer.Lifecycle
	Catalog infer.Catalog
	// Metrics takes what models count themselves; nil where nothing is exported.
	Metrics *telemetry.Metrics

	_ struct{}
}

// Backend loads models of one kind. It is opened when the first model needs it.
type Backend interface {
	// Load opens a model. An error makes the model unavailable and says why.
	Load(ctx context.Context, s Settings) (Model, error)
	// Close frees the runtime; every model is closed before.
	Close() error
}

// Described is a Backend that tells what it runs on: the runtime's version and where its
// library was found.
type Describer interface {
	Backend
	Describe() string
}

// Checked is a Backend that opens although something may be missing which only some of
// its models need.
type Checker interface {
	Backend
	// Check returns what is missing.
	Check() error
}

// Settings are what a model is loaded with.
type Settings struct {
	Model   string
	Version int64
	// ModelDir holds config.pbtxt, Dir the version's files.
	ModelDir, Dir string
	// Config is the model's configuration, normalised but not yet completed. Borrowed.
	Config *modelconfig.ModelConfig
	// Instances is how many instances will be made.
	Instances int
	// Strict says that nothing is to be completed: the configuration stands as it is.
	Strict bool
	// Alloc is where tensors outside a batch come from.
	Alloc tensor.Allocator
	Log   *slog.Logger

	_ struct{}
}

// Param returns the string value of a config.pbtxt parameter, empty when it is not set.
func (s *Settings) Param(key string) string {
	return s.Config.GetParameters()[key].GetStringValue()
}

// File returns the path of the model's file in the version folder: the configured
// default_model_filename, or name.
func (s *Settings) File(name string) string {
	if f := s.Config.GetDefaultModelFilename(); f != "" {
		name = f
	}
	return filepath.Join(s.Dir, name)
}

// Model is one loaded version.
type Model interface {
	// Signature returns the inputs and outputs in the order of Batch.In and
	// Batch.Out. Where the configuration declares inputs or outputs, these and no
	// others are meant; where it declares none, the model's own. It never changes.
	// Dims are the model's: of a port with a reshape the reshaped ones. Ragged inputs,
	// those of batch_input, which are inputs as any other here, and the outputs of
	// batch_output have no batch dimension and are marked Whole; a backend that does
	// not mark them is refused such a configuration.
	Signature() *config.Signature
	// NewInstance returns an executor of the model at the given place.
	NewInstance(ctx context.Context, at tensor.Place) (Instance, error)
	// Close frees the model; every instance is closed before. It is safe to call twice.
	Close() error
}

// Completer is a Model that completes its configuration beyond what Signature tells.
type Completer interface {
	Model
	// Completed returns the whole configuration, nil when it is the one that was
	// given. It stays as it is.
	Completed() *modelconfig.ModelConfig
}

// Placer is a Model whose instances run at devices. Any other runs on the host.
type DeviceModel interface {
	Model
	// Places returns the devices that NewInstance takes, at least one.
	Places() []tensor.Place
}

// Placed is an Instance at a device. Its inputs come there and its outputs are
// expected there, except BYTES, which stay on the host.
type DeviceInstance interface {
	Instance
	// Stream returns the stream that its work goes to, borrowed; Close closes it.
	Stream() tensor.Stream
}

// StreamOf returns the stream of an instance at a device, nil for one on the host. An
// instance that stands for another tells which by Unwrap.
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

// Concurrent is a Model of which one instance serves any number of goroutines at
// once, as stateless code does.
type Concurrent interface {
	Model
	// Inline reports whether an execution is so short (microseconds) that it runs
	// where the previous step completed, without a queue.
	Inline() bool
}

// Asked is a Model that knows more of its readiness than that it was loaded.
type ReadinessChecker interface {
	Model
	// Ready returns nil when the model serves, else why not. It may be asked while
	// instances execute.
	Ready() error
}

// Threaded is a Model that tells how many threads an execution computes with; any
// other computes with one, or with none worth counting when it is Concurrent.
type Threaded interface {
	Model
	Threads() int
}

// Instance executes batches. It is used by one goroutine at a time, but not always
// the same one, unless its Model is Concurrent or a batch is detached (see Batch.Detach).
type Instance interface {
	// Execute fills the batch's outputs. An error fails every request of the batch;
	// Batch.Fail fails one. The batch is borrowed: nothing of it may be kept.
	Execute(ctx context.Context, b *Batch) error
	// Close is safe to call twice.
	Close() error
}

// Registry finds factories by backend name or platform.
type Registry struct {
	byName     map[string]*Factory
	byPlatform map[string]*Factory
}

// NewRegistry returns a registry of the given factories; a name or platform listed twice is an error.
func NewRegistry(factories ...Factory) (*Registry, error) {
	r := &Registry{byName: map[string]*Factory{}, byPlatform: map[string]*Factory{}}
	for _, f := range factories {
		if r.byName[f.Name] != nil {
			return nil, fmt.Errorf("backend '%s' is listed twice", f.Name)
		}
		r.byName[f.Name] = &f
		for _, p := range f.Platforms {
			if r.byPlatform[p] != nil {
				return nil, fmt.Errorf("platform '%s' is listed twice", p)
			}
			r.byPlatform[p] = &f
		}
	}
	return r, nil
}

// ByName returns the factory of a backend name, or nil.
func (r *Registry) ByName(name string) *Factory { return r.byName[name] }

// Params returns Factory.Params of the backend of a name, nil where there is none.
func (r *Registry) Params(name string) []string {
	if f := r.byName[name]; f != nil {
		return f.Params
	}
	return nil
}

// Names returns the names of all backends, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }

// ByPlatform returns the factory of a platform name, or nil.
func (r *Registry) ByPlatform(platform string) *Factory { return r.byPlatform[platform] }
