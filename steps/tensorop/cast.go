package tensorop

import (
	"math"
	mathbits "math/bits"
	"strconv"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// overflow is the treatment of numbers that the other type does not have.
type overflow uint8

const (
	wrap overflow = iota
	saturate
	refuse
	toBool // not a mode of the step: every number but 0 is true
)

var overflows = map[string]overflow{"": wrap, "wrap": wrap, "saturate": saturate, "refuse": refuse}

type caster struct {
	batch    int
	from, to tensor.DType
	mode     overflow
}

func makeCast(s *spec) {
	to := s.dtype("dtype", tensor.Invalid)
	mode, ok := overflows[s.param("overflow")]
	if !ok {
		s.refuse("parameter 'overflow' is '%s', expected one of wrap, saturate, refuse", s.param("overflow"))
	}
	s.output(to, s.in[0].Dims)
	s.run = &caster{s.batch, s.in[0].DType, to, mode}
}

func (c *caster) run(b *backends.Batch, x *scratch) error {
	in := &b.In[0]
	switch {
	case in.DType == c.to:
		b.SetOutput(0, in.Retain())
		return nil
	case in.DType == tensor.Bytes:
		return c.parse(b)
	case c.to == tensor.Bytes:
		return c.format(b, x)
	}
	out, err := b.Alloc(0, c.to, in.Shape)
	if err != nil {
		return err
	}
	if x.device != nil {
		return x.device.Cast(b.Stream, out, in, c.mode == saturate)
	}
	fits, err := convert(b, x, out, in, c.mode)
	if fits || err != nil {
		return err
	}
	return c.failRows(b, x, out, in)
}

// failRows fails the rows whose numbers do not fit: convert has reported that there are some.
func (c *caster) failRows(b *backends.Batch, x *scratch, out, in *tensor.Tensor) error {
	rows := rowsOf(in, c.batch)
	for row := range rows {
		from, to := rowOf(in, row, rows), rowOf(out, row, rows)
		used := x.used
		fits, err := convert(b, x, &to, &from, c.mode)
		if err != nil {
			return err
		}
		x.release(used)
		if !fits {
			b.Fail(row, status.Errorf(status.InvalidArg, "row %d has a number that %s does not have", row, c.to))
		}
	}
	return nil
}

// rowOf returns one of the rows, borrowed, with all its elements on one axis.
func rowOf(t *tensor.Tensor, row, rows int) tensor.Tensor {
	p := *t
	p.Len = t.Len / rows
	p.Off += row * p.Len
	p.Shape = tensor.Of(int64(p.Len / t.DType.Size()))
	return p
}

// converted returns a copy of t with elements of another type, borrowed until the end of the execution.
func (x *scratch) converted(b *backends.Batch, t *tensor.Tensor, as tensor.DType) (*tensor.Tensor, error) {
	out, err := x.temp(b, as, &t.Shape)
	if err == nil {
		_, err = convert(b, x, out, t, wrap)
	}
	return out, err
}

// convert writes the elements of in to out in the type of out, and reports whether all
// fit. FP16 and BF16 are converted by way of FP32.
func convert(b *backends.Batch, x *scratch, out, in *tensor.Tensor, mode overflow) (bool, error) {
	if isHalf(in.DType) || isHalf(out.DType) && in.DType != tensor.FP32 {
		wide, err := x.temp(b, tensor.FP32, &in.Shape)
		if err != nil {
			return false, err
		}
		switch f32 := tensor.Slice[float32](wide); {
		case isHalf(in.DType):
			widen(f32, tensor.Slice[uint16](in), in.DType)
		case in.DType == tensor.FP64:
			for i, f := range tensor.Slice[float64](in) {
				f32[i] = narrowed(f)
			}
		default:
			castTo(wide, in, mode)
		}
		in = wide
	}
	if !isHalf(out.DType) {
		return castTo(out, in, mode), nil
	}
	shorten(tensor.Slice[uint16](out), tensor.Slice[float32](in), out.DType)
	return true, nil
}

// castTo converts between types of numbers and BOOL. A BOOL byte that is not 0 or 1 is 1 in types of one byte.
func castTo(out, in *tensor.Tensor, mode overflow) bool {
	if in.DType == tensor.Bool && out.DType.Size() == 1 || out.DType == tensor.Bool {
		return numbers[in.DType].cast(out, in, toBool)
	}
	return numbers[in.DType].cast(out, in, mode) || in.DType == tensor.Bool
}

func (number[S]) cast(out, in *tensor.Tensor, mode overflow) bool {
	src := tensor.Slice[S](in)
	if mode == toBool {
		dst := out.Bytes()
		for i, v := range src {
			dst[i] = truth(v != 0)
		}
		return true
	}
	return [...]func(*tensor.Tensor, []S, overflow) bool{
		tensor.Int8: castInto[int8, S], tensor.Int16: castInto[int16, S], tensor.Int32: castInto[int32, S], tensor.Int64: castInto[int64, S],
		tensor.Uint8: castInto[uint8, S], tensor.Uint16: castInto[uint16, S], tensor.Uint32: castInto[uint32, S], tensor.Uint64: castInto[uint64, S],
		tensor.FP32: castInto[float32, S], tensor.FP64: castInto[float64, S],
	}[out.DType](out, src, mode)
}

func castInto[D, S tensor.Number](out *tensor.Tensor, src []S, mode overflow) bool {
	return cast(tensor.Slice[D](out), src, mode)
}

// limits returns the least and the greatest number of an integer type. For example, -128 and 127 for int8.
func limits[T tensor.Number]() (low, high T) {
	var zero T
	bits := 8 * int(unsafe.Sizeof(zero))
	if zero-1 > 0 { // unsigned
		return 0, zero - 1
	}
	n := int64(1)<<(bits-1) - 1
	return T(-n - 1), T(n)
}

// cast converts every element and reports whether all of them fit.
func cast[D, S tensor.Number](dst []D, src []S, mode overflow) bool {
	dst = dst[:len(src)]
	done := castVector(dst, src)
	dst, src = dst[done:], src[done:]
	switch {
	case isFloat[S]() && !isFloat[D]():
		return truncate(dst, src, mode)
	case mode == wrap || isFloat[D]():
		for i, v := range src {
			dst[i] = D(v)
		}
		return true
	default:
		return fit(dst, src, mode)
	}
}

// fit converts integers; a number that does not fit becomes the nearest that does.
func fit[D, S tensor.Number](dst []D, src []S, mode overflow) bool {
	low, high := limits[D]()
	fits := true
	for i, v := range src {
		d := D(v)
		switch {
		case S(d) == v && (d < 0) == (v < 0):
		case v < 0:
			d, fits = low, false
		default:
			d, fits = high, false
		}
		dst[i] = d
	}
	return fits || mode == saturate
}

// truncate converts floating-point numbers to integers towards zero. A number outside of the type becomes the nearest,
// NaN becomes 0. It reports false for those unless mode is saturate. For example, 300.7 as INT8 is 127.
func truncate[D, S tensor.Number](dst []D, src []S, mode overflow) bool {
	low, high := limits[D]()
	// Numbers that truncate to low to high are greater than below and less than above.
	below, above := float64(low)-1, math.Ldexp(1, mathbits.Len64(uint64(high)))
	if below == float64(low) {
		below = math.Nextafter(below, math.Inf(-1))
	}
	fits := true
	for i, v := range src {
		f := float64(v)
		if f > below && f < above {
			dst[i] = D(v)
			continue
		}
		fits = false
		switch {
		case f >= above:
			dst[i] = high
		case f <= below:
			dst[i] = low
		default:
			dst[i] = 0
		}
	}
	return fits || mode == saturate
}

// narrowed rounds f to float32 "to odd": the last bit is 1 if bits are cut off. Rounding the result to
// FP16 or BF16 then gives the same as rounding f.
func narrowed(f float64) float32 {
	n := float32(f)
	wide, b := float64(n), math.Float32bits(n)
	switch {
	case wide == f || math.IsNaN(f):
		return n
	case math.Abs(wide) > math.Abs(f):
		return math.Float32frombits((b - 1) | 1)
	default:
		return math.Float32frombits(b | 1)
	}
}

// widen converts FP16 or BF16 elements to float32.
func widen(dst []float32, src []uint16, d tensor.DType) {
	dst = dst[:len(src)]
	if d == tensor.BF16 {
		for i, h := range src {
			dst[i] = tensor.BF16ToFloat32(h)
		}
		return
	}
	for i, h := range src {
		dst[i] = tensor.FP16ToFloat32(h)
	}
}

// shorten rounds float32 elements to FP16 or BF16.
func shorten(dst []uint16, src []float32, d tensor.DType) {
	dst = dst[:len(src)]
	if d == tensor.BF16 {
		for i, f := range src {
			dst[i] = tensor.Float32ToBF16(f)
		}
		return
	}
	for i, f := range src {
		dst[i] = tensor.Float32ToFP16(f)
	}
}

// parse converts texts to numbers. A text that is not a number of the type fails its row.
func (c *caster) parse(b *backends.Batch) error {
	in := &b.In[0]
	out, err := b.Alloc(0, c.to, in.Shape)
	if err != nil {
		return err
	}
	perRow := int(in.Shape.Elements()) / max(1, rowsOf(in, c.batch))
	return eachElement(in, func(i, _ int, elem []byte) {
		if err := setText(out, i, elem); err != nil {
			b.Fail(i/perRow, status.Errorf(status.InvalidArg, "an element of row %d is %.40q, expected a number of type %s", i/perRow, elem, c.to))
		}
	})
}

// setText parses text as element i of out. An element that cannot be parsed is set to 0.
func setText(out *tensor.Tensor, i int, text []byte) error {
	size := out.DType.Size()
	elem := out.Bytes()[i*size : (i+1)*size]
	s := unsafe.String(unsafe.SliceData(text), len(text)) // used during the call only
	var bits uint64
	var err error
	switch out.DType {
	case tensor.Bool:
		var yes bool
		yes, err = strconv.ParseBool(s)
		bits = uint64(truth(yes))
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		width := 32
		if out.DType != tensor.FP32 {
			width = 64
		}
		var f float64
		f, err = strconv.ParseFloat(s, width)
		bits = floatBits(f, out.DType)
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		bits, err = strconv.ParseUint(s, 10, 8*size)
	default:
		var n int64
		n, err = strconv.ParseInt(s, 10, 8*size)
		bits = uint64(n)
	}
	if err != nil {
		bits = 0
	}
	putBits(elem, bits)
	return err
}

// putBits writes an element, least significant byte first.
func putBits(elem []byte, bits uint64) {
	for i := range elem {
		elem[i] = byte(bits >> (8 * i))
	}
}

func bitsOf(elem []byte) (bits uint64) {
	for i, v := range elem {
		bits |= uint64(v) << (8 * i)
	}
	return bits
}

// floatBits returns the bits of f in a floating-point type, rounded to nearest.
func floatBits(f float64, d tensor.DType) uint64 {
	switch d {
	case tensor.FP16:
		return uint64(tensor.Float32ToFP16(narrowed(f)))
	case tensor.BF16:
		return uint64(tensor.Float32ToBF16(narrowed(f)))
	case tensor.FP32:
		return uint64(math.Float32bits(float32(f)))
	default:
		return math.Float64bits(f)
	}
}

// format converts numbers to the shortest text that parses to the same number. For example, FP32 0.1 is "0.1".
func (*caster) format(b *backends.Batch, x *scratch) error {
	in := &b.In[0]
	out := x.text[:0]
	for i := range int(in.Shape.Elements()) {
		start := len(out)
		out = append(out, 0, 0, 0, 0)
		out = appendElement(out, in, i)
		putBits(out[start:start+4], uint64(len(out)-start-4))
	}
	x.text = out
	return steps.Write(b, 0, tensor.Bytes, in.Shape, out)
}

// appendElement appends element i as text.
func appendElement(dst []byte, t *tensor.Tensor, i int) []byte {
	size := t.DType.Size()
	bits := bitsOf(t.Bytes()[i*size : (i+1)*size])
	switch t.DType {
	case tensor.Bool:
		return strconv.AppendBool(dst, bits != 0)
	case tensor.FP16:
		return strconv.AppendFloat(dst, float64(tensor.FP16ToFloat32(uint16(bits))), 'g', -1, 32)
	case tensor.BF16:
		return strconv.AppendFloat(dst, float64(tensor.BF16ToFloat32(uint16(bits))), 'g', -1, 32)
	case tensor.FP32:
		return strconv.AppendFloat(dst, float64(math.Float32frombits(uint32(bits))), 'g', -1, 32)
	case tensor.FP64:
		return strconv.AppendFloat(dst, math.Float64frombits(bits), 'g', -1, 64)
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		return strconv.AppendUint(dst, bits, 10)
	default:
		shift := 64 - 8*size
		return strconv.AppendInt(dst, int64(bits<<shift)>>shift, 10)
	}
}
