package remote

import (
	"google.golang.org/grpc/mem"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// Decoder reads responses without a server.
type Decoder struct{ m *model }

// NewDecoder returns a Decoder for a model with the signature.
func NewDecoder(sig *config.Signature) *Decoder {
	m := &model{set: &settings{model: "m", endpoint: "nowhere"}, verdicts: map[string]verdict{}, channel: &channel{watch: newWatcher()}}
	m.Sig = sig
	return &Decoder{m: m}
}

// Decode reads a message of one row. The caller owns the outputs.
func (d *Decoder) Decode(data mem.BufferSlice, stream bool, a tensor.Allocator) ([]tensor.Tensor, error) {
	r := &response{m: d.m, stream: stream}
	defer r.free()
	if err := newCodec().Unmarshal(data, r); err != nil {
		return nil, err
	}
	if err := r.scan(); err != nil {
		return nil, err
	}
	out := make([]tensor.Tensor, len(d.m.Sig.Outputs))
	return out, r.tensors(a, 1, out)
}
