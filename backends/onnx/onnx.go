//go:build cgo

// Package onnx is the onnxruntime backend: it serves ONNX models through the C API of ONNX Runtime, which it opens at run time.
//
//	onnx.go            the factory and the backend
//	settings.go        settings of the process, parameters of config.pbtxt
//	providers.go       execution providers and their options
//	precision.go       the declared precision against the file and the machine
//	session.go         the opened library and its errors; a loaded model file with its settings in C
//	model.go           the configuration against the file; output shapes that are known before a run
//	instance.go        executions; outputs in memory of the runtime
//	device.go, pool.go sessions and instances on GPUs; the server's memory as the runtime's
//	graph.go           runs that the provider captures in CUDA graphs
//	ort.h              the used part of the C API, by position in the function table
//	shim.h, shim.c     C functions over the table: the environment, declarations
//	options.c, call.c  creating a session; one execution
//	strings.c, bound.c string tensors; executions through an OrtIoBinding, for devices
//	pool.c             the runtime's allocator of a GPU
//
// Memory: the runtime reads inputs where they are. An output whose shape is known from the inputs is written to memory of the
// batch; any other output stays in memory of the runtime, wrapped as a tensor. Neither is copied. Strings are copied in both
// directions, because the runtime allocates each one separately. All instances of a model on the host share a session, so the
// weights exist once.
//
// On the host, tensors are passed with each run. An OrtIoBinding, which device memory needs, would cost half a microsecond more
// there, because every tensor is new in each run.
//
// # GPUs
//
// An instance of KIND_GPU has its own session, as in Triton: the CUDA provider ties a session to a stream, and gets that of the
// instance (user_compute_stream). A run puts its work into the stream and returns. Nothing waits for the device, unless the session
// reads an input on the host. The four rules of package tensor hold for memory of the runtime too: its release is ordered, in the
// session's stream, behind the last uses in other streams.
//
// The runtime allocates weights, intermediate tensors and outputs from the server's pool of the device (session.use_env_allocators
// with an allocator of ours), unless the configuration bounds an arena of the runtime's own. The provider's gpu_external_alloc is
// not used, because the provider refuses it together with a stream. The CUDA plugin provider of ONNX Runtime 1.24 and later, a
// package of its own, takes streams and allocators too, but waits for the stream at the end of every run; it is not supported.
//
// Sequences, maps, sparse and complex tensors are refused at load, with their names. Without cgo the package is empty.
package onnx

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// modelFile is the name of the model file, or of a folder with a file of that name and its external data.
const modelFile = "model.onnx"

