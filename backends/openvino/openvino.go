//go:build cgo

// Package openvino is the OpenVINO backend: it serves the model files that OpenVINO reads (its own IR, ONNX, PaddlePaddle, TFLite,
// TensorFlow SavedModels and frozen graphs) through the C API, which it opens at run time.
//
//	openvino.go    the factory and the backend, parameters of config.pbtxt; the configuration against the file
//	precision.go   the declared precision against the file and the device
//	library.go     the opened library and its errors; the ov_core, in its own thread; a model file and the compiled model
//	instance.go    executions: outputs in memory of the runtime, fixed batch sizes, BYTES
//	ov.h           the used part of the C API, by function name
//	shim.h, shim.c C functions over it: reading, declarations, compiling; call.c: one execution
//
// Memory: the runtime reads inputs where they are. An output whose shape is known from the batch is written to memory of the batch;
// any other output stays in memory of the runtime, wrapped as a tensor. Neither is copied, apart from strings and padded batches.
// The instances of a model share its weights; each has its own infer request.
//
// An execution whose requests are all cancelled stops between two nodes of the graph. Without cgo the package is empty.
package openvino

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/internal/precision"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// modelFile is the name of the model file, or of a folder with a file of that name and its weights.
const modelFile = "model.xml"

// NewFactory returns the openvino backend. Its settings are library-path and default-max-batch-size (see bind.Library).
func NewFactory() backends.Factory {
	return backends.Factory{
		Name: "openvino", DefaultFile: modelFile, ConfigKeys: []string{bind.KeyMaxBatch, bind.KeyLibrary}, Native: true, Guide: guide, New: open,
		Params: slices.Concat(handed, []string{keyDevice, keyExtension, keyFixed, keyPad, keyReshape, keyReshape + "S", keyBF16, precision.Key, precision.FidelityKey}),
	}
}

// backend is the open backend.
type backend struct {
	lib      *library
	core     *core
	maxBatch int
}

var _ backends.Describer = (*backend)(nil)

// Describe implements backends.Describer.
func (b *backend) Describe() string { return "OpenVINO " + b.lib.version + ", " + b.lib.path }

func open(o backends.Options) (backends.Backend, error) {
	path, maxBatch, err := bind.Library("openvino", &o, runtimes.Find)
	if err != nil {
		return nil, err
	}
	lib, err := openLibrary(path)
	if err != nil {
		return nil, err
	}
	c, err := openCore(lib, "")
	if err != nil {
		return nil, status.Reasonf(status.RuntimeMissing, "unable to start OpenVINO '%s': %w", path, err)
	}
	return &backend{lib, c, maxBatch}, nil
}

// Load reads and compiles a model file. The instances of the model share the compiled model.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	set, err := modelSettings(&s)
	if err != nil {
		return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	path, err := bind.ModelFile(&s, modelFile, func(folder string) bool { return files.IsRegular(filepath.Join(folder, "saved_model.pb")) })
	if err != nil {
		return nil, err
	}
	m := &model{pad: set.pad}
	from := b.core
	if set.extension != "" { // a separate core: the operators are not for other models
		if m.own, err = openCore(b.lib, set.extension); err != nil {
			return nil, status.Prefixf(err, "unable to load model '%s': ", s.Model)
		}
		from = m.own
	}
	if err := m.load(&s, from, path, &set, b.maxBatch); err != nil {
		_ = m.Close()
		return nil, err
	}
	return m, nil
}

// Close frees the core. The library stays open.
func (b *backend) Close() error {
	if b.core != nil {
		b.core.close()
		b.core = nil
	}
	return nil
}

