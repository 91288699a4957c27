package tritonlib

import (
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// storeWord sets a word that the process reads meanwhile.
func storeWord(at *uint64, v uint64) { (*atomic.Uint64)(unsafe.Pointer(at)).Store(v) }

// handle handles an event. Those of another execution, for example a late activity, are ignored.
func (e *execution) handle(s *slot, at uint64) {
	ev := s.of.event(at)
	if ev == nil {
		s.of.Kill("it wrote an unusable event")
		return
	}
	kind, round, i, flags := ev[1], ev[2], ev[3], ev[4]
	w := words{list: ev[eventBody:]}
	if round != uint64(s.round()) || i >= uint64(len(e.requests)) {
		drop(s.of, kind, &w)
		return
	}
	switch k := int(i); kind { //nolint:gosec // an index
	case eventExecuted:
		e.executed = true
		if flags != 0 {
			e.err = status.Errorf(codeOf(flags), "%s", clean(w.text()))
			e.open = 0
		}
	case eventResponse:
		e.respond(s.of, k, flags&flagFinal != 0, &w)
	case eventState:
		o := w.output()
		e.set(s.of, k, &o, true)
	case eventActivity:
		e.b.Requests[k].ReportActivity(clean(w.text()))
	case eventReleased:
		if flags&flagReschedule != 0 {
			e.b.Reschedule(k)
			e.close(k, func(r *progress) { r.final = true })
		}
		e.close(k, func(r *progress) { r.released = true })
	case eventAbandoned:
		if r := &e.requests[k]; r.responses == 0 || e.x.m.sig.Decoupled {
			e.fail(k, status.Errorf(status.Internal, "model '%s': backend library '%s' released the request without a final response", e.x.m.name, e.x.m.about.Backend))
		}
		e.close(k, func(r *progress) { r.final = true })
	}
}

// clean makes a text of the process fit for responses.
func clean(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// drop frees the outputs of a response that nobody waits for.
func drop(p *process, kind uint64, w *words) {
	n := 0
	switch kind {
	case eventResponse:
		w.next()
		w.text()
		n = w.count()
	case eventState:
		n = 1
	}
	for range n {
		if o := w.output(); !w.over {
			p.free(o.block)
		}
	}
}

// close notes progress of request i, and counts it when it is over.
func (e *execution) close(i int, note func(*progress)) {
	r := &e.requests[i]
	was := r.released && r.final
	note(r)
	if !was && r.released && r.final && e.open > 0 {
		e.open--
	}
}

// fail fails request i, unless it has failed before.
func (e *execution) fail(i int, err error) {
	if e.x.m.sig.Decoupled {
		e.b.SendError(i, err, true)
		return
	}
	if q := &e.b.Requests[i]; q.Err == nil {
		q.Err = err
	}
}

// respond handles a response to request i.
func (e *execution) respond(p *process, i int, final bool, w *words) {
	r, m := &e.requests[i], e.x.m
	defer e.close(i, func(r *progress) { r.final = r.final || final })
	if len(w.list) == 0 { // flags alone
		return
	}
	code, text := w.next(), w.text()
	outputs := w.count()
	r.responses++
	if code == 0 && !m.sig.Decoupled && r.responses > 1 {
		code, text = uint64(status.Internal)+1, "expected a single response, got "+strconv.Itoa(r.responses)
	}
	list := e.outputs(i)
	for range outputs {
		o := w.output()
		switch {
		case w.over:
		case code != 0:
			p.free(o.block)
		default:
			e.set(p, i, &o, false)
		}
	}
	params := w.params()
	q := &e.b.Requests[i]
	switch {
	case w.over:
		p.Kill("it wrote an unreadable response")
	case code != 0:
		if err := status.Errorf(codeOf(code), "%s", clean(text)); m.sig.Decoupled {
			e.b.SendError(i, err, final)
		} else {
			e.fail(i, err)
		}
	case !m.sig.Decoupled:
		q.ResponseParams = append(q.ResponseParams, params...)
	case q.Err == nil:
		out := append([]tensor.Tensor(nil), list...)
		clear(list)
		_ = e.b.SendParams(i, out, params, final) // a client that is gone is cancelled
	default:
		tensor.ReleaseAll(list)
		clear(list)
	}
}

// outputs returns where the outputs of request i are set. The server takes those that no response has sent when Execute has returned, for example
// a state that a decoupled model updates after its last response.
func (e *execution) outputs(i int) []tensor.Tensor {
	n := len(e.b.Out)
	if len(e.b.Requests) == 1 {
		return e.b.Out
	}
	if e.outs == nil {
		e.outs = make([]tensor.Tensor, n*len(e.b.Requests))
	}
	list := e.outs[i*n : (i+1)*n : (i+1)*n]
	e.b.Requests[i].Out = list
	return list
}

// set sets an output of request i, or a state. An output that cannot be used fails the request.
func (e *execution) set(p *process, i int, o *output, state bool) {
	t, port, err := e.accept(p, o, state)
	if err != nil {
		p.free(o.block)
		e.fail(i, err)
		return
	}
	list := e.outputs(i)
	list[port].Release() // the last one wins
	list[port] = t
}

// accept returns an output as a tensor, and the position of its port.
func (e *execution) accept(p *process, o *output, state bool) (t tensor.Tensor, port int, err error) {
	m := e.x.m
	if port = m.sig.Output(o.name); port < 0 || m.states[port] != state {
		return t, 0, status.Errorf(status.Internal, "model '%s': backend library '%s' gives output '%s', which the configuration does not have: expected %s",
			m.name, m.about.Backend, clean(o.name), m.outputNames())
	}
	if o.dtype == tensor.Invalid || o.dtype > tensor.BF16 || o.shape.Elements() < 0 {
		return t, 0, m.outputErrorf(o, "a %s tensor of shape %s is not supported", o.dtype, o.shape)
	}
	if o.size == 0 && o.shape.Elements() == 0 { // it has no block
		t, err = tensor.NewBytes(m.staging, o.shape, 0)
		t.DType = o.dtype
		return t, port, err
	}
	if !p.usable(o.block, o.size) || o.block == 0 {
		return t, 0, m.outputErrorf(o, "it has no buffer, expected one of %s %s: TRITONBACKEND_OutputBuffer was not called", o.dtype, o.shape)
	}
	size := int(o.size) //nolint:gosec // within the range
	if o.dtype != tensor.Bytes && int64(size) != o.shape.Elements()*int64(o.dtype.Size()) {
		return t, 0, m.outputErrorf(o, "a %s tensor of shape %s has %d bytes, its buffer has %d", o.dtype, o.shape, o.shape.Elements()*int64(o.dtype.Size()), size)
	}
	if o.dtype == tensor.Bytes {
		if err := tensor.CheckBytes(p.Mem[o.block:o.block+o.size], o.shape.Elements()); err != nil {
			return t, 0, m.outputErrorf(o, "%w", err)
		}
	}
	return tensor.Tensor{DType: o.dtype, Shape: o.shape, Buf: p.Wrap(o.block, p.Mem[o.block:o.block+o.size]), Len: size}, port, nil
}

func (m *model) outputErrorf(o *output, format string, args ...any) error {
	return status.Prefixf(status.Errorf(status.Internal, format, args...), "model '%s', output '%s' of backend library '%s': ", m.name, clean(o.name), m.about.Backend)
}

func (m *model) outputNames() string {
	var names []string
	for i := range m.sig.Outputs {
		names = append(names, "'"+m.sig.Outputs[i].Name+"'")
	}
	return strings.Join(names, ", ")
}
