package python

import (
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

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
	}
	return nil
}

// accept checks the size of a tensor, and its type and shape against the port.
func (m *model) accept(port *config.Port, p *part, mem *memory, rows int) error {
	if !p.valid(len(mem.mem)) {
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
	return nil, m.differs(&m.undeclared, "model '%s' ('%s'): unexpected output '%s', expected %s",
		m.sig.Model, m.file, strings.ToValidUTF8(name, "\uFFFD"), quotedNames(m.sig.Outputs))
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
