package grpcapi

import (
	"encoding/binary"
	"math"

	"tutti/core/infer"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/proto/inference"
)

// decoder turns a message into a request.
type decoder struct {
	req   *infer.Request
	msg   *inference.ModelInferRequest
	alloc tensor.Allocator
	raw   int // how many raw contents have been used
}

func (d *decoder) decode() error {
	if err := d.params(); err != nil {
		return err
	}
	for _, in := range d.msg.GetInputs() {
		if err := d.input(in); err != nil {
			return err
		}
	}
	for _, out := range d.msg.GetOutputs() {
		if err := d.output(out); err != nil {
			return err
		}
	}
	return d.req.CheckNames()
}

func (d *decoder) output(out *inference.ModelInferRequest_InferRequestedOutputTensor) error {
	for _, key := range []string{"classification", "shared_memory_region"} {
		if _, ok := out.GetParameters()[key]; ok {
			return unsupported("output", out.GetName(), key)
		}
	}
	d.req.Outputs = append(d.req.Outputs, out.GetName())
	return nil
}

// unsupported refuses what a tensor asks for and this server cannot do.
func unsupported(side, name, what string) error {
	return status.Errorf(status.Unsupported, "%s '%s' sets '%s', which is not supported by this server", side, name, what)
}

// input copies one input's data, raw or typed, into memory of its own.
func (d *decoder) input(in *inference.ModelInferRequest_InferInputTensor) (err error) {
	if _, ok := in.GetParameters()["shared_memory_region"]; ok {
		return unsupported("input", in.GetName(), "shared_memory_region")
	}
	t := tensor.Tensor{DType: tensor.ParseDType(in.GetDatatype()), Shape: tensor.Of(in.GetShape()...)}
	size, err := infer.ShapeSize(in.GetName(), t.DType, t.Shape)
	if err != nil {
		return err
	}
	if len(d.msg.GetRawInputContents()) > 0 {
		err = d.rawInput(in, &t, size)
	} else {
		err = d.typedInput(in, &t)
	}
	if err != nil {
		return err
	}
	d.req.Inputs = append(d.req.Inputs, infer.Named{Name: in.GetName(), Tensor: t})
	return d.req.CheckInput(&d.req.Inputs[len(d.req.Inputs)-1])
}

// rawInput takes the next raw content. More of them than inputs go unnoticed.
func (d *decoder) rawInput(in *inference.ModelInferRequest_InferInputTensor, t *tensor.Tensor, size int64) error {
	if in.GetContents() != nil {
		return status.Errorf(status.InvalidArg, "contents field must not be specified when using raw_input_contents for '%s' for model '%s'",
			in.GetName(), d.req.Model)
	}
	if d.raw >= len(d.msg.GetRawInputContents()) {
		return d.noData(in)
	}
	data := d.msg.GetRawInputContents()[d.raw]
	d.raw++
	if size >= 0 && int64(len(data)) != size {
		return d.req.SizeError(in.GetName(), size, int64(len(data)))
	}
	if err := d.fill(t, len(data)); err != nil {
		return err
	}
	copy(t.Bytes(), data)
	return nil
}

func (d *decoder) noData(in *inference.ModelInferRequest_InferInputTensor) error {
	return status.Errorf(status.InvalidArg, "unable to find data for input tensor '%s' for model '%s' in request.", in.GetName(), d.req.Model)
}

// fill gives t n bytes of memory.
func (d *decoder) fill(t *tensor.Tensor, n int) (err error) {
	t.Buf, err = d.alloc.Alloc(n)
	t.Len = n
	return err
}

// contents is one typed field of the contents: the type it is sent for when its
// name is all there is to go by, and its elements.
type contents struct {
	dtype tensor.DType
	n     int
}

