//go:build cgo

// Package onnx is the onnxruntime backend: it serves ONNX models through the C API of ONNX Runtime, which it opens at run time.
//
//	onnx.go            the factory and the backend
//	settings.go        settings of the process, parameters of config.pbtxt, execution providers
//	session.go         the opened library and its errors; a loaded model file with its settings in C
//	model.go           the configuration against the file; output shapes that are known before a run; instances at GPUs
//	instance.go        executions; outputs in memory of the runtime
//	ort.h              the used part of the C API, by position in the function table
//	shim.h, shim.c     C functions over the table: the environment, declarations
//	options.c, call.c  creating a session; one execution
//	strings.c, bound.c string tensors; executions through an OrtIoBinding, for devices
//
// Memory: the runtime reads inputs where they are. An output whose shape is known from the inputs is written to memory of the
// batch; any other output stays in memory of the runtime, wrapped as a tensor. Neither is copied. Strings are copied in both
// directions, because the runtime allocates each one separately. All instances of a model at one place share a session, so the
// weights exist once.
//
// On the host, tensors are passed with each run. An OrtIoBinding, which device memory needs, would cost half a microsecond more
// there, because every tensor is new in each run.
//
// Instances of KIND_GPU use the CUDA provider if the library has it. Sequences, maps, sparse and complex tensors are refused at
// load, with their names. Without cgo the package is empty.
package onnx

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// modelFile is the name of the model file, or of a folder with a file of that name and its external data.
const modelFile = "model.onnx"

// NewFactory returns the onnxruntime backend. Its settings are those of startSettings, library-path and default-max-batch-size
// (see bind.Library).
func NewFactory() backends.Factory {
	return backends.Factory{
		Name: "onnxruntime", Platforms: []string{"onnxruntime_onnx"}, DefaultFile: modelFile, Native: true, Guide: guide, New: open,
		ConfigKeys: []string{bind.KeyMaxBatch, keyShared, keyInter, keyIntra, bind.KeyLibrary, keyMemory},
		Params:     (&settings{}).targets().Keys(),
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
	st, err := startSettings(o.Config)
	if err != nil {
		return nil, err
	}
	path, maxBatch, err := bind.Library("onnxruntime", &o, runtimes.Find)
	if err != nil {
		return nil, err
	}
	lib, err := openLibrary(path, st)
	if err != nil {
		return nil, err
	}
	return &backend{lib: lib, start: st, maxBatch: maxBatch, places: o.Places}, nil
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
	m := &model{places: b.places}
	if err := b.sessions(ctx, m, &s, path); err != nil {
		_ = m.Close()
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	if m.binding, err = bound(s.Config, m.sessions[0].session, b.maxBatch); err != nil {
		_ = m.Close()
		return nil, status.Errorf(status.CodeOf(err), "%w (in '%s')", err, path)
	}
	m.Sig.Model, m.Sig.Version = s.Model, s.Version
	return m.placed(), nil
}

// sessions opens a session for every place of the configured instances.
func (b *backend) sessions(ctx context.Context, m *model, s *backends.Settings, path string) error {
	set, err := modelSettings(s.Config, s.Instances, b.start)
	if err != nil {
		return err
	}
	m.shrink, m.threads = set.shrink, set.threads()
	host, device, err := accelerators(s.Config)
	if err == nil {
		err = b.lib.missing(host) // device providers are checked below, if an instance needs them
	}
	if err == nil {
		set.libraries, err = libraries(s)
	}
	set.providers = host
	for _, at := range placesOf(s.Config) {
		one := set
		if at.Kind == tensor.Device && err == nil {
			one = set.onDevice(int(at.ID), device)
			err = b.lib.missing(one.providers)
		}
		if err != nil {
			return err
		}
		ses, err := openSession(ctx, b.lib, path, &one)
		if err != nil {
			return err
		}
		m.sessions = append(m.sessions, placedSession{ses, at})
	}
	return nil
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
func libraries(s *backends.Settings) (found []string, err error) {
	for _, name := range s.Config.GetModelOperations().GetOpLibraryFilename() {
		places := []string{filepath.Join(s.Dir, name), filepath.Join(s.ModelDir, name)}
		if filepath.IsAbs(name) {
			places = []string{name}
		}
		i := slices.IndexFunc(places, bind.IsFile)
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
