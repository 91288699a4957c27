// Package steps is the contract of native steps: pre- and post-processing in Go that runs inside the server. A Factory
// declares a step's parameters and signature and makes the Step; each child package implements one family of steps.
//
// A step runs as a model of the backend "native": it has a folder in the model repository,
// versions, statistics and batching like any other model. Its config.pbtxt names it:
//
//	backend: "native"
//	max_batch_size: 8
//	parameters { key: "step" value { string_value: "decode_resize" } }
//	parameters { key: "preset" value { string_value: "resnet50" } }
//
// To add a step, write a Step and a function that returns its Factory, test both with
// steptest.Run, and add the factory to the components of the server (tutti.Components).
package steps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
)

// Step processes batches of requests.
//
// Lifecycle:
//
//  1. Factory.New makes the step when the model is loaded, once per version. It reads the
//     files it needs and returns an error for bad ones.
//  2. Run is called for each batch, from several goroutines at the same time.
//  3. When the model is unloaded, Run is not called any more and the step is dropped. A step
//     has no Close: it must not start goroutines or keep files open.
//
// For example, a step that doubles FP32 numbers:
//
//	func (double) Run(_ context.Context, b *backends.Batch) error {
//		in := &b.In[0]
//		out, err := b.Alloc(0, tensor.FP32, in.Shape)
//		if err != nil {
//			return err
//		}
//		dst := tensor.Slice[float32](out)
//		for i, v := range tensor.Slice[float32](in) {
//			dst[i] = 2 * v
//		}
//		return nil
//	}
type Step interface {
	// Run allocates and fills every output of b, in the order of the factory's signature.
	//
	// Every input has been checked against the signature: type, rank, fixed dimensions and size agree. The inputs are
	// borrowed until Run returns, and must not be modified. A row that cannot be processed must fail alone, with
	// Batch.Fail; its elements of the outputs may then be anything but memory of other requests. An error returned
	// fails every request of the batch. Run should return ctx.Err() soon after ctx is done.
	//
	// Run must be safe for concurrent use. It must not panic, whatever the inputs contain.
	Run(ctx context.Context, b *backends.Batch) error
}

// Param declares one parameter of a step.
type Param struct {
	Key string
	// Doc is a sentence for the reference page and for error texts.
	Doc string
	// Default is the value where config.pbtxt does not set the key.
	Default  string
	Required bool
	// Sample is a value for the reference page. It must be set for a required parameter
	// without Values, and for one without a default that adds to the signature.
	Sample string
	// Values, when not empty, are the only values allowed.
	Values []string
}

// Example is a model that uses a step, and a request to it, for the reference page.
type Example struct {
	// Config is the model's config.pbtxt without name and backend.
	Config string
	// Files are the files of the version folder. The page does not show them.
	Files map[string][]byte
	// Request is the body of an infer request in JSON.
	Request string
	// Send, when there is no Request, names the one of Files whose bytes are sent as the only input.
	Send string
}

// Factory declares a step and makes it. Its functions are called in this order when a model is
// loaded, and again for each version and for a dry-run load:
//
//  1. Resolve checks the parameters of config.pbtxt and fills in the defaults.
//  2. Signature returns the inputs and outputs that follow from the parameters.
//  3. New makes the step.
//
// Signature and New must be safe for concurrent use and must not keep the Settings.
type Factory struct {
	// Name is the value of the "step" parameter in config.pbtxt.
	Name string
	// Doc describes the step in a few sentences.
	Doc    string
	Params []Param
	// Presets replace the defaults of parameters, by the value of the parameter PresetKey.
	// For example, preset "resnet50" of decode_resize sets width to 224.
	Presets map[string]map[string]string
	// Examples are shown on the reference page. A test sends each request and writes the response to the page.
	Examples []Example
	// Inline marks a step that takes only microseconds. It runs on the goroutine that completed the previous step.
	Inline bool
	// Signature returns the inputs and outputs, so that config.pbtxt may omit them. Dims
	// have no batch dimension. The caller fills in Model, Version and MaxBatch.
	Signature func(*Settings) (*config.Signature, error)
	// New makes the step. It may read files of the model (Settings.Find).
	New func(*Settings) (Step, error)
}

// Settings are the configuration of one model that uses a step.
type Settings struct {
	// Model is the name of the model, for error texts.
	Model string
	// ModelDir is the folder of config.pbtxt, Dir the folder of the version.
	ModelDir, Dir string
	// MaxBatch is max_batch_size. If it is 0, tensors have no batch dimension.
	MaxBatch int
	// Params holds every declared key, with its default where config.pbtxt does not set it.
	Params map[string]string
	// Inputs and Outputs are those that config.pbtxt declares, empty where it omits them.
	// A step with any number of inputs takes names, types and dims from here. Borrowed.
	Inputs, Outputs []config.Port
	Log             *slog.Logger

	_ struct{}
}

// Key is the parameter of config.pbtxt that names the step. Factories do not declare it.
const Key = "step"

// PresetKey is the parameter that selects one of a factory's presets.
const PresetKey = "preset"

// Resolve checks the parameters of a config.pbtxt against the declaration and returns them with
// the defaults filled in. An unknown key, which is most likely misspelt, a missing required
// key and a value that is not allowed are errors that name the key.
func (f *Factory) Resolve(given map[string]string) (map[string]string, error) {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if key != Key && !slices.Contains(f.keys(), key) {
			return nil, f.unknown(key)
		}
	}
	out := map[string]string{}
	preset := f.Presets[given[PresetKey]]
	for _, p := range f.Params {
		v, ok := given[p.Key]
		if !ok {
			v, ok = preset[p.Key]
		}
		switch {
		case !ok && p.Required:
			return nil, fmt.Errorf("step '%s' needs parameter '%s': %s", f.Name, p.Key, p.Doc)
		case !ok:
			v = p.Default
		case len(p.Values) > 0 && !slices.Contains(p.Values, v):
			return nil, fmt.Errorf("parameter '%s' of step '%s' is '%s', expected one of %s",
				p.Key, f.Name, v, strings.Join(p.Values, ", "))
		}
		out[p.Key] = v
	}
	return out, nil
}

// keys returns the names of the parameters.
func (f *Factory) keys() []string {
	keys := make([]string, len(f.Params))
	for i, p := range f.Params {
		keys[i] = p.Key
	}
	return keys
}

func (f *Factory) unknown(key string) error {
	if len(f.Params) == 0 {
		return fmt.Errorf("unknown parameter '%s' of step '%s', which has none", key, f.Name)
	}
	text := fmt.Sprintf("unknown parameter '%s' of step '%s', expected one of: %s", key, f.Name, strings.Join(f.keys(), ", "))
	if near := config.DidYouMean(key, f.keys()); near != "" {
		text += "." + near
	}
	return errors.New(text)
}

// Registry finds factories by step name.
type Registry struct {
	byName map[string]*Factory
}

// NewRegistry returns a registry of the given factories; a name listed twice is an error.
func NewRegistry(factories ...Factory) (*Registry, error) {
	r := &Registry{byName: map[string]*Factory{}}
	for _, f := range factories {
		if r.byName[f.Name] != nil {
			return nil, fmt.Errorf("step '%s' is listed twice", f.Name)
		}
		r.byName[f.Name] = &f
	}
	return r, nil
}

// ByName returns the factory of a step, or nil.
func (r *Registry) ByName(name string) *Factory { return r.byName[name] }

// Names returns the steps' names, sorted.
func (r *Registry) Names() []string { return slices.Sorted(maps.Keys(r.byName)) }
