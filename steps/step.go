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

// Step processes batches.
type Step interface {
	// Run fills the batch's outputs, in the order of the factory's signature. It is
	// safe for concurrent use. Input that cannot be processed fails its own request
	// (Batch.Fail); an error returned fails the whole batch. Every input has been
	// checked against the signature: type, rank, fixed dimensions and size agree.
	Run(ctx context.Context, b *backends.Batch) error
}

// Param declares one parameter of a step.
type Param struct {
	Key string
	// Doc is a sentence for the reference page and for error texts.
	Doc string
	// Default is used when the key is not set.
	Default  string
	Required bool
	// Sample is a value for the reference page: of a required parameter, or of one
	// without a default that adds to the signature. Required where Values is empty.
	Sample string
	// Values, when not empty, are the only ones allowed.
	Values []string
}

// Example is a model of a step, and a request to it.
type Example struct {
	// Config is its config.pbtxt without name and backend.
	Config string
	// Files are those of the version folder. The page does not show them.
	Files map[string][]byte
	// Request is the body of an infer request in JSON.
	Request string
	// Send, when there is no Request, is the one of Files that is sent as it is, as the
	// only input.
	Send string
}

// Factory declares and makes a step.
type Factory struct {
	// Name is the value of the "step" parameter in config.pbtxt.
	Name string
	// Doc describes the step in a few sentences.
	Doc    string
	Params []Param
	// Presets hold, by value of the parameter PresetKey, defaults that stand in for
	// those of the parameters.
	Presets map[string]map[string]string
	// Examples are what the reference page shows. A test asks each and prints the answer.
	Examples []Example
	// Inline marks a step so short (microseconds) that it runs where the previous
	// step completed.
	Inline bool
	// Signature returns the inputs and outputs, so that config.pbtxt may omit them.
	// Dims have no batch dimension; Model, Version and MaxBatch are filled in later.
	Signature func(*Settings) (*config.Signature, error)
	New       func(*Settings) (Step, error)
}

// Settings are what a step is made with.
type Settings struct {
	Model string
	// ModelDir holds config.pbtxt, Dir the version's files.
	ModelDir, Dir string
	// MaxBatch is max_batch_size: when it is 0, tensors carry no batch dimension.
	MaxBatch int
	// Params holds every declared key, with its default where it was not set.
	Params map[string]string
	// Inputs and Outputs are what config.pbtxt declares, empty where it leaves that to
	// the step. A step of any number of inputs takes their names, types and dims from
	// here. Borrowed.
	Inputs, Outputs []config.Port
	Log             *slog.Logger

	_ struct{}
}

// Key is the parameter of config.pbtxt that names the step; it is not one of the step's own.
const Key = "step"

// PresetKey is the parameter that chooses among a factory's presets.
const PresetKey = "preset"

// Resolve checks the given config.pbtxt parameters against the declaration and
// returns them with the defaults filled in. An unknown key, which most likely is a
// slip of the pen for another, a missing required one and a value that is not allowed
// are errors that name it.
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

// keys lists the names of the parameters.
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
