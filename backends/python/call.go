package python

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"tutti/core/infer"
	"tutti/core/status"
	"tutti/core/tensor"
)

// openCalls are the inferences that a worker has asked for.
type openCalls struct {
	mu   sync.Mutex
	ends map[uint32]context.CancelFunc // guarded by mu
	ctxs map[uint32]context.Context    // guarded by mu
}

// add opens a call. It ends with the worker, and with the request at hand when that is the only one.
func (o *openCalls) add(w *worker, id uint32) {
	ctx, cancel := context.WithCancel(w.ctx)
	if parent := w.running.context(); parent != nil {
		stop := context.AfterFunc(parent, cancel)
		inner := cancel
		cancel = func() {
			stop()
			inner()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ends == nil {
		o.ends, o.ctxs = map[uint32]context.CancelFunc{}, map[uint32]context.Context{}
	}
	o.ends[id], o.ctxs[id] = cancel, ctx
}

func (o *openCalls) context(id uint32) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ctxs[id]
}

// abandon cancels a call, which then ends.
func (o *openCalls) abandon(id uint32) {
	o.mu.Lock()
	end := o.ends[id]
	o.mu.Unlock()
	if end != nil {
		end()
	}
}

func (o *openCalls) close(id uint32) {
	o.abandon(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.ends, id)
	delete(o.ctxs, id)
}

// infer runs an inference that the worker asks for, and replies.
func (w *worker) infer(p *packet) error {
	ctx := w.open.context(p.id)
	defer w.open.close(p.id)
	if w.m.b.infer == nil {
		return status.Errorf(status.Unsupported, "no models can be called here")
	}
	req, err := w.request(p)
	if err != nil {
		return err
	}
	c := w.running.trace()
	req.Origin.Call(&c)
	target := req.Model
	if w.running.busy() && !w.m.sig.Decoupled {
		if !w.m.b.book.wait(w.m.sig.Model, w, target) {
			req.Release()
			return status.Errorf(status.Unavailable, "model '%s' calls model '%s', all of whose instances wait for it: expected more in its instance_group", w.m.sig.Model, target)
		}
		defer w.m.b.book.done(w.m.sig.Model, w, target)
	}
	sink := &callSink{w: w, id: p.id, over: make(chan struct{})}
	w.m.b.infer.Submit(ctx, req, sink)
	<-sink.over
	return errReplied
}

// request reads a CALL. The request owns its tensors.
func (w *worker) request(p *packet) (*infer.Request, error) {
	r := reader{b: p.body}
	req := infer.NewRequest()
	req.Sequence.ID, req.Priority, req.Timeout = r.u64(), r.u64(), r.u64()
	flags := r.u32()
	req.Sequence.Start, req.Sequence.End = flags&requestStart != 0, flags&requestEnd != 0
	n := int(r.u16())
	r.u16()
	extra := int(r.u32())
	r.u32()
	parts := make([]part, 0, min(n, len(p.body)/partBytes))
	for range n {
		if r.bad {
			break
		}
		parts = append(parts, r.part())
	}
	x := reader{b: r.take(extra)}
	req.ID = x.text()
	req.Sequence.Name = x.text()
	req.Params = x.params(req.Params)
	req.Model = x.text()
	if version := int64(x.u64()); version > 0 {
		req.Version = version
	}
	err := w.callInputs(p, req, parts, &x)
	for range x.u16() {
		if x.bad {
			break
		}
		req.Outputs = append(req.Outputs, x.text())
	}
	if r.bad || x.bad {
		err = status.Errorf(status.Internal, "unexpected request of %d bytes", len(p.body))
	}
	if err != nil {
		req.Release()
		return nil, err
	}
	return req, nil
}

func (w *worker) callInputs(p *packet, req *infer.Request, parts []part, names *reader) error {
	mem := memory{mem: p.body, alloc: w.m.alloc}
	if p.mapped {
		buf := newMapping(p)
		defer buf.Release()
		mem.keep = func() *tensor.Buffer { return buf }
	}
	for i := range parts {
		name := names.text()
		if !parts[i].within(len(mem.mem)) {
			return status.Errorf(status.InvalidArg, "unexpected input '%s' for model '%s': a %s tensor of shape %s and %d bytes",
				name, req.Model, parts[i].dtype, parts[i].shape, parts[i].size)
		}
		if parts[i].dtype == tensor.Bytes {
			if err := tensor.CheckBytes(mem.mem[parts[i].off:parts[i].off+parts[i].size], parts[i].shape.Elements()); err != nil {
				return status.Errorf(status.InvalidArg, "input '%s' for model '%s': %w", name, req.Model, err)
			}
		}
		t, err := mem.tensor(&parts[i])
		if err != nil {
			return err
		}
		if req.Input(name) != nil {
			t.Release()
			return status.Errorf(status.InvalidArg, "input '%s' for model '%s' is given twice", name, req.Model)
		}
		req.Inputs = append(req.Inputs, infer.Named{Name: name, Tensor: t})
	}
	return nil
}

// callSink replies to a worker as answers come.
type callSink struct {
	w     *worker
	id    uint32
	final bool
	over  chan struct{}
}

var _ infer.Sink = (*callSink)(nil)

// Send implements infer.Sink.
func (s *callSink) Send(r *infer.Response) {
	flags := uint16(0)
	if s.final = r.Final; s.final {
		flags = flagFinal
	}
	if err := s.w.sendResponse(s.id, flags, r); err != nil {
		s.w.reply(s.id, flags, err)
	}
	r.Release()
}

// Close implements infer.Sink.
func (s *callSink) Close(err error) {
	switch {
	case err != nil:
		s.w.reply(s.id, flagFinal, err)
	case !s.final:
		b := append(newBody(nil), stateNone, 0, 0, 0, 0, 0, 0, 0)
		_ = s.w.side.send(kindReply, flagFinal, s.id, b) // a worker that is gone needs none
	}
	close(s.over)
}

// sendResponse sends an answer, in a file when it is large.
func (w *worker) sendResponse(id uint32, flags uint16, r *infer.Response) error {
	b := appendResponse(nil, r)
	size := len(b)
	for i := range r.Outputs {
		size = aligned(size) + r.Outputs[i].Tensor.Len
	}
	if size <= maxBody {
		return w.side.send(kindReply, flags, id, appendData(append(newBody(make([]byte, 0, headBytes+size)), b...), headBytes, r))
	}
	fd, mem, err := newFile(size)
	if err != nil {
		return err
	}
	appendData(append(mem[:0], b...), 0, r)
	err = w.side.sendBody(kindReply, flags, id, size, fd)
	return errors.Join(err, unix.Munmap(mem), unix.Close(fd))
}

// appendResponse appends an answer whose tensors' data are to follow it.
func appendResponse(b []byte, r *infer.Response) []byte {
	n := min(len(r.Outputs), math.MaxUint16)
	extra := appendParams(appendText(nil, ""), r.Params)
	at := 8
	for i := range r.Outputs[:n] {
		extra = appendText(extra, r.Outputs[i].Name)
		at += partBytes + 8*r.Outputs[i].Tensor.Shape.Rank()
	}
	for len(extra)%8 != 0 {
		extra = append(extra, 0)
	}
	at += len(extra)
	b = append(b, stateAnswered, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(n))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(extra)))
	for i := range r.Outputs[:n] {
		t := &r.Outputs[i].Tensor
		at = aligned(at)
		b = appendPart(b, named, t, -1, at, t.Len)
		at += t.Len
	}
	return append(b, extra...)
}

// appendData appends the data of an answer's tensors, whose offsets count from base.
func appendData(b []byte, base int, r *infer.Response) []byte {
	for i := range r.Outputs {
		for (len(b)-base)%align != 0 {
			b = append(b, 0)
		}
		b = append(b, r.Outputs[i].Tensor.Bytes()...)
	}
	return b
}
