package wasm

import (
	"context"
	"crypto/rand"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/wasm/meter"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// instance executes batches with a module instance of its own.
type instance struct {
	m         *model
	ctx       context.Context //nolint:containedctx // of the calls of the module, which has the instance
	execution execution
	output    output
	closed    bool

	mod     api.Module // nil when the next execution needs a new one
	memory  api.Memory
	buffer  api.Function
	execute api.Function
	fuel    api.MutableGlobal
	at      uint32 // the address of the module's buffer, and its size
	size    uint64

	stack [2]uint64
	list  []entry
	head  []byte
}

var _ backends.Instance = (*instance)(nil)

func newInstance(m *model) *instance {
	x := &instance{m: m, execution: execution{limits: &m.limits}}
	x.output = output{log: m.settings.Log, model: m.Sig.Model, left: maxOutput}
	x.ctx = context.WithValue(context.Background(), callKey{}, x)
	return x
}

// Close frees the module instance.
func (x *instance) Close() error {
	x.closed = true
	x.drop()
	return nil
}

// drop frees the module instance. The next execution gets a new one.
func (x *instance) drop() {
	if x.mod != nil {
		_ = x.mod.Close(x.ctx) // it has no files
	}
	x.mod, x.memory, x.buffer, x.execute, x.fuel, x.at, x.size = nil, nil, nil, nil, nil, 0, 0
}

// start makes a module instance and initializes it, within the time of an execution. A failure leaves none.
func (x *instance) start(ctx context.Context) (err error) {
	x.execution.begin(ctx, nil, 0)
	defer x.execution.end()
	defer x.output.end()
	x.mod, err = x.m.runtime.InstantiateModule(x.ctx, //nolint:contextcheck // that of the execution, which begin has made of ctx
		x.m.compiled, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize").
			WithStdout(&x.output).WithStderr(&x.output).WithRandSource(rand.Reader).
			WithSysWalltime().WithSysNanotime().WithNanosleep(x.execution.sleep))
	if err == nil {
		err = x.connect()
	} else {
		err = x.failed(err)
	}
	if err != nil {
		x.drop()
		return status.Prefixf(err, "unable to start the module: ")
	}
	return nil
}

// connect looks up the exports of the module instance, checks its version and passes it the parameters.
func (x *instance) connect() error {
	if x.mod.IsClosed() {
		return x.errorf(status.Errorf(status.Internal, "the module exited while it was initialized, expected a reactor that returns"))
	}
	fuel, ok := x.mod.ExportedGlobal(meter.Global).(api.MutableGlobal)
	if !ok {
		return x.errorf(status.Errorf(status.Internal, "the module lost its meter"))
	}
	x.memory, x.fuel = x.mod.ExportedMemory(exportMemory), fuel
	x.buffer, x.execute = x.mod.ExportedFunction(exportBuffer), x.mod.ExportedFunction(exportExecute)
	version, err := x.call(x.mod.ExportedFunction(exportVersion), 0, 0)
	if err != nil {
		return err
	}
	if version != abiVersion {
		return x.errorf(status.Errorf(status.Unsupported, "the module has version %d of the interface, expected version %d", version, abiVersion))
	}
	if initialize := x.mod.ExportedFunction(exportInitialize); initialize != nil {
		return x.initialize(initialize)
	}
	return nil
}

// initialize passes the parameters of the configuration to the module, each as a BYTES tensor of one element.
func (x *instance) initialize(f api.Function) error {
	x.list = x.list[:0]
	one := []int64{1}
	for _, key := range x.m.params {
		x.list = append(x.list, entry{name: key, dtype: tensor.Bytes, dims: one, data: tensor.AppendBytes(nil, x.m.settings.Param(key))})
	}
	at, err := x.write()
	if err != nil {
		return err
	}
	addr, err := x.call(f, at, uint32(len(x.list)))
	if err != nil {
		return err
	}
	mem := x.view()
	_, failures, err := mem.response(addr)
	if err == nil && len(failures) > 0 {
		var failure error
		if _, failure, err = mem.failure(failures); err == nil {
			err = failure
		}
	}
	if err != nil {
		return x.errorf(err)
	}
	return nil
}

// call calls a function of the module with up to two numbers. After an error the module instance is gone.
func (x *instance) call(f api.Function, a, b uint32) (uint32, error) {
	x.stack[0], x.stack[1] = uint64(a), uint64(b)
	if err := f.CallWithStack(x.ctx, x.stack[:]); err != nil {
		err = x.failed(err)
		x.drop()
		return 0, err
	}
	if x.mod.IsClosed() { // it exited with code 0
		x.drop()
		return 0, x.errorf(status.Errorf(status.Internal, "the module exited with code 0"))
	}
	return uint32(x.stack[0]), nil
}

// view returns the memory of the module, borrowed until its next call.
func (x *instance) view() memory {
	b, _ := x.memory.Read(0, x.memory.Size())
	return b
}

// Execute runs the module on a batch.
//
// hot: no allocation in the steady state.
func (x *instance) Execute(ctx context.Context, b *backends.Batch) error {
	switch {
	case x.closed:
		return status.Reasonf(status.ModelNotReady, "instance of model '%s' is closed", x.m.Sig.Model)
	case ctx.Err() != nil:
		return status.ErrCancelled
	case len(b.In) != len(x.m.Sig.Inputs) || len(b.Out) != len(x.m.Sig.Outputs):
		return x.errorf(status.Errorf(status.Internal, "expected a batch of %d inputs and %d outputs, got %d and %d",
			len(x.m.Sig.Inputs), len(x.m.Sig.Outputs), len(b.In), len(b.Out)))
	}
	if err := x.inputs(b); err != nil {
		return err
	}
	if x.mod == nil {
		list := x.list
		x.list = nil // start uses it
		if err := x.start(ctx); err != nil {
			return err
		}
		x.list = list
	}
	x.execution.begin(ctx, b.Requests, x.m.limits.fuel)
	x.fuel.Set(uint64(x.execution.grant()))
	err := x.run(b)
	x.execution.end()
	x.output.end()
	clear(x.list)
	return err
}

// inputs lists the inputs of a batch that are present. Their dimensions and data are borrowed.
func (x *instance) inputs(b *backends.Batch) error {
	x.list = x.list[:0]
	for i := range b.In {
		t, p := &b.In[i], &x.m.Sig.Inputs[i]
		switch {
		case !t.Present() && !p.Optional:
			return x.errorf(status.Errorf(status.InvalidArg, "input '%s': expected a %s tensor, got none", p.Name, p.DType))
		case !t.Present():
			continue
		case t.DType != p.DType || !accepts(p, x.m.Sig.MaxBatch, b.Rows, &t.Shape):
			return x.errorf(status.Errorf(status.InvalidArg, "input '%s': expected a %s tensor of shape %s, got a %s tensor of shape %s",
				p.Name, p.DType, fullDims(p, x.m.Sig.MaxBatch), t.DType, t.Shape))
		}
		if err := checkData(t.DType, &t.Shape, t.Bytes()); err != nil {
			return x.errorf(status.Errorf(status.InvalidArg, "input '%s': %w", p.Name, err))
		}
		x.list = append(x.list, entry{p.Name, t.DType, t.Shape.Dims(), t.Bytes()})
	}
	return nil
}

// run writes the request, calls the module and copies its outputs. After a response that the interface does not allow, the
// module instance is dropped: its state cannot be trusted.
func (x *instance) run(b *backends.Batch) error {
	at, err := x.write()
	if err != nil {
		return err
	}
	addr, err := x.call(x.execute, at, uint32(len(x.list)))
	if err != nil {
		return err
	}
	reported, err := x.take(b, addr)
	if err == nil {
		return reported
	}
	x.drop()
	return x.errorf(err)
}

// write writes the request to the memory of the module and returns its address.
func (x *instance) write() (uint32, error) {
	_, total := requestSize(x.list)
	if err := x.room(total + alignment); err != nil {
		return 0, err
	}
	at := uint32(aligned(uint64(x.at)))
	x.head = appendHead(x.head[:0], at, x.list)
	x.memory.Write(at, x.head)
	data := uint64(at) + aligned(uint64(len(x.head)))
	for i := range x.list {
		x.memory.Write(uint32(data), x.list[i].data)
		data += aligned(uint64(len(x.list[i].data)))
	}
	return at, nil
}

// room has the module provide a buffer of at least n bytes.
func (x *instance) room(n uint64) error {
	if n <= x.size {
		return nil
	}
	if limit := uint64(x.m.limits.pages) * pageSize; n > limit {
		return x.errorf(status.Errorf(status.InvalidArg, "the inputs take %d bytes, expected less than the module's memory of %s", n, x.m.limits.memory()))
	}
	want := min((n+n/4+pageSize-1)&^(pageSize-1), 1<<32-pageSize) // some more, so that slightly larger inputs fit too
	at, err := x.call(x.buffer, uint32(want), 0)
	if err != nil {
		return err
	}
	if at == 0 {
		err = status.Errorf(status.InvalidArg, "the module has no memory for %d bytes of inputs; its limit is %s", n, x.m.limits.memory())
	} else if _, ok := x.view().at(at, want); !ok {
		err = x.view().outside("a buffer", at, want)
	}
	if err != nil {
		x.drop()
		return x.errorf(err)
	}
	x.at, x.size = at, want
	return nil
}

// take sets the outputs of a batch to those of the response at an address. reported is the failure of the whole batch by the module.
func (x *instance) take(b *backends.Batch, addr uint32) (reported, err error) {
	mem := x.view()
	outputs, failures, err := mem.response(addr)
	if err != nil {
		return nil, err
	}
	if n := len(failures) / failureSize; n > b.Rows+1 {
		return nil, status.Errorf(status.Internal, "the module returned %d failures for %d rows, expected at most one for each", n, b.Rows)
	}
	for ; len(failures) > 0; failures = failures[failureSize:] {
		row, failure, err := mem.failure(failures)
		switch {
		case err != nil:
			return nil, err
		case row == -1:
			return x.errorf(failure), nil
		case row < 0 || int(row) >= b.Rows:
			return nil, status.Errorf(status.Internal, "the module returned a failure of row %d, expected a row from 0 to %d, or -1 for all", row, b.Rows-1)
		}
		b.Fail(int(row), x.errorf(failure))
	}
	if len(outputs) == 0 && allFailed(b.Requests) {
		return nil, nil
	}
	return nil, x.outputs(b, mem, outputs)
}

func allFailed(reqs []backends.Request) bool {
	for i := range reqs {
		if reqs[i].Err == nil {
			return false
		}
	}
	return true
}

// outputs copies the outputs that an array of structures describes. Each output must be there once.
func (x *instance) outputs(b *backends.Batch, mem memory, list []byte) error {
	if n := len(list) / tensorSize; n != len(b.Out) {
		return status.Errorf(status.Internal, "the module returned %d outputs, expected %d", n, len(b.Out))
	}
	for ; len(list) > 0; list = list[tensorSize:] {
		r, err := mem.result(list)
		if err == nil {
			err = x.set(b, &r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// set sets an output of the batch to a copy of a result.
func (x *instance) set(b *backends.Batch, r *result) error {
	i := 0
	for i < len(x.m.Sig.Outputs) && x.m.Sig.Outputs[i].Name != string(r.name) {
		i++
	}
	if i == len(x.m.Sig.Outputs) {
		return status.Errorf(status.Internal, "the module returned output '%s', expected one of the configuration", shown(r.name))
	}
	p := &x.m.Sig.Outputs[i]
	switch {
	case b.Out[i].Present():
		return status.Errorf(status.Internal, "the module returned output '%s' twice", p.Name)
	case r.dtype != uint32(p.DType) || !accepts(p, x.m.Sig.MaxBatch, b.Rows, &r.shape):
		return status.Errorf(status.Internal, "the module returned output '%s' of data type %d and shape %s, expected %d (%s) and %s with %d rows",
			p.Name, r.dtype, r.shape, p.DType, p.DType, fullDims(p, x.m.Sig.MaxBatch), b.Rows)
	}
	if err := checkData(p.DType, &r.shape, r.data); err != nil {
		return status.Errorf(status.Internal, "the module returned output '%s' of shape %s: %w", p.Name, r.shape, err)
	}
	var t *tensor.Tensor
	var err error
	if p.DType == tensor.Bytes {
		t, err = b.AllocBytes(i, r.shape, len(r.data))
	} else {
		t, err = b.Alloc(i, p.DType, r.shape)
	}
	if err == nil {
		copy(t.Bytes(), r.data)
	}
	return err
}

// accepts reports whether a tensor of a batch of rows fits a port.
func accepts(p *config.Port, maxBatch, rows int, s *tensor.Shape) bool {
	if p.Unbatched {
		maxBatch = 0
	}
	return p.Accepts(s, maxBatch) && (maxBatch == 0 || s.Dim(0) == int64(rows))
}

// fullDims returns the dims of a port at the module.
func fullDims(p *config.Port, maxBatch int) tensor.Shape {
	if p.Unbatched {
		maxBatch = 0
	}
	return p.FullDims(maxBatch)
}

// checkData checks that data are the elements of a shape.
func checkData(d tensor.DType, s *tensor.Shape, data []byte) error {
	n := s.Elements()
	if d == tensor.Bytes {
		return tensor.CheckBytes(data, n)
	}
	if size := int64(d.Size()); n < 0 || n != int64(len(data))/size || int64(len(data))%size != 0 {
		return status.Errorf(status.Internal, "expected %d elements of %d bytes, found %d bytes", n, size, len(data))
	}
	return nil
}
