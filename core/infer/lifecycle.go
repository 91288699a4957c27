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

// Entry is a row of the repository index. Version, State and Reason are empty for a model that was never loaded.
type Entry struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	State   State  `json:"state,omitempty"`
	// Reason is why the version is not ready.
	Reason string `json:"reason,omitempty"`
}

// LoadOptions override the repository's content for one load; the zero value overrides nothing.
type LoadOptions struct {
	// Config, if not empty, is a JSON ModelConfig that replaces config.pbtxt.
	Config string
	// Files, if not empty, replace the model's folder. Keys are relative paths, for example "1/model.onnx". They
	// require a Config.
	Files map[string][]byte
}

// Lifecycle loads and unloads models while others serve. Implementations must be safe for concurrent use.
type Lifecycle interface {
	// Index returns every known version, sorted by name and version; with ready only those that are ready.
	Index(ready bool) []Entry
	// Load loads a model again, with the models that an ensemble uses, and returns when it is ready or has failed.
	// The previous version serves until then, and continues to serve if the load fails.
	Load(ctx context.Context, model string, o LoadOptions) error
	// Unload stops a model from accepting requests; with dependents also models that are loaded only as its parts.
	// It may return before the requests in flight are complete.
	Unload(ctx context.Context, model string, dependents bool) error
}
