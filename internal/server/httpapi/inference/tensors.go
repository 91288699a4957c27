package inference

import (
	"cmp"
	"math"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/tensorjson"
	"github.com/tutti-server/tutti/internal/shm"
)

// readInput reads one element of inputs.
func (x *exchange) readInput() error {
	if x.p.Peek() != '{' {
		return new(input).checkSource()
	}
	x.inputs = append(x.inputs, input{})
	in := &x.inputs[len(x.inputs)-1]
	if err := x.p.Members(func(name []byte) error { return x.readInputMember(in, name) }); err != nil {
		return err
	}
	return x.completeInput(in)
}

func (x *exchange) readInputMember(in *input, name []byte) error {
	switch {
	case string(name) == "name" && in.have.first(hasName):
		text, err := x.p.Text("name")
		in.name = x.srv.names.Get(text)
		return err
	case string(name) == "datatype" && in.have.first(hasDatatype):
		text, err := x.p.Text("datatype")
		in.dtype = tensor.ParseDType(string(text))
		return err
	case string(name) == "shape" && in.have.first(hasShape):
		return x.readShape(in)
	case string(name) == "parameters" && in.have.first(hasParameters):
		if x.p.Peek() == '{' {
			return x.p.Members(func(name []byte) error { return x.readInputParameter(in, name) })
		}
	case string(name) == "data" && in.have.first(hasData):
		const known = hasName | hasDatatype | hasShape
		if in.have&known == known && !in.have.has(hasBinary|hasRegion) {
			in.have |= isDecoded
			return x.readData(in)
		}
		in.data = x.p.Mark()
	}
	return x.p.Skip()
}

// readShape reads an input's dimensions. One beyond an int64 becomes negative, which a later check rejects.
func (x *exchange) readShape(in *input) error {
	if x.p.Peek() != '[' {
		return jsonwire.Unable("shape", jsonwire.NotArray)
	}
	var few [8]int64
	dims := few[:0]
	err := x.p.Elements(func() error {
		d, err := x.p.Unsigned("shape")
		dims = append(dims, int64(d))
		return cmp.Or(err, infer.TooMany("dimensions", len(dims)))
	})
	if err == nil {
		in.shape = tensor.Of(dims...)
	}
	return err
}

func (x *exchange) readInputParameter(in *input, name []byte) error {
	if string(name) == "binary_data_size" && in.have.first(hasBinary) {
		n, err := x.p.Unsigned("binary_data_size")
		in.size = int64(min(n, math.MaxInt64))
		return err
	}
	return x.readRegionParameter(name, &in.region, &in.have)
}

// completeInput checks an input's members together, and reads data that came before its type or shape.
func (x *exchange) completeInput(in *input) error {
	if err := in.checkSource(); err != nil {
		return err
	}
	switch {
	case !in.have.has(hasName):
		return jsonwire.Missing("name")
	case !in.have.has(hasDatatype):
		return jsonwire.Missing("datatype")
	case !in.have.has(hasShape):
		return jsonwire.Missing("shape")
	}
	if in.have.has(hasData) && !in.have.has(isDecoded) {
		end := x.p.Mark()
		x.p.Reset(in.data)
		if err := x.readData(in); err != nil {
			return err
		}
		x.p.Reset(end)
	}
	x.req.Inputs = append(x.req.Inputs, infer.Named{Name: in.name, Tensor: in.tensor.Move()})
	return nil
}

// checkSource verifies that an input has exactly one source of data.
func (in *input) checkSource() error {
	switch in.have & (hasData | hasBinary | hasRegion) {
	case hasData, hasBinary, hasRegion:
		return nil
	}
	text := "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', " +
		"'shared_memory_region' in 'parameters'. But"
	set := " set"
	if in.have.has(hasData) {
		set += " 'data'"
	}
	if in.have.has(hasBinary) {
		set += " 'binary_data_size'"
	}
	if in.have.has(hasRegion) {
		set += " 'shared_memory_region'"
	}
	if !in.have.has(hasData | hasBinary | hasRegion) {
		set = " no field is set"
	}
	return status.Errorf(status.InvalidArg, "%s%s", text, set)
}

// readData reads an input's JSON data, flat or nested, into a new tensor.
func (x *exchange) readData(in *input) error {
	if x.p.Peek() != '[' {
		return jsonwire.Unable("data", jsonwire.NotArray)
	}
	size, err := infer.ShapeSize(in.name, in.dtype, in.shape)
	if err == nil {
		err = tensorjson.Readable(in.name, in.dtype)
	}
	if err != nil {
		return err
	}
	switch elements := in.shape.Elements(); {
	case elements == 0:
		if err := x.p.Skip(); err != nil {
			return err
		}
		in.tensor, err = x.alloc(in, 0, 0)
		return err
	case in.dtype == tensor.Bytes:
		// The number of strings is checked together with the other inputs.
		start := x.p.Mark()
		if _, size, err = tensorjson.Measure(&x.p, tensor.Bytes); err != nil {
			return err
		}
		x.p.Reset(start)
	case size <= x.srv.MaxInput && elements > int64(x.p.Rest()):
		// Every element takes at least a digit and a comma. A shape that the document cannot fill must cost no memory.
		return tensorjson.WrongShape()
	}
	return x.fillInput(in, size, false)
}

