package meter

import "encoding/binary"

// The bits of the flags of an element segment.
const (
	elementPassive     = 1 // or declarative: it has no place in a table
	elementTable       = 2 // it names its table, or it is declarative
	elementExpressions = 4 // its elements are expressions, not indices of functions
)

// elements copies the element segments.
func (m *metered) elements() []byte {
	r, n := m.section(sectionElement)
	if n == 0 {
		return m.copied(sectionElement)
	}
	out := binary.AppendUvarint(nil, uint64(n))
	for range n {
		out = m.element(out, r)
		if m.in.err != nil {
			return nil
		}
	}
	return out
}

// element copies one segment.
func (m *metered) element(out []byte, r *reader) []byte {
	at := r.at
	flags := r.u32()
	if flags > elementPassive|elementTable|elementExpressions {
		r.failAt(at, "expected an element segment of flags 0 to 7, found %d", flags)
		return nil
	}
	out = binary.AppendUvarint(out, uint64(flags))
	if flags&elementPassive == 0 {
		if flags&elementTable != 0 {
			out = binary.AppendUvarint(out, uint64(r.u32()))
		}
		out = m.constant(out, r)
	}
	if flags&(elementPassive|elementTable) != 0 {
		out = append(out, r.byte()) // the kind or the type of the elements
	}
	n := r.count()
	out = binary.AppendUvarint(out, uint64(n))
	for range n {
		if flags&elementExpressions != 0 {
			out = m.constant(out, r)
		} else {
			out = binary.AppendUvarint(out, uint64(m.shifted(int(r.u32()))))
		}
		if m.in.err != nil {
			return nil
		}
	}
	return out
}
