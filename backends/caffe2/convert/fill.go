package convert

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends/caffe2/netdef"
	"github.com/tutti-server/tutti/backends/caffe2/onnxgraph"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

const (
	// maxInline is the most bytes of a constant that is written into the model. Larger ones go to the file of weights.
	maxInline = 1024
	// alignment is that of constants in the file of weights, which the runtime maps.
	alignment = 64
	// maxFilled is the most elements of all constants that ConstantFill repeats. A small file must not become a huge one.
	maxFilled = 1 << 26
	// maxKnown is the most elements of a constant whose integers are kept, for shapes.
	maxKnown = maxRank
)

// fill has the elements of a constant. One field is set.
type fill struct {
	floats  *netdef.Floats
	encoded *netdef.Ints
	ints    []int64
	raw     []byte
	unit    []byte // one element, which is repeated count times
	count   int64
}

// weights writes the file with the elements of large constants.
type weights struct {
	to   io.Writer // nil: constants are written into the model
	file string
	buf  *bufio.Writer
	at   int64
	err  error
}

func (w *weights) write(b []byte) {
	if w.buf == nil {
		w.buf = bufio.NewWriterSize(w.to, 1<<20)
	}
	n, err := w.buf.Write(b)
	w.at += int64(n)
	if w.err == nil {
		w.err = err
	}
}

// flush ends the file.
func (w *weights) flush() error {
	if w.buf != nil && w.err == nil {
		w.err = w.buf.Flush()
	}
	if w.err != nil {
		return status.Errorf(status.CodeOf(w.err), "unable to write the converted weights: %w", w.err)
	}
	return nil
}

// addConstant adds a constant to the graph.
func (c *converter) addConstant(v *value) {
	switch size := product(v.dims) * int64(v.elem.Size()); {
	case size <= maxInline || c.weights.to == nil:
		raw := make([]byte, 0, size)
		c.encode(v, func(b []byte) { raw = append(raw, b...) })
		c.graph.Initializer(v.name, v.elem, v.dims, raw)
	default:
		if off := c.weights.at % alignment; off > 0 {
			c.weights.write(make([]byte, alignment-off))
		}
		at := c.weights.at
		c.encode(v, c.weights.write)
		c.graph.External(v.name, v.elem, v.dims, onnxgraph.External{File: c.weights.file, Offset: at, Length: size})
	}
}

// encode passes the elements of a constant to put, in little endian and in pieces.
func (c *converter) encode(v *value, put func(b []byte)) {
	buf := make([]byte, 0, 64<<10)
	next := func() bool {
		if len(buf) < cap(buf)-8 {
			return true
		}
		put(buf)
		buf = buf[:0]
		return !c.cancelled()
	}
	switch f := v.fill; {
	case f.floats != nil && v.elem == onnxgraph.Float:
		f.floats.Raw(buf[:cap(buf)], func(b []byte) bool {
			put(b)
			return !c.cancelled()
		})
	case f.floats != nil:
		for x := range f.floats.All() {
			if buf = appendFloat(buf, v.elem, x); !next() {
				break
			}
		}
	case f.encoded != nil:
		for x := range f.encoded.All() {
			if buf = appendInteger(buf, v.elem, x); !next() {
				break
			}
		}
	case f.raw != nil:
		put(f.raw)
	case f.unit != nil:
		most := min(f.count, int64(cap(buf)/len(f.unit)))
		buf = append(buf, bytes.Repeat(f.unit, int(most))...)
		for left := f.count - most; left > 0 && !c.cancelled(); left -= most {
			put(buf[:min(left, most)*int64(len(f.unit))])
		}
	default:
		for _, x := range f.ints {
			if buf = appendInteger(buf, v.elem, x); !next() {
				break
			}
		}
	}
	put(buf)
}

// appendFloat appends a number as an element of a floating point type.
func appendFloat(b []byte, e onnxgraph.Elem, x float32) []byte {
	switch e {
	case onnxgraph.Double:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(x)))
	case onnxgraph.Float16:
		return binary.LittleEndian.AppendUint16(b, tensor.Float32ToFP16(x))
	}
	return binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
}

