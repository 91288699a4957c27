//go:build cgo

// Package pytorch has the backends pytorch and torch_aoti: they serve TorchScript models and AOTInductor packages through the C++
// library of PyTorch, which is opened at run time.
//
//	pytorch.go     the factories and the backend, parameters of config.pbtxt, the content of model files
//	matching.go    which tensor is which argument or result of forward
//	library.go     the shim: Prepare compiles it beside PyTorch's library; its errors
//	instance.go    a model and its signature, which the configuration must declare: the files have no shapes; executions, outputs in memory of PyTorch
//	device.go      models and instances at GPUs, memory that the server and PyTorch give back to each other
//	outputs.go     outputs in PyTorch's memory at a GPU
//	standin/       PyTorch's CUDA library for tests, on the checking driver
//	shim/          libtutti_torch-HASH.so, C functions over the C++ library
//	call.h, call.c calls of the shim's functions by address
//
// Memory: inputs are read where they are. A model whose forward writes to an input, which is detected at load, gets copies. Outputs
// stay in memory of PyTorch, wrapped as tensors; an output that is not contiguous, or an input that is passed through, is copied.
//
// Thread counts, the fuser and the executor are settings of the process: those of the model that was loaded last apply to all. A run
// cannot be interrupted; cancellation is checked before it starts. Without cgo the package is empty.
package pytorch

import (
	"archive/zip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/runtimes"
)

const (
	scriptFile  = "model.pt"
	packageFile = "model.pt2"
	keyDevice   = "device"
	keyFraction = "gpu-memory-fraction"
)

// NewFactory returns the pytorch backend, which serves TorchScript files and, with the extension .pt2, AOTInductor packages. Its
// settings are
//
//   - library-path, the path of libtorch_cpu.so with the shim beside it;
//   - device, PyTorch's name of the device on which instances run that are not of KIND_GPU. The default is "cpu". Their tensors are on
//     the host;
//   - gpu-memory-fraction, the part of each GPU's memory that PyTorch may allocate, above 0 and at most 1. The default is no bound.
func NewFactory() backends.Factory {
	return factory("pytorch", scriptFile, "pytorch_libtorch")
}

// NewPackageFactory returns the torch_aoti backend: the same backend with AOTInductor packages as the default.
func NewPackageFactory() backends.Factory { return factory("torch_aoti", packageFile) }

func factory(name, file string, platforms ...string) backends.Factory {
	return backends.Factory{
		Name: name, Platforms: platforms, DefaultFile: file, Native: true, Guide: guide, Prepare: Prepare,
		ConfigKeys: []string{keyDevice, keyFraction, bind.KeyLibrary}, Params: defaultSettings().targets().Keys(),
		New:  func(o backends.Options) (backends.Backend, error) { return open(o, file) },
		Auto: auto,
	}
}

// auto returns the meaning of KIND_AUTO: GPUs where PyTorch supports them and the setting device names no other.
func auto(values map[string]string) config.Auto {
	path, err := find(values, true)
	if _, device := values[keyDevice]; err == nil && !device && hasGPU(path) {
		return config.AutoGPU
	}
	return config.AutoCPU
}

// find returns the path of PyTorch. On a machine with GPUs the build for them is preferred.
func find(values map[string]string, gpus bool) (string, error) {
	explicit := values[bind.KeyLibrary]
	if gpus && explicit == "" {
		if path, err := runtimes.Find("pytorch-gpu", ""); err == nil {
			return path, nil
		}
	}
	return runtimes.Find("pytorch", explicit)
}

// backend is the open backend.
type backend struct {
	lib      *library
	device   string
	file     string
	fraction float64 // of the GPUs' memory, 0 for no bound
	places   *tensor.Places
	gpus     gpus
}

var _ backends.Describer = (*backend)(nil)

