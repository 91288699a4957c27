package isolate

import (
	"context"
	"encoding/gob"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/subprocess"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// mode is that of a child.
var mode = subprocess.Mode{Argument: "__isolated", Guard: "TUTTI_ISOLATED"}

// Hidden reports whether the program was started as a child. It must then call Serve, and nothing else.
func Hidden(args []string) bool { return mode.Hidden(args) }

// Serve runs a child: it loads the model that the server describes, with one of the factories, and executes batches until the server closes
// the socket. It returns the exit status.
func Serve(list []backends.Factory) int {
	c := &child{Child: mode.Begin(0)}
	socket := c.Socket
	var about description
	if err := gob.NewDecoder(socket).Decode(&about); err != nil {
		fmt.Fprintln(os.Stderr, "expected a server on descriptor 3:", err)
		return 1
	}
	made, err := c.load(list, &about)
	if err != nil {
		made = &loaded{Code: status.CodeOf(err), Reason: status.ReasonOf(err), RetryAfter: status.RetryAfter(err), Text: err.Error()}
	}
	if err := gob.NewEncoder(socket).Encode(made); err != nil || made.Text != "" {
		return 1
	}
	go c.serve()
	go c.cancelled()
	_, _ = io.Copy(io.Discard, socket) // until the server closes it, or exits
	return 0
}

// child is the state of a child process.
type child struct {
	*subprocess.Child

	control control
	all     []byte // the shared memory, which is read-only
	own     []byte // the range of this process
	pool    *tensor.Pool
	model   backends.Model
	inst    backends.Instance

	batch   backends.Batch
	request [1]backends.Request
	inputs  []*tensor.Buffer
	slots   []*tensor.Buffer // outputs that the server holds
	empty   []int            // free indices of slots

	ctx    context.Context //nolint:containedctx // of executions, replaced when it was cancelled
	cancel atomic.Pointer[context.CancelFunc]
}

func (c *child) load(list []backends.Factory, about *description) (made *loaded, err error) {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	defer recovery.Error(&err, log, "loading an isolated model")
	if err := c.mapMemory(about); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(f backends.Factory) bool { return f.Name == about.Backend })
	if i < 0 {
		return nil, status.Errorf(status.Internal, "the program has no backend '%s' to isolate", about.Backend)
	}
	cfg := &modelconfig.ModelConfig{}
	if err := proto.Unmarshal(about.Config, cfg); err != nil {
		return nil, err
	}
	ctx := context.Background()
	b, err := list[i].New(backends.Options{Log: log, Config: about.Values, Others: about.Others, Places: tensor.NewPlaces(c.pool)})
	if err != nil {
		return nil, err
	}
	c.model, err = b.Load(ctx, backends.Settings{
		Model: about.Model, Version: about.Version, ModelDir: about.ModelDir, Dir: about.Dir, Config: cfg, Filename: about.Filename,
		Instances: about.Instances, Strict: about.Strict, Alloc: c.pool, Log: log,
	})
	if err != nil {
		return nil, err
	}
	if c.inst, err = c.model.NewInstance(ctx, tensor.Place{}); err != nil {
		return nil, err
	}
	return c.describe()
}

// describe returns what the server must know of the model.
func (c *child) describe() (*loaded, error) {
	sig := c.model.Signature()
	reshaped := func(p config.Port) bool { return p.Reshape != nil }
	if sig.Decoupled || sig.AnyPlace || len(sig.Computed)+len(sig.Scattered) > 0 || slices.ContainsFunc(slices.Concat(sig.Inputs, sig.Outputs), reshaped) {
		return nil, status.Errorf(status.Unsupported, "model '%s' cannot be isolated: it is decoupled or describes its ports in a way that has no form between processes", sig.Model)
	}
	c.batch.Out = make([]tensor.Tensor, len(sig.Outputs))
	c.batch.In = make([]tensor.Tensor, len(sig.Inputs))
	c.inputs = make([]*tensor.Buffer, len(sig.Inputs))
	made := &loaded{Model: sig.Model, Version: sig.Version, MaxBatch: sig.MaxBatch, Inputs: portsOf(sig.Inputs), Outputs: portsOf(sig.Outputs), Threads: 1}
	if t, ok := c.model.(backends.ThreadedModel); ok {
		made.Threads = t.Threads()
	}
	if p, ok := c.model.(backends.PreciseModel); ok {
		made.Precision = p.Precision()
	}
	return made, nil
}

// mapMemory maps the shared memory for reading, and the range of this process for writing.
func (c *child) mapMemory(about *description) (err error) {
	if c.own, c.all, err = c.Map(about.Layout); err != nil {
		return status.Reasonf(status.MemoryLimit, "model '%s': its process cannot map the shared memory: %w", about.Model, err)
	}
	c.control = control{c.own[:controlSize]}
	c.pool = tensor.NewPool()
	c.pool.ShareIn(tensor.SharedRange(c.own[controlSize:]))
	return nil
}

