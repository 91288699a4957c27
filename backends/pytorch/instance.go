package pytorch

/*
#cgo noescape ttpt_run
#cgo nocallback ttpt_run
#cgo noescape ttpt_strings
#cgo nocallback ttpt_strings
#cgo noescape ttpt_free
#cgo nocallback ttpt_free
#include "call.h"
*/
import "C"

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// instance executes batches with a reusable call in C memory, so that an execution does not allocate in Go and C code never holds a
// Go pointer.
type instance struct {
	m       *model
	f       *file
	lib     *library
	own     *C.tt_torch_model // a copy of the model with its own weights, or nil
	call    *C.tt_torch_call
	in, out []C.tt_torch_value // the call's, in C memory
	buffers *bind.Buffers      // of outputs on the host
	stream  driverStream       // of an instance at a GPU, nil on the host
}

var _ backends.Instance = (*instance)(nil)

// newInstance returns an instance that runs use, which it owns when own is not nil.
func newInstance(m *model, f *file, use, own *C.tt_torch_model) (*instance, error) {
	l := m.lib
	call := C.ttpt_call_new(use, C.size_t(len(m.In)), C.size_t(len(m.Out)))
	if call == nil {
		l.unload(own)
		return nil, status.Errorf(status.Internal, "no memory for an instance of model '%s'", m.Sig.Model)
	}
	return &instance{
		m: m, f: f, lib: l, own: own, call: call, in: unsafe.Slice(call.in, len(m.In)), out: unsafe.Slice(call.out, len(m.Out)),
		buffers: bind.NewBuffers(l.free),
	}, nil
}

// attach makes the runs use a stream, whose memory the driver allocates now.
func (x *instance) attach(s tensor.Stream) error {
	d, ok := s.(driverStream)
	if !ok {
		return status.Errorf(status.Unsupported, "%s is not a GPU of the CUDA driver", s.Place())
	}
	handle, err := d.Handle()
	if err != nil {
		return err
	}
	var why errorBuffer
	if C.ttpt_attach(&x.lib.api, x.call, handle, &why[0]) != 0 {
		return why.err()
	}
	x.stream = d
	return nil
}

// Close frees the call. Outputs of earlier executions stay valid.
func (x *instance) Close() error {
	if x.call == nil {
		return nil
	}
	C.ttpt_call_free(x.call)
	x.lib.unload(x.own)
	x.call, x.own, x.in, x.out = nil, nil, nil, nil
	return nil
}

// Execute runs the model with one call of C code. A run cannot be stopped after it has started. At a GPU it returns before the
// stream is done, unless the model itself waits for it.
//
// hot: no allocation in Go in the steady state.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	if err := x.m.CheckExecute(ctx, x.call != nil, b); err != nil {
		return err
	}
	if err := x.inputs(b); err != nil {
		return err
	}
	if x.stream != nil {
		if err := x.runAtDevice(); err != nil {
			return err
		}
	} else if result := x.callRun(); result != succeeded {
		return x.runError(result)
	}
	return x.take(b)
}

// Results of a run.
const (
	succeeded = C.TT_TORCH_OK
	noMemory  = C.TT_TORCH_NO_MEMORY
)

// callRun runs the model once.
func (x *instance) callRun() int { return int(C.ttpt_run(&x.lib.api, x.call)) }

// runError returns the error of the last run.
func (x *instance) runError(result int) error {
	code := status.Internal
	if result == noMemory {
		code = status.Unavailable
	}
	return x.m.Errorf(code, "PyTorch: %s", shorten(C.GoString(&x.call.why[0])))
}

