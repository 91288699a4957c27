package tensorop

import (
	"context"
	"slices"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

type runner interface {
	run(b *backends.Batch, x *scratch) error
}

type step struct {
	runner runner
	name   string // of the operation
	text   bool   // an input or output is BYTES
	pool   pool.Of[scratch]
}

// scratch is the memory that one execution needs besides its inputs and outputs.
type scratch struct {
	loop   nest
	ints   []int
	text   []byte
	temps  []*tensor.Tensor // the first used ones hold memory, released at the end
	used   int
	in     []tensor.Tensor
	moving moving
	device compute.Kernels // nil on the host
	nest   compute.Nest    // the loops of a launch
	tiles  [2][tile]uint64 // operands of a few elements, repeated
}

func newStep(s *steps.Settings) (steps.Step, error) {
	made, err := build(s)
	if err != nil {
		return nil, err
	}
	text := func(p config.Port) bool { return p.DType == tensor.Bytes }
	return &step{runner: made.run, name: made.name, text: slices.ContainsFunc(made.in, text) || slices.ContainsFunc(made.out, text)}, nil
}

// maxKept limits the scratch memory that is kept for the next execution, in bytes.
const maxKept = 1 << 20

// Run fills the outputs.
func (st *step) Run(_ context.Context, b *backends.Batch) error {
	x := st.pool.Get()
	err := st.runner.run(b, x)
	x.release(0)
	clear(x.in)
	x.moving = moving{outs: x.moving.outs[:0]}
	if cap(x.text)+8*cap(x.ints) <= maxKept {
		st.pool.Put(x)
	}
	return err
}

// temp returns a tensor in host memory, borrowed until the end of the execution.
func (x *scratch) temp(b *backends.Batch, d tensor.DType, shape *tensor.Shape) (*tensor.Tensor, error) {
	alloc := b.HostAllocator
	if alloc == nil {
		alloc = b.Allocator
	}
	if x.used == len(x.temps) {
		x.temps = append(x.temps, new(tensor.Tensor))
	}
	t := x.temps[x.used]
	var err error
	if *t, err = tensor.New(alloc, d, *shape); err != nil {
		return nil, err
	}
	x.used++
	return t, nil
}

// release frees the temporary tensors but for the first n.
func (x *scratch) release(n int) {
	for ; x.used > n; x.used-- {
		x.temps[x.used-1].Release()
	}
}

// errShape reports that the shapes of the whole batch do not fit together.
func errShape(format string, a, b *tensor.Shape) error {
	return status.Errorf(status.InvalidArg, format, a.String(), b.String())
}

// rowsOf returns the number of rows of a batch: 1 where batch, the number of batch dimensions, is 0.
func rowsOf(t *tensor.Tensor, batch int) int {
	if batch == 0 {
		return 1
	}
	return int(t.Shape.Dim(0))
}

// heap allocates from the Go heap. Its tensors hold constants and are never released.
type heap struct{}

var _ tensor.Allocator = heap{}

// Alloc returns n cleared bytes.
func (h heap) Alloc(n int) (*tensor.Buffer, error) {
	words := make([]uint64, n/8+1)
	return tensor.NewBuffer(h, tensor.Place{}, unsafe.Pointer(unsafe.SliceData(words)), n), nil
}

// Place is the host.
func (heap) Place() tensor.Place { return tensor.Place{} }

// Free does nothing: the garbage collector frees the memory.
func (heap) Free(*tensor.Buffer) {}

// fixed returns a tensor that lives as long as the step. size is that of BYTES elements.
func (*spec) fixed(d tensor.DType, shape tensor.Shape, size int) tensor.Tensor {
	var t tensor.Tensor
	var err error
	if d == tensor.Bytes {
		t, err = tensor.NewBytes(heap{}, shape, size)
	} else {
		t, err = tensor.New(heap{}, d, shape)
	}
	if err != nil {
		panic(specError{err})
	}
	return t
}

// arithmetic is the numeric code of one element type.
type arithmetic interface {
	unary(u *unary, out, in *tensor.Tensor)
	binary(p *binary, b *backends.Batch, x *scratch, out, one, two *tensor.Tensor)
	reduce(r *reduce, out, in *tensor.Tensor, g lines)
	// cast reports whether every element fits the type of out.
	cast(out, in *tensor.Tensor, mode overflow) bool
}

type number[T tensor.Number] struct{}

// numbers is indexed by type. BOOL is computed as bytes. FP16 and BF16 have no entry: they are converted to FP32 first.
var numbers = [...]arithmetic{
	tensor.Bool: number[uint8]{},
	tensor.Int8: number[int8]{}, tensor.Int16: number[int16]{}, tensor.Int32: number[int32]{}, tensor.Int64: number[int64]{},
	tensor.Uint8: number[uint8]{}, tensor.Uint16: number[uint16]{}, tensor.Uint32: number[uint32]{}, tensor.Uint64: number[uint64]{},
	tensor.FP32: number[float32]{}, tensor.FP64: number[float64]{},
}

// copier moves elements of one size.
type copier interface {
	spread(w *nest, dst, src *tensor.Tensor)
	pad(m *moving, p *pad, out, in *tensor.Tensor, value uint64)
	take(t *taking, out, in *tensor.Tensor)
	choose(w *nest, out *tensor.Tensor, in []tensor.Tensor)
}

// bits is an element of any type, moved as it is.
type bits interface {
	uint8 | uint16 | uint32 | uint64
}

// word implements copier for elements of the size of T.
type word[T bits] struct{}

// copiers is indexed by the size of an element.
var copiers = [...]copier{1: word[uint8]{}, 2: word[uint16]{}, 4: word[uint32]{}, 8: word[uint64]{}}

// isHalf reports whether a type has 16 bits and is computed as FP32.
func isHalf(d tensor.DType) bool { return d == tensor.FP16 || d == tensor.BF16 }

// truth returns a BOOL element.
func truth(yes bool) byte {
	if yes {
		return 1
	}
	return 0
}

// isFloat reports whether T is a floating-point type.
func isFloat[T tensor.Number]() bool {
	one := T(1)
	return one/2 != 0
}

// isNaN reports whether v is not a number. Integers never are.
func isNaN[T tensor.Number](v T) bool { return v != v } //nolint:gocritic // only a NaN differs from itself

// Elements of BYTES tensors are moved as UINT64 references: the low bits are the offset of
// the element in its tensor, the bits from sourceShift on the number of that tensor.
const sourceShift = 48

// eachElement calls use with the byte offset and the text of each element of a BYTES tensor.
func eachElement(t *tensor.Tensor, use func(i, offset int, text []byte)) error {
	data := t.Bytes()
	rest := data
	for i := range int(t.Shape.Elements()) {
		text, after, ok := tensor.NextBytes(rest)
		if !ok {
			return status.Errorf(status.Internal, "an input ends inside an element")
		}
		use(i, len(data)-len(rest), text)
		rest = after
	}
	return nil
}

// offsets returns the byte offsets of the elements of BYTES tensors, one tensor after the
// other. They are valid until the next call.
func (x *scratch) offsets(list ...*tensor.Tensor) ([]int, error) {
	x.ints = x.ints[:0]
	for _, t := range list {
		if err := eachElement(t, func(_, offset int, _ []byte) { x.ints = append(x.ints, offset) }); err != nil {
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
		if err := eachElement(&b.In[i], func(k, offset int, _ []byte) { refs[k] = uint64(i)<<sourceShift | uint64(offset) }); err != nil {
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
