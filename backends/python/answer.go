package python

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// States of answers.
const (
	stateAnswered uint8 = iota
	stateError
	stateNone
	stateAgain
)

// largeBytes is from what size on a tensor stays where the worker wrote it.
const largeBytes = 32 << 10

// answer is one that a worker gives, in scratch that is used again.
type answer struct {
	state  uint8
	code   status.Code
	parts  []part
	text   string
	params infer.Params
	names  []string
}

// read reads an answer.
//
// hot: no allocation unless there is an extra.
func (a *answer) read(r *reader) {
	a.state = r.u8()
	a.code = codeOf(r.u8())
	n := int(r.u16())
	extra := int(r.u32())
	a.parts, a.text, a.params, a.names = a.parts[:0], "", a.params[:0], a.names[:0]
	for range n {
		if r.bad {
			return
		}
		a.parts = append(a.parts, r.part())
	}
	if extra == 0 {
		return
	}
	x := reader{b: r.take(extra)}
	a.text = x.text()
	a.params = x.params(a.params)
	for i := range a.parts {
		if a.parts[i].index == named && !x.bad {
			a.names = append(a.names, x.text())
		}
	}
	r.bad = r.bad || x.bad
}

// err returns the failure that the answer tells.
func (a *answer) err() error {
	if a.state != stateError {
		return nil
	}
	return &status.Error{Code: a.code, Msg: strings.ToValidUTF8(a.text, "\uFFFD")}
}

// memory is where an answer's tensors lie: what a worker wrote, and a buffer of it where tensors may stay.
type memory struct {
	mem   []byte
	alloc tensor.Allocator
	// keep returns a buffer of mem, borrowed; nil: tensors are copied.
	keep func() *tensor.Buffer
	// base is where mem begins in that buffer.
	base int
}

// tensor returns what p describes, checked for its size.
func (m *memory) tensor(p *part) (tensor.Tensor, error) {
	n := int(p.size)
	if m.keep != nil && n >= largeBytes {
		return tensor.Tensor{DType: p.dtype, Shape: p.shape, Buf: m.keep().Retain(), Off: m.base + int(p.off), Len: n}, nil
	}
	buf, err := m.alloc.Alloc(n)
	if err != nil {
		return tensor.Tensor{}, err
	}
	copy(buf.Bytes(), m.mem[p.off:p.off+p.size])
	return tensor.Tensor{DType: p.dtype, Shape: p.shape, Buf: buf, Len: n}, nil
}

// outputs makes tensors of the response's parts into out, which has the outputs of sig. What differs from the configuration
// is passed on and warned about, or refused where outputs are strict.
func (m *model) outputs(a *answer, mem *memory, rows int, out []tensor.Tensor) error {
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
			if err := m.differs(&m.twice, "model '%s' ('%s') gives output '%s' twice in one response", m.sig.Model, m.file, port.Name); err != nil {
				return err
			}
			out[p.index].Release() // the last one counts, as in Triton
		}
		if out[p.index], err = mem.tensor(p); err != nil {
			return status.Prefixf(err, "model '%s', output '%s': ", m.sig.Model, port.Name)
		}
	}
	return nil
}

// accept checks a tensor against its port and its own size.
func (m *model) accept(port *config.Port, p *part, mem *memory, rows int) error {
	if !p.within(len(mem.mem)) {
		return m.unexpected(port, p, rows)
	}
	if p.dtype != port.DType || !m.fits(port, &p.shape, rows) {
		if !port.Free {
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

// port returns the output that a part of a response is, the next of names where it is named. It is nil for one that the
// configuration does not declare, which is left out as in Triton.
func (m *model) port(a *answer, p *part, names *int) (*config.Port, error) {
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
	return nil, m.differs(&m.surplus, "model '%s' ('%s'): unexpected output '%s', expected %s",
		m.sig.Model, m.file, strings.ToValidUTF8(name, "\uFFFD"), quotedNames(m.sig.Outputs))
}

// differs refuses what a response should not have where outputs are strict, else it warns the first time.
func (m *model) differs(once *atomic.Bool, format string, args ...any) error {
	if m.b.set.strict {
		return status.Errorf(status.Internal, format, args...)
	}
	if !once.Load() {
		m.warn(once, status.Errorf(status.Internal, format, args...))
	}
	return nil
}

// warn logs once that a response differs from the model's configuration.
func (m *model) warn(once *atomic.Bool, found error) {
	if once.CompareAndSwap(false, true) {
		m.log.Warn("a python model's response differs from its configuration, which is allowed without --strict-python-outputs",
			slog.String("found", status.Text(found)))
	}
}

func quotedNames(ports []config.Port) string {
	list := make([]string, len(ports))
	for i := range ports {
		list[i] = "'" + ports[i].Name + "'"
	}
	return strings.Join(list, ", ")
}

func (m *model) fits(port *config.Port, s *tensor.Shape, rows int) bool {
	rowed := m.sig.MaxBatch > 0 && !port.ShapeTensor
	return port.Accepts(s, m.sig.MaxBatch) && (!rowed || s.Dim(0) == int64(rows))
}

func (m *model) unexpected(port *config.Port, p *part, rows int) error {
	want := port.FullDims(m.sig.MaxBatch)
	if m.sig.MaxBatch > 0 && !port.ShapeTensor {
		want.SetDim(0, int64(rows))
	}
	return status.Errorf(status.Internal, "model '%s' ('%s'), output '%s': expected a %s tensor of shape %s, found a %s tensor of shape %s and %d bytes",
		m.sig.Model, m.file, port.Name, port.DType, want, p.dtype, p.shape, p.size)
}

// mapping is a body that lay in a file, as a buffer.
type mapping struct{ mem []byte }

// newMapping takes a packet's mapping over.
func newMapping(p *packet) *tensor.Buffer {
	m := &mapping{p.body}
	p.mapped = false
	return tensor.NewBuffer(m, tensor.Place{}, unsafe.Pointer(unsafe.SliceData(m.mem)), len(m.mem))
}

// Free implements tensor.Owner.
func (m *mapping) Free(*tensor.Buffer) { _ = unix.Munmap(m.mem) }