// inputs sets the inputs of the call.
func (x *instance) inputs(b *backends.Batch) error {
	for i := range b.In {
		t, v, p := &b.In[i], &x.in[i], &x.m.In[i]
		v.use = 0
		if !t.Present() {
			if !x.m.Sig.Inputs[i].Optional {
				return x.m.Errorf(status.InvalidArg, "input '%s' is missing", p.Name)
			}
			continue
		}
		dims := t.Shape.Dims()
		// PyTorch does not check that the size of a tensor matches its shape.
		if t.DType != p.DType || !accepts(p.Shape, dims) || t.DType != tensor.Bytes && int64(t.Len) != t.Shape.Elements()*int64(t.DType.Size()) {
			return x.m.InputErrorf(i, status.InvalidArg, "expected a %s tensor of shape %s, got a %s tensor of shape %s and %d bytes",
				p.DType, tensor.Of(p.Shape...), t.DType, t.Shape, t.Len)
		}
		if x.stream != nil && t.DType != tensor.Bytes && t.Buf.Place() != x.stream.Place() {
			return x.m.InputErrorf(i, status.Internal, "expected a tensor on %s, got one on %s", x.stream.Place(), t.Buf.Place())
		}
		v.use, v.data, v.bytes = 1, t.Pointer(), C.size_t(t.Len)
		v._type, v.rank = p.Native, C.int32_t(len(dims))
		copy((*[C.TT_TORCH_RANK]int64)(unsafe.Pointer(&v.dims))[:], dims)
	}
	return nil
}

// accepts reports whether a shape matches the declared dimensions and the shim's maximal rank.
func accepts(want, dims []int64) bool {
	if len(dims) != len(want) || len(dims) > C.TT_TORCH_RANK {
		return false
	}
	for i, d := range dims {
		if want[i] != -1 && want[i] != d {
			return false
		}
	}
	return true
}

// take sets the outputs of a successful run in the batch, and frees those that remain after an error.
func (x *instance) take(b *backends.Batch) (err error) {
	for i := range x.out {
		v := &x.out[i]
		if err == nil {
			err = x.output(b, i)
		}
		if v.handle != nil {
			C.ttpt_free(&x.lib.api, v.handle)
			v.handle = nil
		}
	}
	return err
}

// output sets output i to the tensor of PyTorch. An input that the model passes through is the caller's memory, which is not valid
// after the execution: on the host it is copied, at a GPU the output shares it.
func (x *instance) output(b *backends.Batch, i int) error {
	v, p := &x.out[i], &x.m.Out[i]
	if v._type != p.Native {
		return x.m.Errorf(status.Internal, "unexpected datatype %s for inference output '%s', expecting %s", scalarName(v._type), p.Name, p.DType.ConfigName())
	}
	shape, err := x.shape(i, b.Rows)
	if err != nil {
		return err
	}
	n := int(v.bytes)
	if p.DType == tensor.Bytes {
		t, err := b.AllocBytes(i, shape, n)
		if err == nil && t.Len > 0 {
			C.ttpt_strings(&x.lib.api, v, t.Pointer())
		}
		return err
	}
	for k := range x.in {
		in := &x.in[k]
		if in.use == 0 || !bind.Within(v.data, in.data, int(in.bytes)) {
			continue
		}
		if x.stream == nil {
			return bind.CopyOutput(b, i, p.DType, shape, v.data, n)
		}
		b.SetOutput(i, x.passThrough(b, i, k, shape))
		return nil
	}
	if x.stream == nil {
		b.SetOutput(i, x.buffers.Wrap(v.handle, v.data, n, tensor.Place{}, p.DType, shape))
	} else {
		b.SetOutput(i, x.f.gpu.outputs.wrap(v.handle, v.data, n, x.stream, p.DType, shape))
	}
	v.handle = nil
	return nil
}

// shape checks the shape of an output. A scalar matches declared dimensions of size 1, because dims cannot be empty.
func (x *instance) shape(i, rows int) (tensor.Shape, error) {
	v, p, batch := &x.out[i], &x.m.Out[i], x.m.Sig.MaxBatch > 0
	shape := bind.ShapeAt(unsafe.Pointer(&v.dims), int(v.rank))
	if v.rank == 0 && !batch && !slices.ContainsFunc(p.Shape, func(d int64) bool { return d != 1 }) {
		return tensor.Of(p.Shape...), nil
	}
	if accepts(p.Shape, shape.Dims()) && (!batch || shape.Dim(0) == int64(rows)) {
		return shape, nil
	}
	want := tensor.Of(p.Shape...)
	if batch {
		want.SetDim(0, int64(rows))
	}
	return shape, x.m.OutputErrorf(i, status.Internal, "expected shape %s, the model made %s", want, shape)
}

