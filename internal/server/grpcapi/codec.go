package grpcapi

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/tutti-server/tutti/core/infer"
)

// codec is grpc's proto codec, except for messages with tensors: requests stay in the transport's buffers for
// decoder, and responses pass the memory of their tensors on.
type codec struct {
	encoding.CodecV2
	inFlight *infer.InFlight
}

var _ encoding.CodecV2 = codec{}

func newCodec(f *infer.InFlight) codec { return codec{encoding.GetCodecV2(proto.Name), f} }

// Unmarshal retains data if v is an inference request.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*message); ok {
		m.keep(data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal encodes and releases an inference response.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*response); ok {
		return r.marshal(c.inFlight), nil
	}
	return c.CodecV2.Marshal(v)
}