// guide is the documentation of the backend.
var guide = backends.Guide{
	Doc: "Serves the formats of OpenVINO: its IR, ONNX, PaddlePaddle, TensorFlow SavedModel folders, frozen graphs and TFLite. " +
		"It computes in f32 unless the configuration says otherwise: the runtime's own choice is bf16 on some processors, which changes results.",
	Limits: "Optional and ragged inputs, custom operators by `model_operations`, and instances of `KIND_GPU` are refused; " +
		"another device is named by TARGET_DEVICE. 4 bit and 8 bit floating types have no counterpart in the protocol. " +
		"A run whose requests are all cancelled ends between two nodes of the graph.",
	Params: []backends.Param{
		{Key: keyDevice, Doc: "The device that the model is compiled for, CPU by default"},
		{Key: keyExtension, Doc: "A library of custom operators, beside config.pbtxt unless absolute"},
		{Key: keyFixed, Doc: "Keeps the fixed batch size of the file, instead of making it variable"},
		{Key: keyPad, Doc: "Pads smaller batches to that size"},
		{Key: keyReshape, Doc: "Gives the inputs the shapes of config.pbtxt"},
		{Key: keyBF16, Doc: "Computes in bf16, as `precision` with `bf16` does, but without a check that the processor can"},
		{Key: precision.Key, Doc: "The declared precision: `fp32`, `bf16`, `fp16` or `int8`, also by version; one that the file or the device does not have is refused: see [precision.md](precision.md). It replaces " +
			"INFERENCE_PRECISION_HINT and HINT_BF16, which must not contradict it; of a file in `int8` they say what its other parts compute in"},
		{Key: precision.FidelityKey, Doc: "How close to its reference a version must be, for example `cosine=0.99`: see [precision.md](precision.md#the-gate)"},
		{Key: strings.Join(handed, ", "), Doc: "Passed to the runtime unchanged; CACHE_DIR is beside config.pbtxt unless absolute"},
	},
}

// Parameters of config.pbtxt with a meaning for the backend.
const (
	keyDevice    = "TARGET_DEVICE"
	keyExtension = "CPU_EXTENSION_PATH"
	keyFixed     = "SKIP_OV_DYNAMIC_BATCHSIZE"
	keyPad       = "ENABLE_BATCH_PADDING"
	keyReshape   = "RESHAPE_IO_LAYOUT"
	keyBF16      = "HINT_BF16"
	keyThreads   = "INFERENCE_NUM_THREADS"
	keyStreams   = "NUM_STREAMS"
	keyHint      = "PERFORMANCE_HINT"
	keyPrecision = "INFERENCE_PRECISION_HINT"
	keyCache     = "CACHE_DIR"
	keyPinning   = "ENABLE_CPU_PINNING"
)

// handed are the parameters that are passed to the runtime unchanged.
var handed = []string{
	keyCache, "CACHE_MODE", "COMPILATION_NUM_THREADS", "CPU_DENORMALS_OPTIMIZATION", "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE",
	"DEVICE_ID", "DYNAMIC_QUANTIZATION_GROUP_SIZE", keyPinning, "ENABLE_CPU_RESERVATION", "ENABLE_HYPER_THREADING",
	"ENABLE_MMAP", "EXECUTION_MODE_HINT", keyThreads, keyPrecision, "KV_CACHE_PRECISION", "MODEL_DISTRIBUTION_POLICY",
	"MODEL_PRIORITY", keyStreams, keyHint, "PERFORMANCE_HINT_NUM_REQUESTS", "SCHEDULING_CORE_TYPE",
}

// boolean has the values of Triton's openvino backend for boolean parameters.
var boolean = bind.Words{True: []string{"yes", "1", "true"}, False: []string{"no", "0", "false"}, Expected: "YES or NO"}

// settings are the parameters of config.pbtxt for one model.
type settings struct {
	device     string
	extension  string
	fixed      bool // keep the batch size of the file
	pad        bool // pad smaller batches to it
	reshape    bool // reshape inputs to the shapes of config.pbtxt
	properties map[string]string
	precision  precision.Precision // declared
}

