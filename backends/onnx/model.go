package onnx

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"tutti/backends"
	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/runtimes"
)

const (
	// modelFile is the model's file, or a folder that holds a file of that name and its external data.
	modelFile = "model.onnx"
	// defaultMaxBatch is what autocompletion gives a model that can batch.
	defaultMaxBatch = 4
)

// NewFactory returns the onnxruntime backend. Its settings are library-path, the ONNX Runtime library to open instead
// of the one that package runtimes finds, and default-max-batch-size, the max_batch_size given to a model that can
// batch and whose configuration is left to autocompletion.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:        "onnxruntime",
		Platforms:   []string{"onnxruntime_onnx"},
		DefaultFile: modelFile,
		Keys:        []string{keyMaxBatch, keyLibrary},
		Native:      true,
		New:         open,
	}
}

// backend is an opened ONNX Runtime.
type backend struct {
	lib      *library
	maxBatch int
}

var _ backends.Described = (*backend)(nil)

// Describe returns the library's version and path.
func (b *backend) Describe() string { return "ONNX Runtime " + b.lib.version + ", " + b.lib.path }

const (
	keyMaxBatch = "default-max-batch-size"
	keyLibrary  = "library-path"
)

func open(o backends.Options) (backends.Backend, error) {
	maxBatch := defaultMaxBatch
	if v, ok := o.Config[keyMaxBatch]; ok {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return nil, status.Errorf(status.InvalidArg, "unexpected value '%s' of onnxruntime setting 'default-max-batch-size': expected an integer of at least 0", v)
		}
		maxBatch = n
	}
	path, err := runtimes.Find("onnxruntime", o.Config[keyLibrary])
	if err != nil {
		return nil, err
	}
	lib, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	return &backend{lib: lib, maxBatch: maxBatch}, nil
}

// Load loads a model file. The instances of the model share one session: its runs may overlap, and the weights are
// held once.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	set, err := modelSettings(s.Config, s.Instances)
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	path, err := find(&s)
	if err != nil {
		return nil, err
	}
	ses, err := openSession(b.lib, path, &set)
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	bound, err := bind(s.Config, ses, b.maxBatch)
	if err != nil {
		ses.close()
		return nil, err
	}
	bound.sig.Model, bound.sig.Version = s.Model, s.Version
	return &model{session: ses, binding: bound, shrink: set.shrink, threads: set.threads()}, nil
}

// Close ends the runtime once the last output that it owns is released.
func (b *backend) Close() error {
	if b.lib != nil {
		b.lib.release()
		b.lib = nil
	}
	return nil
}

// find returns the model's file; a folder holds a file of the default name.
func find(s *backends.Settings) (string, error) {
	path := s.File(modelFile)
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		path = filepath.Join(path, modelFile)
		info, err = os.Stat(path)
	}
	if err != nil {
		return "", status.Errorf(status.NotFound, "unable to find '%s' for model '%s'", path, s.Model)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer for ever
		return "", status.Errorf(status.InvalidArg, "unable to load model '%s': expected a file at '%s', found %s", s.Model, path, info.Mode())
	}
	return path, nil
}

// model is one loaded model file.
type model struct {
	session *session
	binding *binding
	shrink  string
	threads int
	// unsure is set once the declared names of dimensions proved wrong; output shapes are then left to the runtime.
	unsure atomic.Bool
}

var _ backends.Threaded = (*model)(nil)

// Threads returns those of one execution, as configured.
func (m *model) Threads() int { return m.threads }

// Signature returns the configured ports, or the file's where the configuration has none.
func (m *model) Signature() *config.Signature { return m.binding.sig }

// NewInstance returns an executor on the host.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if at.Kind == tensor.Device {
		return nil, status.Errorf(status.Unsupported, "model '%s': onnxruntime on %s is not supported", m.binding.sig.Model, at)
	}
	return newInstance(m)
}

// Close unloads the model.
func (m *model) Close() error {
	m.session.close()
	return nil
}
