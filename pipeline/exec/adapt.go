package exec

import (
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// adapt returns the tensor that an adapter makes of its input. The input stays the caller's.
func (r *run) adapt(node *plan.Node, in *tensor.Tensor) (tensor.Tensor, error) {
	a := node.Operation.Adapter
	if !in.Present() {
		return tensor.Tensor{}, nil
	}
	if in.DType != a.From {
		return tensor.Tensor{}, status.Errorf(status.InvalidArg, "tensor '%s' is of type %s, expected %s", node.Signature.Inputs[0].Name, in.DType, a.From)
	}
	shape, err := adaptedShape(node, in.Shape)
	if err != nil {
		return tensor.Tensor{}, err
	}
	out, err := r.turned(a, in, shape)
	if err == nil && a.From != a.To {
		out, err = r.widened(a, out, shape)
	}
	if err != nil {
		return out, status.Errorf(status.Unavailable, "tensor '%s': %w", node.Signature.Outputs[0].Name, err)
	}
	return out, nil
}

// turned returns the input with its new shape, in the other layout or as another reference on it. The layout is turned first: the elements are smaller then.
func (r *run) turned(a *plan.Adapter, in *tensor.Tensor, shape tensor.Shape) (tensor.Tensor, error) {
	if a.Layout == plan.SameLayout {
		out := in.Retain()
		out.Shape = shape
		return out, nil
	}
	out, err := tensor.New(r.x.alloc, a.From, shape)
	if err == nil {
		turn(out.Bytes(), in.Bytes(), imageOf(in.Shape, a), a.From.Size())
	}
	return out, err
}

// widened returns in with elements of the other type. It takes in over.
func (r *run) widened(a *plan.Adapter, in tensor.Tensor, shape tensor.Shape) (tensor.Tensor, error) {
	defer in.Release()
	out, err := tensor.New(r.x.alloc, a.To, shape)
	if err == nil {
		converters[[2]tensor.DType{a.From, a.To}](&out, &in)
	}
	return out, err
}

// adaptedShape returns the shape of the result.
func adaptedShape(node *plan.Node, s tensor.Shape) (tensor.Shape, error) {
	a, lead := node.Operation.Adapter, 0
	if node.Signature.MaxBatch > 0 {
		lead = 1
	}
	wrong := func(want string) error {
		return status.Errorf(status.InvalidArg, "tensor '%s' has the shape %s, expected %s", node.Signature.Inputs[0].Name, s, want)
	}
	dims := append([]int64{}, s.Dims()...)
	if a.Drop {
		if len(dims) <= lead || dims[lead] != 1 {
			return s, wrong("a dimension of 1 at position " + string(rune('0'+lead)))
		}
		dims = append(dims[:lead:lead], dims[lead+1:]...)
	}
	if a.Layout != plan.SameLayout {
		if len(dims) != lead+3 {
			return s, wrong("three dimensions of an image")
		}
		x, y, z := dims[lead], dims[lead+1], dims[lead+2]
		if a.Layout == plan.ToNCHW {
			x, y, z = z, x, y
		} else {
			x, y, z = y, z, x
		}
		dims[lead], dims[lead+1], dims[lead+2] = x, y, z
	}
	if a.Add {
		dims = append(dims[:lead:lead], append([]int64{1}, dims[lead:]...)...)
	}
	return tensor.Of(dims...), nil
}

// imageSize is the extents of images: how many there are, and in each the groups and the elements of a group. Turning the layout
// transposes them.
type imageSize struct{ n, rows, columns int }

func imageOf(s tensor.Shape, a *plan.Adapter) imageSize {
	d := s.Dims()
	d, before := d[len(d)-3:], d[:len(d)-3]
	i := imageSize{n: 1, rows: int(d[0] * d[1]), columns: int(d[2])}
	if a.Layout == plan.ToNHWC {
		i.rows, i.columns = int(d[0]), int(d[1]*d[2])
	}
	for _, x := range before {
		i.n *= int(x)
	}
	return i
}

// turn transposes the matrices of images whose elements have size bytes.
func turn(dst, src []byte, i imageSize, size int) {
	for range i.n {
		for y := range i.rows {
			for x := range i.columns {
				copy(dst[(x*i.rows+y)*size:][:size], src[(y*i.columns+x)*size:])
			}
		}
		n := i.rows * i.columns * size
		dst, src = dst[n:], src[n:]
	}
}

// widen writes the elements of in to out, whose type holds every one.
func widen[S, D tensor.Number](out, in *tensor.Tensor) {
	dst := tensor.Slice[D](out)
	for i, v := range tensor.Slice[S](in) {
		dst[i] = D(v)
	}
}

// widenHalf is widen for a type of half precision, whose elements number decodes.
func widenHalf[D float32 | float64](number func(uint16) float32) func(out, in *tensor.Tensor) {
	return func(out, in *tensor.Tensor) {
		dst := tensor.Slice[D](out)
		for i, v := range tensor.Slice[uint16](in) {
			dst[i] = D(number(v))
		}
	}
}

// converters are the functions of the conversions that lose nothing; plan lists the same ones.
var converters = map[[2]tensor.DType]func(out, in *tensor.Tensor){
	{tensor.Int8, tensor.Int16}: widen[int8, int16], {tensor.Int8, tensor.Int32}: widen[int8, int32],
	{tensor.Int8, tensor.Int64}: widen[int8, int64], {tensor.Int8, tensor.FP32}: widen[int8, float32],
	{tensor.Int8, tensor.FP64}:   widen[int8, float64],
	{tensor.Int16, tensor.Int32}: widen[int16, int32], {tensor.Int16, tensor.Int64}: widen[int16, int64],
	{tensor.Int16, tensor.FP32}: widen[int16, float32], {tensor.Int16, tensor.FP64}: widen[int16, float64],
	{tensor.Int32, tensor.Int64}: widen[int32, int64], {tensor.Int32, tensor.FP64}: widen[int32, float64],
	{tensor.Uint8, tensor.Uint16}: widen[uint8, uint16], {tensor.Uint8, tensor.Uint32}: widen[uint8, uint32],
	{tensor.Uint8, tensor.Uint64}: widen[uint8, uint64], {tensor.Uint8, tensor.Int16}: widen[uint8, int16],
	{tensor.Uint8, tensor.Int32}: widen[uint8, int32], {tensor.Uint8, tensor.Int64}: widen[uint8, int64],
	{tensor.Uint8, tensor.FP32}: widen[uint8, float32], {tensor.Uint8, tensor.FP64}: widen[uint8, float64],
	{tensor.Uint16, tensor.Uint32}: widen[uint16, uint32], {tensor.Uint16, tensor.Uint64}: widen[uint16, uint64],
	{tensor.Uint16, tensor.Int32}: widen[uint16, int32], {tensor.Uint16, tensor.Int64}: widen[uint16, int64],
	{tensor.Uint16, tensor.FP32}: widen[uint16, float32], {tensor.Uint16, tensor.FP64}: widen[uint16, float64],
	{tensor.Uint32, tensor.Uint64}: widen[uint32, uint64], {tensor.Uint32, tensor.Int64}: widen[uint32, int64],
	{tensor.Uint32, tensor.FP64}: widen[uint32, float64],
	{tensor.FP16, tensor.FP32}:   widenHalf[float32](tensor.FP16ToFloat32), {tensor.FP16, tensor.FP64}: widenHalf[float64](tensor.FP16ToFloat32),
	{tensor.BF16, tensor.FP32}: widenHalf[float32](tensor.BF16ToFloat32), {tensor.BF16, tensor.FP64}: widenHalf[float64](tensor.BF16ToFloat32),
	{tensor.FP32, tensor.FP64}: widen[float32, float64],
}