// fillInput allocates the input's tensor and reads its data at the cursor.
func (x *exchange) fillInput(in *input, size int64, exact bool) (err error) {
	if size > x.srv.MaxInput {
		return status.Errorf(status.InvalidArg, "JSON input '%s' has a byte_size (%d bytes) that exceeds the maximum allowed value "+
			"of %d bytes. Use --http-max-input-size to increase the limit.", in.name, size, x.srv.MaxInput)
	}
	if in.tensor, err = x.alloc(in, int(size), 0); err != nil {
		return err
	}
	if err := tensorjson.Fill(&x.p, &in.tensor, in.name, exact); err != nil {
		in.tensor.Release()
		return err
	}
	return nil
}

// readOutput reads one element of outputs.
func (x *exchange) readOutput() error {
	if x.p.Peek() != '{' {
		return jsonwire.Missing("name")
	}
	var out output
	var have field
	if err := x.p.Members(func(name []byte) error { return x.readOutputMember(&out, &have, name) }); err != nil {
		return err
	}
	return x.completeOutput(out, have)
}

func (x *exchange) readOutputMember(out *output, have *field, name []byte) error {
	switch {
	case string(name) == "name" && have.first(hasName):
		text, err := x.p.Text("name")
		out.name = x.srv.names.Get(text)
		return err
	case string(name) == "parameters" && have.first(hasParameters) && x.p.Peek() == '{':
		return x.p.Members(func(name []byte) error { return x.readOutputParameter(out, have, name) })
	}
	return x.p.Skip()
}

func (x *exchange) readOutputParameter(out *output, have *field, name []byte) (err error) {
	switch {
	case string(name) == "binary_data" && have.first(hasBinary):
		out.binary, err = x.p.Bool("binary_data")
		return err
	case string(name) == "classification" && have.first(hasClasses):
		n, err := x.p.Number()
		u, ok := n.Unsigned()
		if err != nil || !ok {
			return status.Errorf(status.Internal, "Unable to set 'classification': %s", jsonwire.NotUnsigned)
		}
		out.classes = u
		return nil
	}
	return x.readRegionParameter(name, &out.region, have)
}

// completeOutput checks an output's members together, and opens its region.
func (x *exchange) completeOutput(out output, have field) (err error) {
	switch {
	case have.has(hasRegion) && have.has(hasClasses):
		return status.Errorf(status.InvalidArg, "Output can't set both 'shared_memory_region' and 'classification'")
	case have.has(hasRegion) && out.binary:
		return status.Errorf(status.InvalidArg, "Output can't set both 'shared_memory_region' and 'binary_data'")
	case !have.has(hasName):
		return jsonwire.Missing("name")
	case have.has(hasRegion):
		if out.window, err = x.openRegion(&out.region); err != nil {
			return err
		}
		if out.window.Device() {
			x.req.Into = append(x.req.Into, infer.Target{Output: out.name, Buf: out.window.Buffer()})
		}
	}
	x.wanted.outputs = append(x.wanted.outputs, out)
	x.req.Outputs = append(x.req.Outputs, out.name)
	return nil
}

// readRegionParameter reads a parameter of an input or output that describes its shared memory, and skips any other.
func (x *exchange) readRegionParameter(name []byte, to *region, have *field) (err error) {
	switch {
	case string(name) == "shared_memory_region" && have.first(hasRegion):
		text, err := x.p.Text("shared_memory_region")
		to.name = x.srv.names.Get(text)
		return err
	case string(name) == "shared_memory_offset" && have.first(hasOffset):
		to.offset, err = x.p.Unsigned("shared_memory_offset")
		return err
	case string(name) == "shared_memory_byte_size" && have.first(hasByteSize):
		to.size, err = x.p.Unsigned("shared_memory_byte_size")
		return err
	}
	return x.p.Skip()
}

// openRegion opens a window of a region, which stays in use until closeWindows.
func (x *exchange) openRegion(r *region) (*shm.Window, error) {
	w, err := x.srv.Regions.Open(r.name, r.offset, r.size)
	if err == nil {
		x.wanted.windows = append(x.wanted.windows, w)
	}
	return w, err
}

// readShared copies an input out of shared memory, so that the client cannot change it after the checks. One in device memory stays
// there.
func (x *exchange) readShared(in *input, to *infer.Named) error {
	w, err := x.openRegion(&in.region)
	if err != nil {
		return err
	}
	want, err := infer.ShapeSize(in.name, in.dtype, in.shape)
	if err != nil {
		return err
	}
	size := int64(min(w.Size(), math.MaxInt64))
	if want >= 0 && want != size {
		return x.req.SizeError(in.name, want, size)
	}
	if w.Device() {
		to.Tensor = tensor.Tensor{DType: in.dtype, Shape: in.shape, Buf: w.Buffer(), Len: int(size)}
		if in.dtype == tensor.Bytes { // the executor copies it to the host
			return x.in.Charge.Acquire(size)
		}
		return nil
	}
	if to.Tensor, err = x.alloc(in, int(size), 0); err != nil {
		return err
	}
	return w.Read(to.Tensor.Bytes())
}

// placeOutputs replaces outputs by their classes and writes outputs to shared memory, as requested. The executor has written those in
// device memory.
func (x *exchange) placeOutputs(resp *infer.Response) error {
	for i := range x.wanted.outputs {
		o := &x.wanted.outputs[i]
		if o.classes == 0 && (o.window == nil || o.window.Device()) {
			continue
		}
		out, err := resp.Output(o.name), error(nil)
		switch {
		case out == nil:
		case o.classes > 0:
			err = x.desc.Classify(x.srv.Alloc, o.name, out, int(min(o.classes, math.MaxInt32)))
		default:
			err = o.window.WriteOutput(o.name, out.Bytes())
		}
		if err != nil {
			return err
		}
	}
	return nil
}
