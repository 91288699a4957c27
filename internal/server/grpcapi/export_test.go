package grpcapi

import (
	"context"
	"encoding/binary"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/wire"
	"github.com/tutti-server/tutti/proto/inference"
)

// Chunks cuts b into buffers of n bytes, as the transport may deliver them.
func Chunks(b []byte, n int) mem.BufferSlice {
	var list mem.BufferSlice
	for len(b) > n {
		list = append(list, mem.SliceBuffer(b[:n:n]))
		b = b[n:]
	}
	return append(list, mem.SliceBuffer(b))
}

// Endpoint calls ModelInfer without a socket.
type Endpoint struct{ svc *service }

// NewEndpoint returns an Endpoint.
func NewEndpoint(set Settings) *Endpoint { return &Endpoint{newService(set)} }

// Infer handles an encoded request.
func (e *Endpoint) Infer(ctx context.Context, data mem.BufferSlice) (mem.BufferSlice, error) {
	m := messages.Get()
	defer m.release()
	if err := (codec{}).Unmarshal(data, m); err != nil {
		return nil, err
	}
	r, err := e.svc.infer(ctx, m, tracing.Interval{})
	if err != nil {
		return nil, wireError(err)
	}
	return codec{}.Marshal(r)
}

// Stream handles a stream without a socket.
func (e *Endpoint) Stream(ss grpc.ServerStream) error {
	defer e.svc.streams.Wait()
	return modelStreamInfer(e.svc, ss)
}

// Await exports await.
func Await[T any](ctx context.Context, f func(context.Context) (T, error), drop func(T)) (T, error) {
	return await(ctx, newService(Settings{}), "test", f, drop)
}

// Unmarshal decodes with the server's codec.
func Unmarshal(data mem.BufferSlice, v any) error { return newCodec(nil).Unmarshal(data, v) }

// Marshal encodes with the server's codec.
func Marshal(v any) (mem.BufferSlice, error) { return newCodec(nil).Marshal(v) }

// Parse parses a request as the server does and returns it as the generated type.
func Parse(data mem.BufferSlice) (*inference.ModelInferRequest, error) {
	m := messages.Get()
	defer m.release()
	m.keep(data)
	if err := m.scan(); err != nil {
		return nil, err
	}
	req := &inference.ModelInferRequest{
		ModelName: string(m.model), ModelVersion: string(m.version), Id: string(m.id), Parameters: parsedParams(m.params),
	}
	for _, s := range m.raw {
		b := make([]byte, s.N)
		m.cursor.Copy(b, s)
		req.RawInputContents = append(req.RawInputContents, b)
	}
	for _, b := range m.inputs {
		t, err := m.tensorOf(b, true)
		if err != nil {
			return nil, err
		}
		in := &inference.ModelInferRequest_InferInputTensor{
			Name: string(t.name), Datatype: string(t.dtype), Shape: append([]int64(nil), t.dims...), Parameters: parsedParams(t.params),
		}
		if t.typed {
			if in.Contents, err = parsedContents(t.contents); err != nil {
				return nil, err
			}
		}
		req.Inputs = append(req.Inputs, in)
	}
	for _, b := range m.outputs {
		t, err := m.tensorOf(b, false)
		if err != nil {
			return nil, err
		}
		req.Outputs = append(req.Outputs, &inference.ModelInferRequest_InferRequestedOutputTensor{
			Name: string(t.name), Parameters: parsedParams(t.params),
		})
	}
	return req, nil
}

func parsedParams(list []param) map[string]*inference.InferParameter {
	if len(list) == 0 {
		return nil
	}
	all := map[string]*inference.InferParameter{}
	for i := range list {
		p, v := &list[i], &inference.InferParameter{}
		all[string(p.Name)] = v
		if !p.Set {
			continue
		}
		switch p.Kind {
		case infer.ParamBool:
			v.ParameterChoice = &inference.InferParameter_BoolParam{BoolParam: p.Bool}
		case infer.ParamInt:
			v.ParameterChoice = &inference.InferParameter_Int64Param{Int64Param: p.Int}
		case infer.ParamUint:
			v.ParameterChoice = &inference.InferParameter_Uint64Param{Uint64Param: p.Uint}
		case infer.ParamDouble:
			v.ParameterChoice = &inference.InferParameter_DoubleParam{DoubleParam: p.Double}
		case infer.ParamString:
			v.ParameterChoice = &inference.InferParameter_StringParam{StringParam: string(p.Text)}
		}
	}
	return all
}

// parsedContents decodes every field as a tensor of its widest type.
func parsedContents(b []byte) (*inference.InferTensorContents, error) {
	c, err := wire.CountContents(b)
	if err != nil {
		return nil, err
	}
	elements := func(num int) []byte {
		t := tensor.Tensor{DType: wire.ContentFields[num].DType, Len: c.N[num] * wire.ContentFields[num].DType.Size()}
		if num == 8 {
			t.Len = c.Bytes
		}
		t.Buf, err = tensor.NewPool().Alloc(t.Len)
		wire.FillContents(b, &t)
		return t.Bytes()
	}
	out := &inference.InferTensorContents{
		IntContents: numbers[int32](elements(2)), Int64Contents: numbers[int64](elements(3)),
		UintContents: numbers[uint32](elements(4)), Uint64Contents: numbers[uint64](elements(5)),
		Fp32Contents: numbers[float32](elements(6)), Fp64Contents: numbers[float64](elements(7)),
	}
	for _, v := range elements(1) {
		out.BoolContents = append(out.BoolContents, v != 0)
	}
	for rest := elements(8); len(rest) > 0; {
		var e []byte
		e, rest, _ = tensor.NextBytes(rest)
		out.BytesContents = append(out.BytesContents, e)
	}
	return out, err
}

func numbers[T any](b []byte) []T {
	var zero T
	list := make([]T, len(b)/binary.Size(zero))
	if len(list) == 0 {
		return nil
	}
	if _, err := binary.Decode(b, binary.LittleEndian, list); err != nil {
		panic(math.MaxInt)
	}
	return list
}

// MarshalResponse encodes a response.
func MarshalResponse(resp *infer.Response) mem.BufferSlice {
	r := responses.Get()
	r.resp = resp
	return r.marshal(nil)
}

// KeepaliveOf is keepaliveOf.
var KeepaliveOf = keepaliveOf

// AddWatches counts n calls of Watch as open: all that may be for 1, none of them again for -1.
func (s *Server) AddWatches(n int32) { s.svc.watches.Add(n * maxWatches) }