// appendInteger appends the low bytes of a number, as a conversion of C++ does.
func appendInteger(b []byte, e onnxgraph.Elem, x int64) []byte {
	if e == onnxgraph.Bool && x != 0 {
		x = 1
	}
	u := uint64(x) //nolint:gosec // two's complement
	switch e.Size() {
	case 1:
		return append(b, byte(u)) //nolint:gosec // the low byte
	case 2:
		return binary.LittleEndian.AppendUint16(b, uint16(u)) //nolint:gosec // the low bytes
	case 4:
		return binary.LittleEndian.AppendUint32(b, uint32(u)) //nolint:gosec // the low bytes
	}
	return binary.LittleEndian.AppendUint64(b, u)
}

// caffe2Types has ONNX's types of Caffe2's, by their names in TensorProto.DataType.
var caffe2Types = map[string]onnxgraph.Elem{
	"FLOAT": onnxgraph.Float, "INT32": onnxgraph.Int32, "STRING": onnxgraph.String, "BOOL": onnxgraph.Bool, "UINT8": onnxgraph.Uint8,
	"INT8": onnxgraph.Int8, "UINT16": onnxgraph.Uint16, "INT16": onnxgraph.Int16, "INT64": onnxgraph.Int64, "FLOAT16": onnxgraph.Float16,
	"DOUBLE": onnxgraph.Double,
}

// caffe2Numbers are the names by number: TensorProto.DataType of caffe2.proto.
var caffe2Numbers = []string{
	1: "FLOAT", 2: "INT32", 3: "BYTE", 4: "STRING", 5: "BOOL", 6: "UINT8", 7: "INT8", 8: "UINT16", 9: "INT16", 10: "INT64", 12: "FLOAT16", 13: "DOUBLE",
}

// elem returns the argument that is a data type, by name or number.
func (o *op) elem(name string, byDefault onnxgraph.Elem) onnxgraph.Elem {
	a := o.arg(name)
	if a == nil {
		return byDefault
	}
	text := ""
	switch {
	case a.HasS:
		text = strings.ToUpper(o.text(name, ""))
	case a.HasI && a.I >= 0 && a.I < int64(len(caffe2Numbers)):
		text = caffe2Numbers[a.I]
	}
	e, ok := caffe2Types[text]
	if !ok {
		o.refuse("argument '%s' is data type %q, number %d, which is not supported", name, text, a.I)
		return byDefault
	}
	return e
}

// constant makes output 0 a constant of the argument shape.
func (o *op) constant(e onnxgraph.Elem, f *fill, count int, dims []int64) {
	if dims == nil {
		dims = []int64{}
	}
	if n := product(dims); o.err == nil && n != int64(count) {
		o.invalid("argument 'values' has %d elements, expected those of shape %s", count, shapeText(dims))
	}
	if o.err != nil {
		return
	}
	v := o.result(0, e, dims)
	v.fill = f
	if v.elem.Size() >= 4 && count <= maxKnown {
		switch {
		case f.encoded != nil:
			v.ints = append([]int64{}, slices.Collect(f.encoded.All())...)
		case f.ints != nil:
			v.ints = f.ints
		}
	}
}

// shapeArgument returns the argument shape. Its dimensions must not be negative.
func (o *op) shapeArgument() []int64 {
	dims := o.integers("shape")
	for _, d := range dims {
		if d < 0 {
			o.invalid("argument 'shape' is %s, expected dimensions of at least 0", shapeText(dims))
		}
	}
	if product(dims) < 0 {
		o.invalid("argument 'shape' is %s, which is larger than any tensor", shapeText(dims))
	}
	return dims
}

// given converts GivenTensorFill and its variants for other types.
func given(e onnxgraph.Elem) func(o *op) {
	return func(o *op) {
		dims, a := o.shapeArgument(), o.arg("values")
		if a == nil {
			a = &netdef.Argument{}
		}
		switch e {
		case onnxgraph.Float, onnxgraph.Double:
			o.constant(e, &fill{floats: &a.Floats}, a.Floats.Len(), dims)
		default:
			o.constant(e, &fill{encoded: &a.Ints}, a.Ints.Len(), dims)
		}
	}
}

