package infer

import "context"

// State is the state of a model version, as the protocol spells it.
type State string

// The states of a version. One that was never loaded has none.
const (
	Unavailable State = "UNAVAILABLE"
	Loading     State = "LOADING"
	Ready       State = "READY"
	Unloading   State = "UNLOADING"
)

// Entry is a line of the repository's index. Version, State and Reason are empty for
// a model that was never loaded.
type Entry struct {
	Name    string
	Version string
	State   State
	// Reason is why the version does not serve.
	Reason string
}

// LoadOptions changes what is loaded; the zero value loads what the repository holds.
type LoadOptions struct {
	// Config, when not empty, is a JSON ModelConfig that stands for config.pbtxt.
	Config string
	// Files, when there are any, are all that the model's folder holds, by path
	// relative to it, as in "1/model.onnx". They need a Config.
	Files map[string][]byte
}

// Lifecycle loads and unloads models while others serve.
type Lifecycle interface {
	// Index lists every known version, sorted by name and version; with ready only
	// those that serve.
	Index(ready bool) []Entry
	// Load loads a model anew with what an ensemble is made of, and returns when it
	// serves or cannot. The version that served before serves until then, and goes on
	// when the new one fails.
	Load(ctx context.Context, model string, o LoadOptions) error
	// Unload has a model take no more requests; with dependents also what is only
	// there as its part. It returns before the requests under way are answered.
	Unload(ctx context.Context, model string, dependents bool) error
}