func open(o backends.Options, file string) (backends.Backend, error) {
	device := "cpu"
	if v, ok := o.Config[keyDevice]; ok {
		device = v
	}
	if device != "cpu" && !strings.HasPrefix(device, "cuda") {
		return nil, status.Errorf(status.InvalidArg, "unexpected value '%s' of pytorch setting 'device': expected cpu, cuda or cuda:N", device)
	}
	b := &backend{device: device, file: file, places: o.Places}
	if text, ok := o.Config[keyFraction]; ok {
		var err error
		if b.fraction, err = strconv.ParseFloat(text, 64); err != nil || !(b.fraction > 0 && b.fraction <= 1) {
			return nil, status.Errorf(status.InvalidArg, "unexpected value '%s' of pytorch setting '%s': expected a number above 0 and at most 1", text, keyFraction)
		}
	}
	path, err := find(o.Config, b.places != nil && b.places.Any())
	if err != nil {
		return nil, err
	}
	if b.lib, err = openLibrary(path); err == nil && device != "cpu" {
		err = b.lib.openGPU(b.fraction)
		b.gpus.opened = true
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Describe implements backends.Describer.
func (b *backend) Describe() string { return "LibTorch " + b.lib.version + ", " + b.lib.path }

// Close ends the callbacks of the GPUs. PyTorch cannot be unloaded.
func (b *backend) Close() error {
	b.gpus.close()
	return nil
}

// Load loads a model file and matches the declared tensors with the arguments and results of forward.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	m := &model{lib: b.lib, set: defaultSettings()}
	if err := m.load(b, &s, s.File(b.file)); err != nil {
		_ = m.Close()
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	return m.placed(), nil
}

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Serves TorchScript models (`model.pt`) and packages that AOTInductor compiled (`model.pt2`). Files have no shapes, so " +
		"the configuration must declare inputs and outputs. `tutti runtime fetch` also compiles a small library against PyTorch's headers, which needs a C++ compiler. " +
		"With `tutti runtime fetch pytorch-gpu`, instances of `KIND_GPU` run at GPUs: inputs and outputs stay in device memory, and work goes into the stream of " +
		"the batch. PyTorch allocates outputs; `--backend-config=pytorch,gpu-memory-fraction=0.5` bounds its part of each GPU's memory. `KIND_MODEL` leaves the " +
		"tensors of the file where they were saved; inputs and outputs are on the host then.",
	Limits: "Exported programs that are not compiled are refused at load. Numbers of threads, the fuser, " +
		"the executor and cuDNN are settings of the process: those of the model that was loaded last apply to all. A run cannot be interrupted. " +
		"Strings are on the host. Runs of a model at a GPU that changes its own buffers follow each other.",
	Params: []backends.Param{
		{Key: "INFERENCE_MODE", Doc: "Runs under InferenceMode, without the bookkeeping of training"},
		{Key: "DISABLE_OPTIMIZED_EXECUTION", Doc: "Runs graphs without optimisation"},
		{Key: "ENABLE_WEIGHT_SHARING", Doc: "Instances share one copy of the model"},
		{Key: "ENABLE_CACHE_CLEANING", Doc: "Releases cached device memory after each run"},
		{Key: "ENABLE_TENSOR_FUSER, ENABLE_JIT_EXECUTOR, ENABLE_JIT_PROFILING", Doc: "Switches of PyTorch's compiler"},
		{Key: "DISABLE_CUDNN", Doc: "Runs convolutions and the like at GPUs without cuDNN"},
		{Key: "ENABLE_NVFUSER", Doc: "Read for compatibility: PyTorch 2 has no nvFuser, and `true` is a warning"},
		{Key: "INTRA_OP_THREAD_COUNT, INTER_OP_THREAD_COUNT", Doc: "Threads within an operator and over operators"},
	},
}

// settings are the parameters of config.pbtxt for one model.
type settings struct {
	inference bool // run under InferenceMode
	plain     bool // the graph executor does not optimise
	shared    bool // the instances share the weights
	cleaning  bool // empty the device's cache after each run
	// Settings of the process. Switches that are not given are -1, and numbers of threads 0.
	intra, inter                        int
	fuser, executor, profiling, noCUDNN int
	nvFuser                             bool // has no effect
}

// defaultSettings returns the settings of a configuration without parameters.
func defaultSettings() *settings {
	return &settings{inference: true, shared: true, fuser: -1, executor: -1, profiling: -1, noCUDNN: -1}
}

// boolean has the values of Triton's pytorch backend for boolean parameters.
var boolean = bind.Words{True: []string{"1", "true"}, False: []string{"0", "false"}, Expected: "true or false"}

// targets returns what the parameters set.
func (s *settings) targets() bind.Targets {
	process := func(to *int) func(key, value string) error {
		return func(key, value string) error {
			on, err := boolean.Parse(key, value)
			*to = int(flag(on))
			return err
		}
	}
	return bind.Targets{
		"INFERENCE_MODE": &s.inference, "DISABLE_OPTIMIZED_EXECUTION": &s.plain, "ENABLE_WEIGHT_SHARING": &s.shared, "ENABLE_CACHE_CLEANING": &s.cleaning,
		"ENABLE_TENSOR_FUSER": process(&s.fuser), "ENABLE_JIT_EXECUTOR": process(&s.executor), "ENABLE_JIT_PROFILING": process(&s.profiling),
		"DISABLE_CUDNN": process(&s.noCUDNN), "ENABLE_NVFUSER": &s.nvFuser,
		"INTRA_OP_THREAD_COUNT": &s.intra, "INTER_OP_THREAD_COUNT": &s.inter,
	}
}

// isPackage reports whether a model file is an AOTInductor package, by its extension.
func isPackage(path string) bool { return filepath.Ext(path) == ".pt2" }

// checkFile reports a wrong model file before PyTorch reads it, with a clearer error than PyTorch's. Both formats
// are zip archives: TorchScript contains code, a package contains a compiled library.
func checkFile(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return config.MissingFile(status.Errorf(status.NotFound, "unable to find '%s'", path), path)
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for its writer for ever
		return status.Errorf(status.InvalidArg, "expected a file at '%s', found %s", path, info.Mode())
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		kind := "TorchScript file"
		if isPackage(path) {
			kind = "package of AOTInductor's"
		}
		return status.Errorf(status.InvalidArg, "expected a %s at '%s', found %s: %w", kind, path, found(path), err)
	}
	defer archive.Close()
	if isPackage(path) {
		return checkPackage(path, archive)
	}
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, "/constants.pkl") {
			return nil
		}
	}
	return status.Errorf(status.InvalidArg,
		"expected a TorchScript file at '%s', found an archive without code, such as torch.save writes: save it with torch.jit.save", path)
}

func checkPackage(path string, archive *zip.ReadCloser) error {
	exported := false
	for _, f := range archive.File {
		if strings.HasSuffix(f.Name, ".so") && strings.Contains(f.Name, "aotinductor/") {
			return nil
		}
		exported = exported || strings.Contains(f.Name, "/models/") || strings.HasSuffix(f.Name, "serialized_exported_program.json")
	}
	if exported {
		return status.Errorf(status.Unsupported,
			"unsupported: '%s' holds an exported program, expected a compiled one: compile it with torch._inductor.aoti_compile_and_package", path)
	}
	return status.Errorf(status.InvalidArg, "expected a package of AOTInductor's at '%s', found an archive without a compiled model", path)
}

// found describes a file by its first bytes, for an error.
func found(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return "an unreadable file"
	}
	defer f.Close()
	head := make([]byte, 4)
	n, err := io.ReadFull(f, head)
	switch {
	case n == 0:
		return "an empty file"
	case err == nil && string(head) == "PK\x03\x04":
		return "a damaged or truncated archive"
	case head[0] == 0x80:
		return "a pickle, such as old versions of torch.save write"
	default:
		return "a file of another kind"
	}
}