// binding has the declared tensors with their ScalarTypes.
type binding = bind.Binding[C.int32_t]

// boundPort is a declared tensor.
type boundPort = bind.Bound[C.int32_t]

// file is the model file, loaded for one place. Its instances share the weights unless ENABLE_WEIGHT_SHARING is false.
type file struct {
	at     tensor.Place
	gpu    *gpu // nil on the host
	loaded *C.tt_torch_model
	used   bool // an instance uses the loaded weights
	aoti   bool // a package, which does not say whether it changes its state
	state  bool // forward changes the model

	// Runs of a model at a GPU that changes its state follow each other: last is the end of the last one.
	order sync.Mutex
	last  tensor.Event // guarded by order
}

// repeatable reports whether a failed run left the model as it was.
func (f *file) repeatable() bool { return !f.state && !f.aoti }

// model is a model file with its declared tensors.
type model struct {
	*binding
	lib *library
	set *settings

	mu    sync.Mutex
	files []*file // one for each place; they are guarded by mu after load, and empty once closed
}

var _ backends.ThreadedModel = (*model)(nil)

// load loads the file at path for every place of the configuration.
func (m *model) load(b *backend, s *backends.Settings, path string) error {
	err := boolean.Set(s.Config, m.set.targets())
	if err == nil {
		err = checkFile(path)
	}
	if err == nil {
		m.binding, err = portsOf(s.Config)
	}
	if err == nil {
		m.Sig.Model, m.Sig.Version = s.Model, s.Version
		err = b.lib.setup(m.set)
	}
	if err != nil {
		return err
	}
	if m.set.nvFuser && s.Log != nil {
		s.Log.Warn("ENABLE_NVFUSER has no effect: PyTorch 2 has no nvFuser", slog.String("model", s.Model))
	}
	for _, at := range bind.Places(s.Config) {
		f := &file{at: at, aoti: isPackage(path)}
		device := b.device
		if at.Kind == tensor.Device {
			if f.gpu, err = b.at(at); err != nil {
				return err
			}
			device = f.gpu.name
		} else if placesItself(s.Config) {
			device = ""
		}
		if f.loaded, err = b.lib.load(path, device, s.Instances, m.set); err != nil {
			return status.Prefixf(err, "'%s': ", path)
		}
		m.files = append(m.files, f)
		if err = m.bind(f, s.Log); err != nil {
			return status.Prefixf(err, "'%s': ", path)
		}
	}
	return nil
}

// bind matches the declared tensors with the arguments and results of forward. It warns when tensors are matched by position, because
// their names do not match.
func (m *model) bind(of *file, to *slog.Logger) error {
	f := &forward{unknown: true}
	if !of.aoti {
		var err error
		if f, err = m.lib.describe(of.loaded); err != nil {
			return err
		}
	}
	of.state = f.state
	in, err := f.inputs(m.In)
	if err != nil {
		return err
	}
	out, err := f.outputs(m.Out)
	if err != nil {
		return err
	}
	for side, o := range map[string]*order{"input": &in, "output": &out} {
		if to != nil && o.strict && len(o.names) > 1 {
			to.Warn("tensors are matched by the order of their declaration", slog.String("model", m.Sig.Model), slog.String("side", side))
		}
	}
	return m.lib.bind(of.loaded, &in, &out)
}