// modelSettings parses the settings of a model's configuration.
//
// The default precision is f32, because the runtime's default is bf16 on some processors, which changes results. By default the
// instances together use each core once, and threads are not pinned to cores, because other models use the cores too.
func modelSettings(s *backends.Settings) (settings, error) {
	o := settings{device: "CPU", properties: map[string]string{keyPrecision: "f32"}}
	beside := func(path string) string {
		if path == "" || filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(s.ModelDir, path)
	}
	required := func(key, value string) error {
		if value == "" {
			return status.Errorf(status.InvalidArg, "parameter '%s' has no string_value", key)
		}
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(s.Config.GetParameters())) {
		if strings.IndexByte(s.Param(key), 0) >= 0 {
			return o, status.Errorf(status.InvalidArg, "parameter '%s' has a value with a zero byte", key)
		}
	}
	to := bind.Targets{
		keyFixed: &o.fixed, keyPad: &o.pad, keyReshape: &o.reshape, keyReshape + "S": &o.reshape,
		keyExtension: func(_, value string) error { o.extension = beside(value); return nil },
		keyDevice:    func(key, value string) error { o.device = value; return required(key, value) },
		keyBF16: func(key, value string) error {
			on, err := boolean.Parse(key, value)
			if on {
				o.properties[keyPrecision] = "bf16"
			}
			return err
		},
	}
	for _, key := range handed {
		to[key] = func(key, value string) error { o.properties[key] = value; return required(key, value) }
	}
	to[keyCache] = func(key, value string) error { o.properties[key] = beside(value); return required(key, value) }
	to[keyThreads] = func(key, value string) error {
		o.properties[key] = value
		_, err := bind.ParseThreads(key, value)
		return err
	}
	hinted, hint := "", ""
	for _, key := range []string{keyPrecision, keyBF16} {
		set := to[key].(func(key, value string) error) //nolint:errcheck,forcetypeassert // it was put there above
		to[key] = func(key, value string) error {
			err := set(key, value)
			if on, _ := boolean.Parse(key, value); key == keyPrecision || on {
				hinted, hint = key, o.properties[keyPrecision]
			}
			return err
		}
	}
	err := boolean.Set(s.Config, to)
	if err == nil {
		err = o.declare(s, hinted, hint)
	}
	if err != nil {
		return o, err
	}
	if o.device == "CPU" {
		o.share(max(1, s.Instances))
	}
	for _, a := range s.Config.GetOptimization().GetExecutionAccelerators().GetCpuExecutionAccelerator() {
		return o, status.Errorf(status.Unsupported, "execution accelerator '%s' is not supported", a.GetName())
	}
	return o, nil
}

// share sets the defaults that divide the cores among the instances.
func (o *settings) share(instances int) {
	p := o.properties
	p[keyPinning] = cmp.Or(p[keyPinning], "NO")
	if p[keyHint] == "" {
		p[keyStreams] = cmp.Or(p[keyStreams], strconv.Itoa(instances))
		p[keyThreads] = cmp.Or(p[keyThreads], strconv.Itoa(max(instances, runtime.GOMAXPROCS(0))))
	}
}

// model is one compiled model file.
type model struct {
	*binding
	compiled *compiled
	own      *core // the core of a model with an extension, else nil
	fixed    int64 // the batch size of the file when it is not variable, else 0
	pad      bool
	threads  int

	precision precision.Precision // see Precision
	// unsure is set when an output's shape did not depend on the batch as expected. The runtime then allocates all outputs.
	unsure atomic.Bool
}

var _ backends.ThreadedModel = (*model)(nil)

