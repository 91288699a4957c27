package tensorop

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Elements of BYTES tensors are moved as UINT64 references: the low bits are the offset of
// the element in its tensor, the bits from sourceShift on the number of that tensor.
const sourceShift = 48

var errTruncated = status.Errorf(status.Internal, "an input ends inside an element")

// eachOffset calls use with the byte offset of each element of a BYTES tensor.
func eachOffset(t *tensor.Tensor, use func(i, offset int)) error {
	data := t.Bytes()
	rest := data
	for i := range int(t.Shape.Elements()) {
		use(i, len(data)-len(rest))
		var ok bool
		if _, rest, ok = tensor.NextBytes(rest); !ok {
			return errTruncated
		}
	}
	return nil
}

// offsets returns the byte offsets of the elements of BYTES tensors, one tensor after the
// other. They are valid until the next call.
func (x *scratch) offsets(list ...*tensor.Tensor) ([]int, error) {
	x.ints = x.ints[:0]
	for _, t := range list {
		if err := eachOffset(t, func(_, offset int) { x.ints = append(x.ints, offset) }); err != nil {
			return nil, err
		}
	}
	return x.ints, nil
}

// elementAt returns the element at an offset.
func elementAt(data []byte, offset int) []byte {
	elem, _, _ := tensor.NextBytes(data[offset:])
	return elem
}

// mover moves elements of any type of fixed size from m.in to outputs of m.alloc.
type mover interface {
	move(m *moving) error
}

// moving is one execution of a mover.
type moving struct {
	b    *backends.Batch
	x    *scratch
	in   []tensor.Tensor // references in place of texts
	text bool
	outs []*tensor.Tensor // references, where text is set
	// extra is one more source of texts: the value that pad adds.
	extra *tensor.Tensor
}

// alloc allocates output i. Where the elements are texts it returns a tensor of references instead. Both are borrowed.
func (m *moving) alloc(i int, d tensor.DType, shape *tensor.Shape) (*tensor.Tensor, error) {
	if !m.text {
		return m.b.Alloc(i, d, *shape)
	}
	t, err := m.x.temp(m.b, tensor.Uint64, shape)
	m.outs = append(m.outs, t)
	return t, err
}

// movement is the runner of a mover. The inputs before first are not moved: they hold indices or conditions.
type movement struct {
	mover
	first int
	extra *tensor.Tensor
}

func (s *spec) moves(v mover, first int, extra *tensor.Tensor) { s.run = &movement{v, first, extra} }

func (v *movement) run(b *backends.Batch, x *scratch) error {
	m := &x.moving
	*m = moving{b: b, x: x, in: b.In, extra: v.extra, outs: m.outs[:0]}
	if b.In[v.first].DType != tensor.Bytes {
		return v.move(m)
	}
	m.text = true
	x.in = append(x.in[:0], b.In...)
	m.in = x.in
	for i := v.first; i < len(b.In); i++ {
		if b.In[i].DType != tensor.Bytes {
			continue
		}
		t, err := x.temp(b, tensor.Uint64, &b.In[i].Shape)
		if err != nil {
			return err
		}
		refs := tensor.Slice[uint64](t)
		if err := eachOffset(&b.In[i], func(k, offset int) { refs[k] = uint64(i)<<sourceShift | uint64(offset) }); err != nil {
			return err
		}
		m.in[i] = *t
	}
	if err := v.move(m); err != nil {
		return err
	}
	for i, t := range m.outs {
		if err := m.resolve(i, t); err != nil {
			return err
		}
	}
	return nil
}

// resolve writes output i: the texts of a tensor of references.
func (m *moving) resolve(i int, t *tensor.Tensor) error {
	size := 0
	for _, ref := range tensor.Slice[uint64](t) {
		size += tensor.EncodedLen(len(m.element(ref)))
	}
	out, err := m.b.AllocBytes(i, t.Shape, size)
	if err != nil {
		return err
	}
	dst := out.Bytes()[:0]
	for _, ref := range tensor.Slice[uint64](t) {
		dst = tensor.AppendBytes(dst, m.element(ref))
	}
	return nil
}

// element returns the text of a reference.
func (m *moving) element(ref uint64) []byte {
	t := m.extra
	if source := int(ref >> sourceShift); source < len(m.b.In) {
		t = &m.b.In[source]
	}
	return elementAt(t.Bytes(), int(ref&(1<<sourceShift-1)))
}