// givenBytes converts GivenTensorByteStringToUInt8Fill, whose elements are the bytes of one string.
func givenBytes(o *op) {
	dims, a, raw := o.shapeArgument(), o.arg("values"), []byte{}
	switch {
	case a == nil:
	case a.HasS:
		raw = a.S
	case len(a.Strings) == 1:
		raw = a.Strings[0]
	default:
		o.invalid("argument 'values' has %d strings, expected 1", len(a.Strings))
	}
	o.constant(onnxgraph.Uint8, &fill{raw: raw}, len(raw), dims)
}

// constantFill converts ConstantFill: one value in a shape, which is an argument or that of the input.
func constantFill(o *op) {
	byDefault := onnxgraph.Float
	a := o.arg("value")
	if a != nil && a.HasI && !a.HasF {
		byDefault = onnxgraph.Int64
	}
	e := o.elem("dtype", byDefault)
	var unit []byte
	switch e {
	case onnxgraph.String:
		o.refuse("strings are not supported")
	case onnxgraph.Float, onnxgraph.Double, onnxgraph.Float16:
		unit = appendFloat(nil, e, o.number("value", 0))
	default:
		unit = appendInteger(nil, e, o.integer("value", 0))
	}
	if len(o.in) > 0 {
		o.constantLike(e, unit)
		return
	}
	dims := o.shapeArgument()
	n := product(dims)
	if o.err == nil && (n > maxFilled || o.c.filled+n > maxFilled) {
		o.refuse("the constants of the nets have more than %d elements", maxFilled)
	}
	if o.err != nil {
		return
	}
	o.c.filled += n
	f := &fill{unit: unit, count: n}
	if (e == onnxgraph.Int32 || e == onnxgraph.Int64) && n <= maxKnown {
		f = &fill{ints: slices.Repeat([]int64{o.integer("value", 0)}, int(n))}
	}
	o.constant(e, f, int(n), dims)
}

// constantLike repeats an element in the shape of the input, or with input_as_shape in the shape that its elements are.
func (o *op) constantLike(e onnxgraph.Elem, unit []byte) {
	if o.has("shape") {
		o.invalid("it has an input and the argument 'shape', expected one of them")
	}
	x, extra := o.in[0], o.integers("extra_shape")
	one := &value{name: o.c.newName(o.def.Outputs[0]), elem: e, dims: []int64{}, fill: &fill{unit: unit, count: 1}}
	var shape *value
	dims := x.dims
	if o.flag("input_as_shape") {
		shape, dims = o.asInt64(x), x.ints
		if dims == nil && len(x.dims) == 1 && x.dims[0] >= 0 && x.dims[0] <= maxRank {
			dims = sizes(int(x.dims[0]))
		}
	} else {
		shape = o.temp("Shape", []int64{int64(o.rank(x))}, []*value{x})
		shape.elem = onnxgraph.Int64
	}
	if len(extra) > 0 {
		shape = o.temp("Concat", []int64{-1}, []*value{shape, o.ints(extra...)}, onnxgraph.IntAttr("axis", 0))
		if dims != nil {
			dims = join(dims, extra)
		}
	}
	o.out(0, "Expand", dims, []*value{one, shape})
}

// asInt64 returns a tensor of integers as 64 bit integers, for operators of ONNX that expect those.
func (o *op) asInt64(v *value) *value {
	if v.elem == onnxgraph.Int64 {
		return v
	}
	x := o.temp("Cast", v.dims, []*value{v}, onnxgraph.IntAttr("to", int64(onnxgraph.Int64)))
	x.elem, x.ints = onnxgraph.Int64, v.ints
	return x
}

// random are the operators that fill blobs with random numbers.
var random = map[string]bool{
	"UniformFill": true, "UniformIntFill": true, "UniqueUniformFill": true, "GaussianFill": true, "XavierFill": true, "MSRAFill": true,
}
