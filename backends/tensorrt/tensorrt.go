//go:build cgo

// Package tensorrt has the backend tensorrt: it serves TensorRT plans on GPUs through TensorRT's runtime library, which is opened at
// run time.
//
//	tensorrt.go    the factory and the backend, its settings
//	library.go     the opened library, its runtimes and their log
//	plan.go        a deserialized plan: inputs, outputs, optimisation profiles
//	config.go      the signature of a model: the plan's declarations and those of the configuration
//	model.go       a model: one runtime and plan for each device
//	instance.go    executions: shapes, profiles, memory
//	outputs.go     memory and shapes of outputs, values of shape tensors
//	trt.h, trt.c   calls of the library's C++ objects
//
// Memory: inputs and outputs are device memory of the batch's stream, on which TensorRT executes. The memory that an execution needs
// besides is taken from the same pool, once per instance. Shape tensors are on the host. An output whose size depends on the data is
// allocated when TensorRT knows it.
//
// TensorRT's objects are C++; their binary interface is declared in trt.h. Without cgo the package is empty.
package tensorrt

import (
	"context"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// planFile is the name of the model file.
const planFile = "model.plan"

// Keys of --backend-config=tensorrt.
const (
	keyCoalesce = "coalesce-request-input"
	keyPolicy   = "execution-policy"
	keyPlugins  = "plugins"
	keyVersions = "version-compatible"
)

// paramStrategy is the only parameter of config.pbtxt.
const paramStrategy = "execution_context_allocation_strategy"

// NewFactory returns the tensorrt backend. Its settings are library-path, the path of libnvinfer.so or of the lean runtime; plugins,
// paths of plugin libraries, separated by semicolons; version-compatible, which allows plans that bring the runtime of their own
// release; and execution-policy and coalesce-request-input, which are accepted without effect.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name: "tensorrt", Platforms: []string{"tensorrt_plan"}, DefaultFile: planFile, Native: true, Guide: guide, New: open,
		ConfigKeys: []string{keyCoalesce, keyPolicy, bind.KeyLibrary, keyPlugins, keyVersions}, Params: []string{paramStrategy},
		Auto: func(map[string]string) config.Auto { return config.AutoGPU },
	}
}

var guide = backends.Guide{
	Doc: "Plans of TensorRT 10.1 to 11, on GPUs. The library is opened at run time, either the full runtime (`libnvinfer`), which runs plans of its own release, " +
		"or the lean one (`libnvinfer_lean`), which runs plans that were built with `--versionCompatible`. " +
		"Inputs, outputs and `max_batch_size` that the configuration leaves out are taken from the plan and its optimisation profiles, as in Triton. " +
		"An instance executes with the profiles that `profile` of its `instance_group` lists, by default 0; of several, the one nearest to the shapes of the batch. " +
		"Shape tensors are read and written on the host; where the model batches, the batch is put before their values. " +
		"The memory of executions is taken from the server's pool of the GPU. " +
		"`--backend-config=tensorrt,plugins=a.so;b.so` opens plugin libraries. `--backend-config=tensorrt,version-compatible=true` allows version-compatible plans, " +
		"whose host code is executed: load only plans that you trust. `execution-policy` and `coalesce-request-input` are accepted and change nothing: " +
		"each instance executes in its own thread, and requests are joined on the GPU.",
	Limits: "Plans with an implicit batch dimension, tensors in FP8, INT4 or FP4, tensors in non-linear formats, outputs that share the memory of an input, DLA cores (`secondary_devices`), " +
		"plans over several GPUs, and CUDA graphs (`optimization.cuda` is a hint without effect). A response has the values of a shape tensor once, not once per row as in Triton.",
	Params: []backends.Param{
		{Key: paramStrategy, Doc: "STATIC, the default, takes the memory of executions for the largest profile of the instance; ON_PROFILE_CHANGE takes what the profile in use needs"},
	},
}

// backend is the open backend.
type backend struct {
	lib      *library
	places   *tensor.Places
	hostCode bool
}

var _ backends.Describer = (*backend)(nil)

// boolean has the values of Triton's tensorrt backend for boolean settings.
var boolean = bind.Words{True: []string{"1", "true", "on"}, False: []string{"0", "false", "off"}, Expected: "true or false"}

func open(o backends.Options) (backends.Backend, error) {
	b := &backend{places: o.Places}
	for key, to := range map[string]*bool{keyVersions: &b.hostCode, keyCoalesce: new(bool)} {
		if v, ok := o.Config[key]; ok {
			on, err := boolean.Parse(key, v)
			if err != nil {
				return nil, err
			}
			*to = on
		}
	}
	switch v := o.Config[keyPolicy]; v {
	case "", "DEVICE_BLOCKING", "BLOCKING":
	default:
		return nil, status.Errorf(status.InvalidArg, "unexpected value '%s' of tensorrt setting '%s': expected DEVICE_BLOCKING or BLOCKING", v, keyPolicy)
	}
	plugins := strings.FieldsFunc(o.Config[keyPlugins], func(r rune) bool { return r == ';' })
	var err error
	b.lib, err = openLibrary(o.Config[bind.KeyLibrary], plugins)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Describe implements backends.Describer.
func (b *backend) Describe() string {
	kind := "TensorRT "
	if b.lib.lean {
		kind = "TensorRT lean runtime "
	}
	return kind + b.lib.version() + ", " + b.lib.path
}

// Load deserializes the plan at the first device of its instances. The others follow with their instances.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	m := &model{backend: b, settings: s, engines: map[tensor.Place]*engine{}}
	if err := m.load(); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// Close does nothing: the library stays open.
func (*backend) Close() error { return nil }
