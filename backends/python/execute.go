package python

import (
	"encoding/binary"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// begin writes the inputs to shared memory and encodes the requests.
func (x *instance) begin(b *backends.Batch) error {
	if b.Serial {
		return x.beginSerial(b)
	}
	if len(b.In) != len(x.m.sig.Inputs) || len(b.Out) != len(x.m.sig.Outputs) {
		return status.Errorf(status.Internal, "model '%s': expected a batch of %d inputs and %d outputs, got %d and %d",
			x.m.sig.Model, len(x.m.sig.Inputs), len(x.m.sig.Outputs), len(b.In), len(b.Out))
	}
	for i := range b.In {
		if err := x.acceptInput(&b.In[i], i); err != nil {
			return err
		}
	}
	if !x.ragged(b) {
		return status.Errorf(status.Internal, "model '%s': a ragged input is not what its requests hold", x.m.sig.Model)
	}
	if err := x.shareInputs(b); err != nil {
		return err
	}
	in, err := x.beginBody(len(b.Requests), inputBytes(b), 0)
	if err != nil {
		return err
	}
	present := x.copyInputs(b, in)
	for i := range b.Requests {
		x.appendRequest(b, i, present)
	}
	return nil
}

// beginBody begins the body of EXECUTE, for requests that are executed one after the other within a time, or as one batch, and returns the
// region for n bytes of inputs.
func (x *instance) beginBody(requests, n int, serial time.Duration) (*region, error) {
	w := x.w
	in, err := w.regions.inputs(n)
	if err == nil {
		x.out, err = w.regions.outputs()
	}
	if err == nil {
		err = w.regions.sendDrops()
	}
	if err != nil {
		return nil, x.broken(err)
	}
	w.body = binary.LittleEndian.AppendUint32(newBody(w.body), uint32(requests)) //nolint:gosec // bounded by the scheduler
	w.body = binary.LittleEndian.AppendUint32(w.body, in.id)
	w.body = binary.LittleEndian.AppendUint32(w.body, x.out.id)
	w.body = binary.LittleEndian.AppendUint32(w.body, uint32(serial.Microseconds())) //nolint:gosec // less than an hour
	w.body = binary.LittleEndian.AppendUint64(w.body, uint64(n))                     //nolint:gosec // not negative
	w.body = binary.LittleEndian.AppendUint64(w.body, uint64(len(x.out.mem)))
	return in, nil
}

// acceptInput checks the type and the shape of input i. A ragged input has the shapes of its requests.
func (x *instance) acceptInput(t *tensor.Tensor, i int) error {
	p := &x.m.sig.Inputs[i]
	if t.Present() && (t.DType != p.DType || !p.Unbatched && !p.Accepts(&t.Shape, x.m.sig.MaxBatch)) {
		return status.Errorf(status.InvalidArg, "model '%s', input '%s': expected a %s tensor of shape %s, got a %s tensor of shape %s",
			x.m.sig.Model, p.Name, p.DType, p.FullDims(x.m.sig.MaxBatch), t.DType, t.Shape)
	}
	return nil
}

// ragged reports whether the requests' own ragged inputs add up to those of the batch.
func (x *instance) ragged(b *backends.Batch) bool {
	for k := range b.In {
		if !x.m.sig.Inputs[k].Unbatched || !b.In[k].Present() {
			continue
		}
		n := 0
		for i := range b.Requests {
			if len(b.Requests[i].In) <= k {
				return false
			}
			n += b.Requests[i].In[k].Len
		}
		if n != b.In[k].Len {
			return false
		}
	}
	return true
}

// copyInputs copies the inputs of the batch and stores their offsets. It returns the number of present inputs.
func (x *instance) copyInputs(b *backends.Batch, in *region) (present int) {
	off := 0
	for i := range b.In {
		t, c := &b.In[i], &x.cursors[i]
		if !t.Present() {
			continue
		}
		present++
		if atGPU(t) {
			continue // shareInputs has copied it
		}
		*c = cursor{off: off}
		if t.Len > 0 {
			c.rest = t.Bytes()
			copy(in.mem[off:], c.rest)
		}
		off = aligned(off + t.Len)
	}
	return present
}

func (x *instance) appendRequest(b *backends.Batch, i, present int) {
	q, w := &b.Requests[i], x.w
	at, meta := len(w.body), q.Meta
	if meta == nil {
		meta = &noMeta
	}
	w.body = appendRequest(w.body, meta, present)
	for k := range b.In {
		t := &b.In[k]
		if !t.Present() {
			continue
		}
		if x.m.sig.Inputs[k].Unbatched {
			w.body = appendPart(w.body, k, &q.In[k], -1, x.cursors[k].gpu, x.cursors[k].off, q.In[k].Len)
			x.cursors[k].off += q.In[k].Len
			continue
		}
		first, rows := int64(-1), b.Rows
		if x.m.sig.MaxBatch > 0 && !x.m.sig.Inputs[k].ShapeTensor {
			first, rows = int64(q.Rows), q.Rows
		}
		off, size := x.cursors[k].rows(t, b.Rows, rows)
		w.body = appendPart(w.body, k, t, first, x.cursors[k].gpu, off, size)
		if x.m.sig.Inputs[k].ShapeTensor {
			x.cursors[k].off = off // every request has the whole shape tensor
		}
	}
	w.body = appendExtra(w.body, at, meta, q)
}

var noMeta infer.Meta

// run sends EXECUTE and handles its result.
func (x *instance) run(b *backends.Batch, e *execution) error {
	w := x.w
	w.seq++
	err := w.commands.send(kindExecute, 0, w.seq, w.body)
	if err == nil {
		err = x.receiveDone(b)
	}
	var p *packet
	if err != nil {
		err = w.lost(err)
	} else {
		p, err = w.checkResult()
	}
	if err != nil {
		w.cancel()
		return err
	}
	x.unshareInputs(p.flags&flagGPU != 0)
	if p.kind == kindFailed {
		w.regions.dropInputs() // the traceback may refer to them
		return x.raised(failure(p))
	}
	if p.flags&flagRetained != 0 {
		w.regions.dropInputs()
	}
	x.crashes.Store(0)
	return x.readResponses(b, e, p)
}

// raised returns the error of a request for an exception of execute, which it reports.
func (x *instance) raised(err error) error {
	x.m.failed(x.name, status.Text(err))
	return raised{status.Prefixf(err, "Failed to process the request(s) for model '%s', message: ", x.name)} // in Triton's words
}

// receiveDone waits for the result. It kills a worker that does not return in time after all requests were cancelled.
func (x *instance) receiveDone(b *backends.Batch) error {
	w := x.w
	abandoned := time.Duration(0)
	tick := min(time.Second, x.m.b.set.timeout/2)
	for at := time.Now(); ; {
		w.commands.limit(at, tick)
		err := w.commands.receive(&w.pkt)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		now := time.Now()
		abandoned = abandonedFor(b.Requests[:sent(b)], b.Serial, abandoned, now.Sub(at))
		if at = now; abandoned > x.m.b.set.timeout {
			w.kill("it did not answer within " + x.m.b.set.timeout.String() + " after its requests were cancelled")
		}
	}
}

// abandonedFor returns how long requests of a batch have been cancelled: soFar plus tick, or 0. All must be, or any of them: of requests that
// are executed one after the other it may be the one at which the worker hangs, and the others are executed again.
func abandonedFor(requests []backends.Request, anyOf bool, soFar, tick time.Duration) time.Duration {
	cancelled := 0
	for i := range requests {
		if ctx := requests[i].Ctx; ctx != nil && ctx.Err() != nil {
			cancelled++
		}
	}
	if cancelled == len(requests) || anyOf && cancelled > 0 {
		return soFar + tick
	}
	return 0
}

// readResponses decodes the body of DONE and sets the responses of the requests.
func (x *instance) readResponses(b *backends.Batch, e *execution, p *packet) error {
	r := reader{b: p.body}
	n, ns := int(r.u32()), r.u32()
	if p.flags&flagInPlace != 0 {
		x.out = x.w.regions.swap(x.out)
	}
	err := x.out.grown(r.u64())
	switch {
	case err != nil:
		return err
	case n != sent(b):
		return status.Errorf(status.Internal, "model '%s' ('%s'): expected %d responses of execute, found %d", x.m.sig.Model, x.m.file, sent(b), n)
	}
	x.mem = memory{mem: x.out.mem, alloc: b.Allocator, keep: x.mem.keep, gpu: x.w.gpu, copied: b.Copied}
	defer x.takeRegions()
	if b.HostAllocator != nil {
		x.mem.alloc = b.HostAllocator
	}
	if x.w.regions.crowded() {
		x.mem.keep = nil
	} else if x.mem.keep == nil {
		x.mem.keep = x.keep
	}
	executed := 0
	need := len(b.Requests) * len(b.Out)
	for len(x.outs) < need {
		x.outs = append(x.outs, tensor.Tensor{})
	}
	for i := range b.Requests {
		if i >= n {
			e.settled(i)
			continue
		}
		x.response.read(&r)
		if r.bad {
			return status.Errorf(status.Internal, "model '%s': unexpected answer of %d bytes of its python worker", x.m.sig.Model, len(p.body))
		}
		x.regions = appendRegions(x.regions, x.response.parts)
		x.setResponse(b, e, i)
		if !b.Requests[i].Unexecuted {
			executed++
		}
	}
	x.m.took(int64(ns), max(executed, 1))
	return nil
}

// keep returns a buffer over the output region, borrowed. Tensors in it retain it.
func (x *instance) keep() *tensor.Buffer {
	if x.buf == nil {
		x.buf = x.out.buffer()
	}
	return x.buf
}

// releaseOutputs releases the output region. It is reused once no tensor is in it.
func (x *instance) releaseOutputs() {
	switch {
	case x.buf != nil:
		x.buf.Release()
	case x.out != nil:
		x.out.of.put(x.out)
	}
	x.buf, x.out = nil, nil
}

// setResponse sets the decoded response as that of request i.
func (x *instance) setResponse(b *backends.Batch, e *execution, i int) {
	a, q := &x.response, &b.Requests[i]
	if a.state == stateNone {
		x.m.alone.Store(true)
		return
	}
	e.settled(i)
	switch a.state {
	case stateUnexecuted:
		q.Unexecuted = true
		return
	case stateError:
		q.Err = a.err()
		return
	case stateRaised:
		q.Err = x.raised(a.err())
		return
	case stateReschedule:
		b.Reschedule(i)
		return
	}
	q.ResponseParams = append(q.ResponseParams, a.params...)
	outs := b.Out
	if len(b.Requests) > 1 || b.Serial {
		outs = x.outs[i*len(b.Out) : (i+1)*len(b.Out)]
		q.Out = outs
	}
	if err := x.m.outputs(a, &x.mem, q.Rows, outs); err != nil {
		tensor.ReleaseAll(outs)
		q.Err = err
	}
}

// outputs converts the tensors of a response to out, in Signature order. A difference from the configuration is logged once, or
// refused with strict-outputs.
func (m *model) outputs(a *response, mem *memory, rows int, out []tensor.Tensor) error {
	names := 0
	for i := range a.parts {
		p := &a.parts[i]
		port, err := m.port(a, p, &names)
		if err != nil {
			return err
		}
		if port == nil {
			continue
		}
		if err := m.accept(port, p, mem, rows); err != nil {
			return err
		}
		if out[p.index].Present() {
			if err := m.differs(&m.repeated, "model '%s' ('%s') gives output '%s' twice in one response", m.sig.Model, m.file, port.Name); err != nil {
				return err
			}
			out[p.index].Release() // the last one wins, as in Triton
		}
		if out[p.index], err = mem.tensor(p); err != nil {
			return status.Prefixf(err, "model '%s', output '%s': ", m.sig.Model, port.Name)
		}
		if p.gpu != 0 && mem.copied != nil {
			at := out[p.index].Buf.Place()
			mem.copied(port.Name, at, at, int(p.size))
		}
	}
	return nil
}

// accept checks the size of a tensor, and its type and shape against the port.
func (m *model) accept(port *config.Port, p *part, mem *memory, rows int) error {
	if !mem.valid(p) {
		return m.unexpected(port, p, rows)
	}
	rowed := m.sig.MaxBatch > 0 && !port.ShapeTensor
	if p.dtype != port.DType || !port.Accepts(&p.shape, m.sig.MaxBatch) || rowed && p.shape.Dim(0) != int64(rows) {
		if !port.Unchecked {
			return m.unexpected(port, p, rows)
		}
		if once := &m.warned[p.index]; !once.Load() {
			m.warn(once, m.unexpected(port, p, rows))
		}
	}
	if p.dtype != tensor.Bytes {
		return nil
	}
	if err := tensor.CheckBytes(mem.mem[p.off:p.off+p.size], p.shape.Elements()); err != nil {
		return status.Errorf(status.Internal, "model '%s' ('%s'), output '%s': %w", m.sig.Model, m.file, port.Name, err)
	}
	return nil
}

// port returns the port of an output. A named output takes the next of names. The result is nil for an undeclared output, which
// is dropped as in Triton.
func (m *model) port(a *response, p *part, names *int) (*config.Port, error) {
	name := "<unnamed>"
	if p.index == named && *names < len(a.names) {
		name = a.names[*names]
		*names++
		if at := m.sig.Output(name); at >= 0 {
			p.index = uint16(at)
		}
	}
	if at := int(p.index); at < len(m.sig.Outputs) {
		return &m.sig.Outputs[at], nil
	}
	var known []string
	for i := range m.sig.Outputs {
		known = append(known, "'"+m.sig.Outputs[i].Name+"'")
	}
	return nil, m.differs(&m.undeclared, "model '%s' ('%s'): unexpected output '%s', expected %s",
		m.sig.Model, m.file, strings.ToValidUTF8(name, "\uFFFD"), strings.Join(known, ", "))
}

// differs returns an error with strict-outputs; otherwise it logs the difference once.
func (m *model) differs(once *atomic.Bool, format string, args ...any) error {
	if m.b.set.strict {
		return status.Errorf(status.Internal, format, args...)
	}
	if !once.Load() {
		m.warn(once, status.Errorf(status.Internal, format, args...))
	}
	return nil
}

// warn logs once that a response differs from the configuration.
func (m *model) warn(once *atomic.Bool, found error) {
	if once.CompareAndSwap(false, true) {
		m.log.Warn("a python model's response differs from its configuration, which is allowed without --strict-python-outputs",
			slog.String("found", status.Text(found)))
	}
}

func (m *model) unexpected(port *config.Port, p *part, rows int) error {
	want := port.FullDims(m.sig.MaxBatch)
	if m.sig.MaxBatch > 0 && !port.ShapeTensor {
		want.SetDim(0, int64(rows))
	}
	return status.Errorf(status.Internal, "model '%s' ('%s'), output '%s': expected a %s tensor of shape %s, found a %s tensor of shape %s and %d bytes",
		m.sig.Model, m.file, port.Name, port.DType, want, p.dtype, p.shape, p.size)
}