// typedInput takes an input's typed contents.
func (d *decoder) typedInput(in *inference.ModelInferRequest_InferInputTensor, t *tensor.Tensor) error {
	c := in.GetContents()
	if c == nil && t.Shape.Elements() != 0 {
		return d.noData(in)
	}
	used, ok := fieldOf(t.DType)
	for _, f := range fields(c) {
		if f.n > 0 && (!ok || f.dtype != used) {
			return status.Errorf(status.InvalidArg,
				"unexpected explicit tensor data for input tensor '%s' for model '%s' of type '%s', expected datatype '%s'",
				in.GetName(), d.req.Model, f.dtype, t.DType)
		}
	}
	if !ok && t.Shape.Elements() != 0 {
		return d.noData(in) // FP16 and BF16 have no field
	}
	n, size := count(c, used), t.DType.Size()
	if t.DType == tensor.Bytes {
		return d.bytesInput(c, t)
	}
	if want := t.Shape.Elements(); int64(n) != want {
		return d.req.SizeError(in.GetName(), want*int64(size), int64(n)*int64(size))
	}
	if err := d.fill(t, n*size); err != nil {
		return err
	}
	put(c, t)
	return nil
}

// fieldOf returns the type that stands for the field a type's elements travel in.
func fieldOf(d tensor.DType) (tensor.DType, bool) {
	switch d {
	case tensor.Int8, tensor.Int16, tensor.Int32:
		return tensor.Int32, true
	case tensor.Uint8, tensor.Uint16, tensor.Uint32:
		return tensor.Uint32, true
	case tensor.Bool, tensor.Int64, tensor.Uint64, tensor.FP32, tensor.FP64, tensor.Bytes:
		return d, true
	default:
		return tensor.Invalid, false
	}
}

func fields(c *inference.InferTensorContents) [8]contents {
	return [8]contents{
		{tensor.Bool, len(c.GetBoolContents())},
		{tensor.Int32, len(c.GetIntContents())},
		{tensor.Int64, len(c.GetInt64Contents())},
		{tensor.Uint32, len(c.GetUintContents())},
		{tensor.Uint64, len(c.GetUint64Contents())},
		{tensor.FP32, len(c.GetFp32Contents())},
		{tensor.FP64, len(c.GetFp64Contents())},
		{tensor.Bytes, len(c.GetBytesContents())},
	}
}

func count(c *inference.InferTensorContents, field tensor.DType) int {
	for _, f := range fields(c) {
		if f.dtype == field {
			return f.n
		}
	}
	return 0
}

func (d *decoder) bytesInput(c *inference.InferTensorContents, t *tensor.Tensor) error {
	size := 0
	for _, e := range c.GetBytesContents() {
		size += tensor.EncodedLen(len(e))
	}
	if err := d.fill(t, size); err != nil {
		return err
	}
	dst := t.Bytes()[:0]
	for _, e := range c.GetBytesContents() {
		dst = tensor.AppendBytes(dst, e)
	}
	return nil
}

// put writes the elements of t's field into t, which has room for exactly them.
func put(c *inference.InferTensorContents, t *tensor.Tensor) {
	dst := t.Bytes()
	switch t.DType {
	case tensor.Bool:
		for i, v := range c.GetBoolContents() {
			dst[i] = 0
			if v {
				dst[i] = 1
			}
		}
	case tensor.Int8, tensor.Int16, tensor.Int32:
		narrow(dst, t.DType.Size(), c.GetIntContents())
	case tensor.Uint8, tensor.Uint16, tensor.Uint32:
		narrow(dst, t.DType.Size(), c.GetUintContents())
	case tensor.Int64:
		copy(tensor.Slice[int64](t), c.GetInt64Contents())
	case tensor.Uint64:
		copy(tensor.Slice[uint64](t), c.GetUint64Contents())
	case tensor.FP32:
		for i, v := range c.GetFp32Contents() {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case tensor.FP64:
		copy(tensor.Slice[float64](t), c.GetFp64Contents())
	}
}

// narrow keeps the low bytes of a number too large for its type, as Triton does.
func narrow[T int32 | uint32](dst []byte, size int, list []T) {
	for i, v := range list {
		for b := range size {
			dst[i*size+b] = byte(uint32(v) >> (8 * b))
		}
	}
}
