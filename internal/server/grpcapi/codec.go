package grpcapi

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/tutti-server/tutti/core/infer"
)

// codec is grpc's own one for all messages but those that carry tensors: requests
// are left in the transport's buffers for decoder, and answers hand over the memory
// of their tensors.
type codec struct {
	encoding.CodecV2
	inFlight *infer.InFlight
}

var _ encoding.CodecV2 = codec{}

func newCodec(f *infer.InFlight) codec { return codec{encoding.GetCodecV2(proto.Name), f} }

// Unmarshal keeps a reference on data when v is a request.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(*message); ok {
		m.take(data)
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// Marshal uses an answer up: it is released.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if r, ok := v.(*reply); ok {
		return r.marshal(c.inFlight), nil
	}
	return c.CodecV2.Marshal(v)
}
