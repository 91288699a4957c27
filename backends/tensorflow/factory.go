package tensorflow

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// NewFactory returns the tensorflow backend. Its settings are library-path and default-max-batch-size (see bind.Library).
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:        "tensorflow",
		Platforms:   []string{savedModelPlatform, graphPlatform},
		DefaultFile: savedModelFolder,
		ConfigKeys:  []string{bind.KeyMaxBatch, bind.KeyLibrary},
		Params:      keys,
		Native:      true,
		Guide:       guide,
		New:         open,
	}
}

// backend is the open backend.
type backend struct {
	lib      *library
	maxBatch int
}

var _ backends.Describer = (*backend)(nil)

// Describe implements backends.Describer.
func (b *backend) Describe() string { return "TensorFlow " + b.lib.version + ", " + b.lib.path }

func open(o backends.Options) (backends.Backend, error) {
	path, maxBatch, err := bind.Library("tensorflow", &o, runtimes.Find)
	if err != nil {
		return nil, err
	}
	lib, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	return &backend{lib: lib, maxBatch: maxBatch}, nil
}

// Load loads a model and its first session. Loading cannot be interrupted.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	m := &model{log: s.Log, how: loaded{lib: b.lib}}
	var err error
	if m.how.set, err = modelSettings(s.Config); err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	if m.how.files, err = find(&s); err != nil {
		return nil, err
	}
	if err := m.load(&s, b.maxBatch); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// Close does nothing: libraries are never unloaded.
func (*backend) Close() error { return nil }

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Serves SavedModels (Keras models exported as such, too) and graphs. The platform names the format; without one the existing " +
		"file does. The configuration must declare a graph's inputs and outputs, because the graph does not mark them.",
	Limits: "Sparse and ragged tensors, resources, variants, complex and quantised types, GPUs, custom operator libraries, execution " +
		"accelerators and Keras files are refused by name at load. The C interface cannot stop a run: the batch of a request that is cancelled runs on.",
	Params: []backends.Param{
		{Key: keyIntra, Doc: "Threads within an operation; the first session's are those of the process"},
		{Key: keyInter, Doc: "Threads over operations, likewise"},
		{Key: keyPerSession, Doc: "Gives each session its own threads"},
		{Key: keyShare, Doc: "How many instances share a session with its weights; 1 by default, as in Triton"},
		{Key: keyTag, Doc: "The tag of the graph in the SavedModel, `serve` by default"},
		{Key: keySignature, Doc: "The signature, `serving_default` by default"},
		{Key: keyInitOps, Doc: "A JSON file of operations that a graph runs once it is loaded"},
	},
}