// serve executes batches.
func (c *child) serve() {
	runtime.LockOSThread()
	started, asleep := c.control.counter(atStarted), c.control.counter(atAsleep)
	ended, waiting := c.control.counter(atEnded), c.control.counter(atWaiting)
	c.renew()
	for last := uint32(0); ; {
		last = await(started, asleep, last)
		if c.ctx.Err() != nil {
			c.renew()
		}
		err := c.execute()
		w := c.control.response()
		if err == nil {
			w.put(0)
			err = c.respond(&w)
		}
		if err == nil && w.over {
			err = errTooLarge(c.model.Signature().Model)
		}
		if err != nil {
			w = c.control.response()
			w.put(1)
			w.putError(err)
		}
		tensor.ReleaseAll(c.batch.Out)
		for i := range c.batch.In {
			c.batch.In[i].Release()
		}
		announce(ended, waiting, last)
	}
}

func (c *child) renew() {
	ctx, cancel := context.WithCancel(context.Background())
	c.ctx = ctx
	c.cancel.Store(&cancel)
}

// cancelled cancels executions that the server no longer wants.
func (c *child) cancelled() {
	counter := c.control.counter(atCancel)
	for last := uint32(0); ; {
		now := counter.Load()
		if now == last {
			sleep(counter, last)
			continue
		}
		last = now
		if c.control.counter(atStarted).Load() == now && c.control.counter(atEnded).Load() != now {
			if f := c.cancel.Load(); f != nil {
				(*f)()
			}
		}
	}
}

// execute runs the batch of the request.
func (c *child) execute() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = status.Errorf(status.Internal, "unexpected error while executing model '%s': %v", c.model.Signature().Model, p)
		}
	}()
	w := c.control.request()
	c.batch.Rows = int(w.next()) //nolint:gosec // the server's
	for range w.next() {
		slot := w.next()
		c.slots[slot].Release()
		c.slots[slot] = nil
		c.empty = append(c.empty, int(slot)) //nolint:gosec // an index
	}
	for i := range c.batch.In {
		if w.next() == 0 {
			continue
		}
		d, off, n, shape := w.tensor()
		buf := c.inputs[i]
		if buf == nil || buf.Held() != 0 {
			buf = &tensor.Buffer{}
			c.inputs[i] = buf
		}
		var at unsafe.Pointer
		if n > 0 {
			at = unsafe.Pointer(&c.all[off])
		}
		buf.Reset(borrowed{}, tensor.Place{}, at, int(n))                            //nolint:gosec // the server's
		c.batch.In[i] = tensor.Tensor{DType: d, Shape: shape, Buf: buf, Len: int(n)} //nolint:gosec // the server's
	}
	c.request[0] = backends.Request{Ctx: c.ctx, Rows: c.batch.Rows}
	c.batch.Requests, c.batch.Allocator = c.request[:], c.pool
	if err := c.inst.Execute(c.ctx, &c.batch); err != nil {
		return err
	}
	return c.request[0].Err
}

// borrowed owns inputs, which are the server's.
type borrowed struct{}

// Free does nothing.
func (borrowed) Free(*tensor.Buffer) {}

// Lends implements tensor.Lender.
func (borrowed) Lends() {}

// respond describes the outputs.
func (c *child) respond(w *words) error {
	for i := range c.batch.Out {
		t := &c.batch.Out[i]
		if !t.Present() {
			w.put(outAbsent)
			continue
		}
		if k, off := c.inputOf(t); k >= 0 {
			w.put(outOfInput)
			w.put(uint64(k)) //nolint:gosec // an index
			w.putTensor(t.DType, off, t.Len, &t.Shape)
			continue
		}
		if !within(c.own, t.Pointer()) { // memory of the runtime
			moved, err := tensor.NewBytes(c.pool, t.Shape, t.Len)
			if err != nil {
				return err
			}
			moved.DType = t.DType
			copy(moved.Bytes(), t.Bytes())
			t.Release()
			*t = moved
		}
		off := uintptr(t.Pointer()) - uintptr(unsafe.Pointer(unsafe.SliceData(c.own)))
		w.put(outInRange)
		w.put(uint64(c.hold(t.Buf.Retain())))           //nolint:gosec // an index
		w.putTensor(t.DType, int(off), t.Len, &t.Shape) //nolint:gosec // within the range
	}
	return nil
}

// inputOf returns the input that has the memory of a tensor, and the position in it; -1 for none.
func (c *child) inputOf(t *tensor.Tensor) (input, off int) {
	for i := range c.batch.In {
		in := &c.batch.In[i]
		if in.Present() && in.Len > 0 && t.Len > 0 && in.Buf == t.Buf {
			return i, t.Off - in.Off
		}
	}
	return -1, 0
}

func within(mem []byte, p unsafe.Pointer) bool {
	return uintptr(p)-uintptr(unsafe.Pointer(unsafe.SliceData(mem))) < uintptr(len(mem))
}

// hold keeps an output for the server, and returns its slot.
func (c *child) hold(b *tensor.Buffer) int {
	if n := len(c.empty); n > 0 {
		slot := c.empty[n-1]
		c.empty = c.empty[:n-1]
		c.slots[slot] = b
		return slot
	}
	c.slots = append(c.slots, b)
	return len(c.slots) - 1
}
