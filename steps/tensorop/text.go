package tensorop

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Texts are moved as numbers that say where they are: the bytes before the element in
// its tensor, and in the highest bits which tensor that is.
const sourceShift = 48

// places returns where the elements of texts lie, of all tensors one after the other. It
// is good until the next call.
func (x *scratch) places(list ...*tensor.Tensor) ([]int, error) {
	x.ints = x.ints[:0]
	for _, t := range list {
		data := t.Bytes()
		rest := data
		for range t.Shape.Elements() {
			x.ints = append(x.ints, len(data)-len(rest))
			var ok bool
			if _, rest, ok = tensor.NextBytes(rest); !ok {
				return nil, status.Errorf(status.Internal, "an input ends inside an element")
			}
		}
	}
	return x.ints, nil
}

// elementAt returns the element whose length begins at a place.
func elementAt(data []byte, at int) []byte {
	elem, _, _ := tensor.NextBytes(data[at:])
	return elem
}

// table returns a tensor of the places of a tensor of texts; it moves to the caller.
func table(b *backends.Batch, t *tensor.Tensor, source int) (tensor.Tensor, error) {
	out, err := temporary(b, tensor.Uint64, &t.Shape)
	if err != nil {
		return out, err
	}
	data := t.Bytes()
	rest := data
	at := tensor.Slice[uint64](&out)
	for i := range at {
		at[i] = uint64(source)<<sourceShift | uint64(len(data)-len(rest))
		var ok bool
		if _, rest, ok = tensor.NextBytes(rest); !ok {
			out.Release()
			return out, status.Errorf(status.Internal, "an input ends inside an element")
		}
	}
	return out, nil
}

// mover moves elements of any type of fixed size: of in, to outputs that it asks for.
type mover interface {
	move(m *moving) error
}

// moving is an execution of a mover.
type moving struct {
	b    *backends.Batch
	x    *scratch
	in   []tensor.Tensor
	text bool
	// extra is one more source, the text that pad adds.
	extra *tensor.Tensor
}

// alloc makes an output, or what stands for one of texts: it is borrowed.
func (m *moving) alloc(i int, d tensor.DType, shape *tensor.Shape) (*tensor.Tensor, error) {
	if !m.text {
		return m.b.Alloc(i, d, *shape)
	}
	t, err := temporary(m.b, tensor.Uint64, shape)
	if err != nil {
		return nil, err
	}
	m.x.list = append(m.x.list, t)
	return &m.x.list[len(m.x.list)-1], nil
}

// moves runs a mover on inputs from the first-th on: the others are what they are.
func moves(b *backends.Batch, x *scratch, v mover, first int, extra *tensor.Tensor) error {
	m := &x.moving
	*m = moving{b: b, x: x, in: b.In, extra: extra}
	if b.In[first].DType != tensor.Bytes {
		return v.move(m)
	}
	m.text = true
	x.in = append(x.in[:0], b.In...)
	m.in = x.in
	clear(m.in[first:])
	defer tensor.ReleaseAll(m.in[first:])
	for i := first; i < len(b.In); i++ {
		if b.In[i].DType != tensor.Bytes {
			m.in[i] = b.In[i].Retain()
			continue
		}
		t, err := table(b, &b.In[i], i)
		if err != nil {
			return err
		}
		m.in[i] = t
	}
	if err := v.move(m); err != nil {
		return err
	}
	return m.texts()
}

// texts makes outputs of what stands for them.
func (m *moving) texts() error {
	for i := range m.x.list {
		t := &m.x.list[i]
		size := 0
		for _, at := range tensor.Slice[uint64](t) {
			size += tensor.EncodedLen(len(m.element(at)))
		}
		out, err := m.b.AllocBytes(i, t.Shape, size)
		if err != nil {
			return err
		}
		dst := out.Bytes()[:0]
		for _, at := range tensor.Slice[uint64](t) {
			dst = tensor.AppendBytes(dst, m.element(at))
		}
	}
	return nil
}

// element returns the element at a place.
func (m *moving) element(at uint64) []byte {
	source := int(at >> sourceShift)
	t := m.extra
	if source < len(m.b.In) {
		t = &m.b.In[source]
	}
	return elementAt(t.Bytes(), int(at&(1<<sourceShift-1)))
}