// load reads the file, adapts it to the configuration and compiles it.
func (m *model) load(s *backends.Settings, from *core, path string, set *settings, byDefault int) error {
	if err := set.checkFile(s, path); err != nil {
		return status.Prefixf(err, "unable to load model '%s': ", s.Model)
	}
	g, err := readGraph(from, path)
	if err != nil {
		err = bind.UnreadableFile(err, "a model that OpenVINO reads", path)
		return status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	defer g.close()
	if err := m.bind(s.Config, g, set, byDefault); err != nil {
		return status.Errorf(status.CodeOf(err), "%w (in '%s')", err, path)
	}
	m.Sig.Model, m.Sig.Version = s.Model, s.Version
	if m.compiled, err = g.compile(set); err == nil {
		err = m.connect()
	}
	if err == nil {
		err = m.checkCompiled(set)
	}
	if err != nil {
		return status.Prefixf(err, "unable to load model '%s' from '%s': ", s.Model, path)
	}
	m.precision = m.precisionOf(set, path)
	return nil
}

// bind adapts the shapes of the file to the configuration, and binds the ports.
func (m *model) bind(cfg *modelconfig.ModelConfig, g *graph, set *settings, byDefault int) error {
	maxBatch, err := (&bind.Model[native]{Ins: g.ins, Outs: g.outs}).MaxBatch(cfg, byDefault)
	if err == nil {
		err = adapt(cfg, g, set)
	}
	if err != nil {
		return err
	}
	b, err := bind.Bind(cfg, &bind.Model[native]{Ins: g.ins, Outs: g.outs, FindAlias: g.named, FixedBatch: true}, maxBatch)
	if err != nil {
		return err
	}
	m.binding = b
	for _, p := range b.Sig.Inputs {
		if p.Optional {
			return status.Errorf(status.Unsupported, "unable to load model '%s', input '%s' is optional, but every input of the model is needed", b.Sig.Model, p.Name)
		}
	}
	for i := range b.Out { // known: all dimensions are fixed or the batch
		p, own := &b.Out[i], &b.Out[i].Native
		_, handed := g.named(p.Name, false)
		own.lent = handed || p.DType == tensor.Bytes
		rest := p.Shape
		if b.Sig.MaxBatch > 0 && len(rest) > 0 {
			rest = rest[1:]
		}
		own.known = !p.AnyRank && !own.lent && !slices.Contains(rest, -1)
	}
	m.fixed, err = batchOf(b)
	return err
}

// batchOf returns the batch size of the file, or 0 when it is variable or the model does not batch. It must be the same for all
// ports, and at least max_batch_size.
func batchOf(b *binding) (fixed int64, err error) {
	for _, p := range slices.Concat(b.In, b.Out) {
		if b.Sig.MaxBatch == 0 || p.AnyRank || len(p.Shape) == 0 {
			continue
		}
		if p.Shape[0] != -1 && fixed == 0 && p.Shape[0] >= int64(b.Sig.MaxBatch) {
			fixed = p.Shape[0]
		}
		if p.Shape[0] != -1 && p.Shape[0] != fixed {
			return 0, status.Errorf(status.InvalidArg, "model '%s', tensor '%s': for the model to support batching the shape should have at "+
				"least 1 dimension and the first dimension must be -1 or at least max_batch_size %d, and the same of all tensors; but shape expected by the model is %s",
				b.Sig.Model, p.Name, b.Sig.MaxBatch, tensor.Of(p.Shape...))
		}
	}
	return fixed, nil
}

// adapt changes the shapes of the file as Triton does: a fixed batch dimension becomes variable, and with RESHAPE_IO_LAYOUT the
// inputs get their configured dimensions.
func adapt(cfg *modelconfig.ModelConfig, g *graph, o *settings) error {
	shapes, texts, changed := make([][]int64, len(g.ins)), make([]string, len(g.ins)), false
	for i, p := range g.ins {
		shape := slices.Clone(p.Shape)
		if o.reshape || p.AnyRank {
			if d := configured(cfg, p.Name); d != nil {
				shape = d
			} else if p.AnyRank {
				return status.Errorf(status.InvalidArg,
					"unable to load model '%s', the model leaves the number of dimensions of input '%s' open, expected them in the configuration", cfg.GetName(), p.Name)
			}
		}
		if cfg.GetMaxBatchSize() > 0 && !o.fixed && len(shape) > 0 {
			shape[0] = -1
		}
		changed = changed || !slices.Equal(shape, p.Shape)
		shapes[i], texts[i] = shape, tensor.Of(shape...).String()
	}
	if !changed {
		return nil
	}
	if err := g.reshape(shapes); err != nil {
		return status.Prefixf(err, "unable to load model '%s', the model cannot take inputs of shapes %s: ", cfg.GetName(), strings.Join(texts, " "))
	}
	return nil
}

// configured returns the configured dimensions of an input including the batch, or nil.
func configured(cfg *modelconfig.ModelConfig, name string) []int64 {
	for _, io := range cfg.GetInput() {
		if io.GetName() != name {
			continue
		}
		dims := io.GetDims()
		if r := io.GetReshape(); r != nil {
			dims = r.GetShape()
		}
		if cfg.GetMaxBatchSize() > 0 {
			return append([]int64{-1}, dims...)
		}
		return append([]int64{}, dims...)
	}
	return nil
}

// connect looks up the ports of the compiled model and its number of threads.
func (m *model) connect() error {
	for k, bound := range [][]bind.Bound[native]{m.In, m.Out} {
		for i := range bound {
			if err := m.compiled.find(&bound[i].Port, k == 1); err != nil {
				return err
			}
		}
	}
	m.threads = max(1, m.compiled.property(keyThreads)/max(1, m.compiled.property(keyStreams)))
	return nil
}

// Threads implements backends.ThreadedModel.
func (m *model) Threads() int { return m.threads }

// NewInstance returns an executor on the host.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	if err := bind.CheckHost("openvino", m.Sig.Model, at); err != nil {
		return nil, err
	}
	return newInstance(m)
}

// Close unloads the model.
func (m *model) Close() error {
	m.compiled.close()
	if m.own != nil {
		m.own.close()
		m.own = nil
	}
	return nil
}
