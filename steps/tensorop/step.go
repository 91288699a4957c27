package tensorop

import (
	"context"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// runner executes an operation on a batch.
type runner interface {
	run(b *backends.Batch, x *scratch) error
}

// step is the step "tensor".
type step struct {
	runner runner
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
	tiles  [2][tile]uint64 // operands of a few elements, repeated
}

func newStep(s *steps.Settings) (steps.Step, error) {
	made, err := build(s)
	if err != nil {
		return nil, err
	}
	return &step{runner: made.run}, nil
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

// number implements arithmetic for elements of type T.
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

// copierOf returns the copier for elements of a type of fixed size.
func copierOf(d tensor.DType) copier {
	switch d.Size() {
	case 1:
		return word[uint8]{}
	case 2:
		return word[uint16]{}
	case 4:
		return word[uint32]{}
	default:
		return word[uint64]{}
	}
}

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
