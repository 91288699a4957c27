package onnx

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/runtimes"
)

const (
	// modelFile is the name of the model file, or of a folder with a file of that name and its external data.
	modelFile = "model.onnx"
)

// NewFactory returns the onnxruntime backend. Its settings are those of startSettings, library-path and default-max-batch-size
// (see bind.Library).
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:        "onnxruntime",
		Platforms:   []string{"onnxruntime_onnx"},
		DefaultFile: modelFile,
		ConfigKeys:  []string{bind.KeyMaxBatch, keyShared, keyInter, keyIntra, bind.KeyLibrary, keyMemory},
		Params:      params,
		Native:      true,
		Guide:       guide,
		New:         open,
	}
}

// backend is the open backend.
type backend struct {
	lib      *library
	start    start
	maxBatch int
	places   *tensor.Places
}

var _ backends.Describer = (*backend)(nil)

// Describe implements backends.Describer.
func (b *backend) Describe() string { return "ONNX Runtime " + b.lib.version + ", " + b.lib.path }

func open(o backends.Options) (backends.Backend, error) {
	b := &backend{places: o.Places}
	var err error
	if b.start, err = startSettings(o.Config); err != nil {
		return nil, err
	}
	path, maxBatch, err := bind.Library("onnxruntime", &o, runtimes.Find)
	if err != nil {
		return nil, err
	}
	b.maxBatch = maxBatch
	b.lib, err = openLibrary(path, b.start)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Load loads a model file, with one session for each place of its instances.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	path, err := bind.ModelFile(&s, modelFile, nil)
	if err != nil {
		return nil, err
	}
	sessions, set, err := b.sessions(ctx, &s, path)
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	m := &model{sessions: sessions, shrink: set.shrink, threads: set.threads(), places: b.places}
	if m.binding, err = bound(s.Config, sessions[0].session, b.maxBatch); err != nil {
		_ = m.Close()
		return nil, status.Errorf(status.CodeOf(err), "%w (in '%s')", err, path)
	}
	m.binding.Sig.Model, m.binding.Sig.Version = s.Model, s.Version
	return m.placed(), nil
}

// sessions opens a session for every place of the configured instances.
func (b *backend) sessions(ctx context.Context, s *backends.Settings, path string) ([]placedSession, settings, error) {
	set, err := modelSettings(s.Config, s.Instances, b.start)
	if err != nil {
		return nil, set, err
	}
	host, device, err := accelerators(s.Config)
	if err == nil {
		err = b.lib.missing(host) // device providers are checked below, if an instance needs them
	}
	if err == nil {
		set.libraries, err = libraries(s)
	}
	if err != nil {
		return nil, set, err
	}
	set.providers = host
	var all []placedSession
	for _, at := range placesOf(s.Config) {
		one := set
		if at.Kind == tensor.Device {
			one = set.onDevice(int(at.ID), device)
			err = b.lib.missing(one.providers)
		}
		var ses *session
		if err == nil {
			ses, err = openSession(ctx, b.lib, path, &one)
		}
		if err != nil {
			closeSessions(all)
			return nil, set, err
		}
		all = append(all, placedSession{ses, at})
	}
	return all, set, nil
}

// Close releases the library. It is closed after the last output in its memory was released.
func (b *backend) Close() error {
	if b.lib != nil {
		b.lib.release()
		b.lib = nil
	}
	return nil
}

// libraries returns the paths of the custom operator libraries of a configuration: absolute, or relative to the version folder or
// the model folder.
func libraries(s *backends.Settings) ([]string, error) {
	var found []string
	for _, name := range s.Config.GetModelOperations().GetOpLibraryFilename() {
		places := []string{filepath.Join(s.Dir, name), filepath.Join(s.ModelDir, name)}
		if filepath.IsAbs(name) {
			places = []string{name}
		}
		i := slices.IndexFunc(places, func(p string) bool {
			info, err := os.Stat(p)
			return err == nil && info.Mode().IsRegular()
		})
		if i < 0 {
			return nil, status.Errorf(status.NotFound, "operator library '%s': expected a file at '%s'", name, strings.Join(places, "' or '"))
		}
		found = append(found, places[i])
	}
	return found, nil
}

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Serves ONNX models. Instances of `KIND_GPU` use the CUDA provider where the library has it.",
	Limits: "Sequences, maps, sparse and complex tensors are refused by name at load. FP8 and 4 bit types have no counterpart " +
		"in the protocol. A run whose requests are all cancelled ends between two operators.",
	Params: []backends.Param{
		{Key: "intra_op_thread_count", Doc: "Threads within an operator; by default the cores divided by the instances"},
		{Key: "inter_op_thread_count", Doc: "Threads over operators, for parallel execution"},
		{Key: "execution_mode", Doc: "1 runs independent operators in parallel"},
		{Key: "graph_optimization_level", Doc: "0, 1, 2, 3 or 99, the runtime's numbers; by default from `optimization.graph.level`"},
		{Key: "enable_mem_arena, enable_mem_pattern", Doc: "Whether the runtime keeps freed memory, and plans memory by shape"},
		{Key: "memory.enable_memory_arena_shrinkage", Doc: "Devices whose arena memory is released after each run, for example `cpu:0`"},
		{Key: "session.*, optimization.*", Doc: "Passed to the runtime unchanged"},
		{
			Key: "cudnn_conv_algo_search, arena_extend_strategy, gpu_mem_limit, use_tf32, do_copy_in_default_stream, cudnn_conv_use_max_workspace, enable_cuda_graph",
			Doc: "Options of the CUDA provider",
		},
	},
}