// NewFactory returns the onnxruntime backend. Its settings are those of startSettings, library-path and default-max-batch-size
// (see bind.Library).
func NewFactory() backends.Factory {
	return backends.Factory{
		Name: "onnxruntime", Platforms: []string{"onnxruntime_onnx"}, DefaultFile: modelFile, Native: true, Guide: guide, New: open, Auto: auto,
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
func (b *backend) Describe() string {
	text := "ONNX Runtime " + b.lib.version + ", " + b.lib.path
	cuda, gpus := files.IsRegular(filepath.Join(filepath.Dir(b.lib.path), withCUDA)), b.places != nil && b.places.Any()
	switch {
	case cuda && gpus:
		return text + ": it has CUDA, and this machine has a GPU"
	case cuda:
		return text + ": it has CUDA, but there is no GPU: models run on the CPU"
	case gpus:
		return text + ": for the CPU only: " + fetchGPU + "PATH"
	}
	return text
}

// withCUDA is the file beside the library that has the CUDA provider.
const withCUDA = "libonnxruntime_providers_cuda.so"

// finder returns a function that finds the library. On a machine with GPUs it prefers the fetched build with CUDA, unless the user
// names a library. That build runs on the host too, so it also stands in for a missing one.
func finder(gpus bool) func(name, given string) (string, error) {
	return func(name, given string) (string, error) {
		path, err := runtimes.Find(name, given)
		if given != "" || os.Getenv("TUTTI_ONNXRUNTIME_LIB") != "" || err == nil && !gpus {
			return path, err
		}
		if gpu, missing := runtimes.Find(name+"-gpu", ""); missing == nil {
			return gpu, nil
		}
		return path, err
	}
}

// auto returns the meaning of KIND_AUTO on a machine with GPUs: every GPU where the library has CUDA.
func auto(values map[string]string) config.Auto {
	path, err := finder(true)("onnxruntime", values[bind.KeyLibrary])
	if err == nil && files.IsRegular(filepath.Join(filepath.Dir(path), withCUDA)) {
		return config.AutoGPU
	}
	return config.AutoCPU
}

func open(o backends.Options) (backends.Backend, error) {
	st, err := startSettings(o.Config)
	if err != nil {
		return nil, err
	}
	path, maxBatch, err := bind.Library("onnxruntime", &o, finder(o.Places != nil && o.Places.Any()))
	if err != nil {
		return nil, err
	}
	lib, err := openLibrary(path, st)
	if err != nil {
		return nil, err
	}
	return &backend{lib: lib, start: st, maxBatch: maxBatch, places: o.Places}, nil
}

// Load loads a model file: one session for the instances on the host, and one for each instance on a GPU.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	path, err := bind.ModelFile(&s, modelFile, nil)
	if err != nil {
		return nil, err
	}
	m := &model{lib: b.lib, name: s.Model, path: path, devices: b.places, places: bind.Places(s.Config)}
	if err := m.load(ctx, &s, b.start); err != nil {
		_ = m.Close()
		return nil, status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, cmp.Or(s.Origin, path))
	}
	if m.binding, err = bound(s.Config, m.first(), b.maxBatch); err != nil {
		_ = m.Close()
		return nil, status.Errorf(status.CodeOf(err), "%w (in '%s')", err, cmp.Or(s.Origin, path))
	}
	m.Sig.Model, m.Sig.Version = s.Model, s.Version
	if m.gpu == nil {
		return m, nil
	}
	return deviceModel{m}, nil
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
		i := slices.IndexFunc(places, files.IsRegular)
		if i < 0 {
			return nil, status.Errorf(status.NotFound, "operator library '%s': expected a file at '%s'", name, strings.Join(places, "' or '"))
		}
		found = append(found, places[i])
	}
	return found, nil
}

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Serves ONNX models. Instances of `KIND_GPU` use the CUDA provider: `tutti runtime fetch onnxruntime-gpu` gets a library that " +
		"has it, with the CUDA libraries that it needs. Each such instance has its own session, stream and weights, and takes memory " +
		"from the server's pool of the GPU. `gpu_mem_limit` or `arena_extend_strategy` give it an arena of the runtime instead.",
	Limits: "Sequences, maps, sparse and complex tensors are refused by name at load. FP8 and 4 bit types have no counterpart " +
		"in the protocol. A run whose requests are all cancelled ends between two operators. The TensorRT provider needs " +
		"libnvinfer.so.10 and libnvonnxparser.so.10, which are not fetched with it. The separate CUDA plugin provider is not used: it " +
		"waits for the GPU at the end of every run. Instances on GPUs were tested with a stand-in for the CUDA provider, not yet on a GPU.",
	Params: []backends.Param{
		{Key: "intra_op_thread_count", Doc: "Threads within an operator; by default the cores divided by the instances"},
		{Key: "inter_op_thread_count", Doc: "Threads over operators, for parallel execution"},
		{Key: "execution_mode", Doc: "1 runs independent operators in parallel"},
		{Key: "graph_optimization_level", Doc: "0, 1, 2, 3 or 99, the runtime's numbers; by default from `optimization.graph.level`"},
		{Key: "enable_mem_arena, enable_mem_pattern", Doc: "Whether the runtime keeps freed memory, and plans memory by shape"},
		{Key: "memory.enable_memory_arena_shrinkage", Doc: "Devices whose arena memory is released after each run, for example `cpu:0`"},
		{Key: "session.*, optimization.*, mlas.*", Doc: "Passed to the runtime unchanged"},
		{Key: precision.Key, Doc: "The declared precision: `fp32`, `bf16`, `fp16` or `int8`, also by version; one that the file or the machine does not have is refused: see [precision.md](precision.md). " +
			"`fp32` turns TF32 off, and on arm64 `bf16` computes an FP32 file in bfloat16"},
		{Key: precision.FidelityKey, Doc: "How close to its reference a version must be, for example `cosine=0.99`: see [precision.md](precision.md#the-gate)"},
		{
			Key: "cudnn_conv_algo_search, arena_extend_strategy, gpu_mem_limit, use_tf32, do_copy_in_default_stream, cudnn_conv_use_max_workspace",
			Doc: "Options of the CUDA provider, as in Triton. Others are parameters of the `gpu_execution_accelerator` named `cuda`, by the runtime's names",
		},
		{
			Key: "enable_cuda_graph",
			Doc: "Captures the runs of up to 16 sets of input shapes of an instance as CUDA graphs, over fixed tensors that batches are copied " +
				"to and from at the GPU. Every output needs a shape that follows from those of the inputs. So does `trt_cuda_graph_enable` of TensorRT",
		},
	},
}
