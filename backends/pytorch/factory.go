package pytorch

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
)

const (
	scriptFile  = "model.pt"
	packageFile = "model.pt2"
	keyDevice   = "device"
	keyLibrary  = "library-path"
)

// NewFactory returns the pytorch backend, which serves TorchScript files and, with the extension .pt2, AOTInductor packages. Its
// settings are library-path, the path of libtorch_cpu.so with the shim beside it, and device, PyTorch's name of the device on which
// models run. The default is "cpu".
func NewFactory() backends.Factory {
	return factory("pytorch", scriptFile, "pytorch_libtorch")
}

// NewPackageFactory returns the torch_aoti backend: the same backend with AOTInductor packages as the default.
func NewPackageFactory() backends.Factory { return factory("torch_aoti", packageFile) }

func factory(name, file string, platforms ...string) backends.Factory {
	return backends.Factory{
		Name:        name,
		Platforms:   platforms,
		DefaultFile: file,
		ConfigKeys:  []string{keyDevice, keyLibrary},
		Params:      slices.Sorted(maps.Keys(parameters)),
		Native:      true,
		Guide:       guide,
		Prepare:     Prepare,
		New: func(o backends.Options) (backends.Backend, error) {
			return open(o, file)
		},
	}
}

// backend is the open backend.
type backend struct {
	lib    *library
	device string
	file   string
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
	lib, err := openLibrary(o.Config[keyLibrary], device)
	if err != nil {
		return nil, err
	}
	return &backend{lib, device, file}, nil
}

// Describe implements backends.Describer.
func (b *backend) Describe() string { return "LibTorch " + b.lib.version + ", " + b.lib.path }

// Close does nothing: PyTorch cannot be unloaded.
func (*backend) Close() error { return nil }

// Load loads a model file and matches the declared tensors with the arguments and results of forward.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	fail := func(err error) (backends.Model, error) {
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	set, err := modelSettings(s.Config)
	if err != nil {
		return fail(err)
	}
	path := s.File(b.file)
	if err := checkFile(path); err != nil {
		return fail(err)
	}
	ports, err := portsOf(s.Config)
	if err != nil {
		return fail(err)
	}
	ports.sig.Model, ports.sig.Version = s.Model, s.Version
	if err := b.lib.setup(set); err != nil {
		return fail(err)
	}
	m := &model{lib: b.lib, sig: ports.sig, in: ports.in, out: ports.out, set: set}
	o := loadOptions{path: path, device: b.device, aoti: isPackage(path), runners: s.Instances, set: set}
	if m.loaded, err = b.lib.load(&o); err != nil {
		return fail(status.Prefixf(err, "'%s': ", path))
	}
	if err := m.bind(o.aoti, s.Log); err != nil {
		_ = m.Close()
		return fail(status.Prefixf(err, "'%s': ", path))
	}
	return m, nil
}

// warn logs that tensors are matched by position, because their names do not match.
func warn(to *slog.Logger, m *model, p *plan) {
	if to == nil {
		return
	}
	for side, o := range map[string]*order{"input": &p.in, "output": &p.out} {
		if o.strict && len(o.names) > 1 {
			to.Warn("tensors are matched by the order of their declaration", slog.String("model", m.sig.Model), slog.String("side", side))
		}
	}
}

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Serves TorchScript models (`model.pt`) and packages that AOTInductor compiled (`model.pt2`). Files have no shapes, so " +
		"the configuration must declare inputs and outputs. `tutti runtime fetch` also compiles a small library against PyTorch's headers, which needs a C++ compiler.",
	Limits: "Exported programs that are not compiled are refused at load. Numbers of threads, the fuser and " +
		"the executor are settings of the process: those of the model that was loaded last apply to all. A run cannot be interrupted.",
	Params: []backends.Param{
		{Key: "INFERENCE_MODE", Doc: "Runs under InferenceMode, without the bookkeeping of training"},
		{Key: "DISABLE_OPTIMIZED_EXECUTION", Doc: "Runs graphs without optimisation"},
		{Key: "ENABLE_WEIGHT_SHARING", Doc: "Instances share one copy of the model"},
		{Key: "ENABLE_CACHE_CLEANING", Doc: "Releases cached device memory after each run"},
		{Key: "ENABLE_TENSOR_FUSER, ENABLE_JIT_EXECUTOR, ENABLE_JIT_PROFILING", Doc: "Switches of PyTorch's compiler"},
		{Key: "INTRA_OP_THREAD_COUNT, INTER_OP_THREAD_COUNT", Doc: "Threads within an operator and over operators"},
	},
}