// portsOf returns the ports of a configuration, which must declare all of them: inputs, controls and states of sequences, inputs of
// batch_input, and outputs.
func portsOf(cfg *modelconfig.ModelConfig) (b *binding, err error) {
	if len(cfg.GetInput()) == 0 || len(cfg.GetOutput()) == 0 {
		return nil, status.Errorf(status.InvalidArg,
			"must specify at least one input and one output in its configuration: PyTorch files do not contain their types and shapes")
	}
	declared := config.SignatureOf(config.DeclareSequence(cfg)).AtModel()
	b = &binding{Sig: &config.Signature{MaxBatch: declared.MaxBatch}}
	for _, p := range declared.Inputs {
		port := config.Port{Name: p.Name, DType: p.DType, Dims: p.Dims, Optional: p.Optional, Unbatched: p.Unbatched}
		if p.Unbatched {
			port.Dims = tensor.Of(-1)
		}
		b.Sig.Inputs = append(b.Sig.Inputs, port)
	}
	for _, c := range declared.Computed {
		b.Sig.Inputs = append(b.Sig.Inputs, config.Port{Name: c.Name, DType: c.DType, Dims: c.Dims(), Unbatched: true})
	}
	for _, p := range declared.Outputs {
		b.Sig.Outputs = append(b.Sig.Outputs, config.Port{Name: p.Name, DType: p.DType, Dims: p.Dims})
	}
	if b.In, err = boundPorts(b.Sig.Inputs, b.Sig.MaxBatch, "input"); err == nil {
		b.Out, err = boundPorts(b.Sig.Outputs, b.Sig.MaxBatch, "output")
	}
	return b, err
}

func boundPorts(ports []config.Port, maxBatch int, side string) (list []boundPort, err error) {
	for i := range ports {
		p := &ports[i]
		n, ok := scalarOf(p.DType)
		if !ok {
			return nil, status.Errorf(status.Unsupported, "unsupported datatype %s of %s '%s'", p.DType.ConfigName(), side, p.Name)
		}
		full := p.Dims
		if !p.Unbatched {
			full = p.FullDims(maxBatch)
		}
		if p.DType == tensor.Bytes && full.Rank() > 1 {
			return nil, status.Errorf(status.InvalidArg,
				"Triton only supports 1 dimensional List of String as %s for '%s': with a batch dimension its dims are [ 1 ] with reshape { shape: [ ] }, found shape %s",
				side, p.Name, full)
		}
		list = append(list, boundPort{Port: bind.Port[C.int32_t]{Name: p.Name, DType: p.DType, Shape: slices.Clone(full.Dims()), Native: n}})
	}
	return list, nil
}

// Threads implements backends.ThreadedModel. The number is a setting of the process.
func (m *model) Threads() int { return max(1, int(C.ttpt_threads(&m.lib.api))) }

// NewInstance returns an executor at a place of the configuration. Tensors of one on the host are there, whatever device the model
// runs on.
func (m *model) NewInstance(_ context.Context, at tensor.Place) (backends.Instance, error) {
	x, err := m.newInstance(at)
	if err != nil || x.f.gpu == nil {
		return x, err
	}
	return x.atDevice()
}

func (m *model) newInstance(at tensor.Place) (*instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.files) == 0 {
		return nil, status.Reasonf(status.ModelNotReady, "model '%s' is closed", m.Sig.Model)
	}
	i := slices.IndexFunc(m.files, func(f *file) bool { return f.at == at })
	if i < 0 {
		return nil, status.Errorf(status.Unsupported, "model '%s': the configuration has no instance group for %s", m.Sig.Model, at)
	}
	f := m.files[i]
	use, own := f.loaded, (*C.tt_torch_model)(nil)
	if !m.set.shared && f.used {
		var why errorBuffer
		if own = C.ttpt_clone(&m.lib.api, f.loaded, &why[0]); own == nil {
			return nil, status.Prefixf(why.err(), "model '%s': ", m.Sig.Model)
		}
		use = own
	}
	f.used = true
	return newInstance(m, f, use, own)
}

// Close unloads the model. GPUs get the memory back that it had.
func (m *model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.files {
		m.lib.unload(f.loaded)
		if f.gpu != nil {
			f.gpu.relieve()
		}
	}
	m.files = nil
	return nil
}
