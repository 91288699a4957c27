package onnx

import "C"

import (
	"slices"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// port is an input or output of the model file.
type port = bind.Port[native]

// boundPort is a port of the file that is bound to a port of the signature.
type boundPort = bind.Bound[native]

// binding has the bound ports of a model.
type binding = bind.Binding[native]

// native is the backend's own data about a port.
type native struct {
	ort     C.int    // element type, by number of the runtime
	symbols []string // symbolic name of each dimension, or ""
	// known derives an output's shape from the inputs' shapes. It is nil when the shape is not known before a run.
	known []bind.Extent
}

// bound binds the configuration to the file.
func bound(cfg *modelconfig.ModelConfig, s *session, byDefault int) (*binding, error) {
	m := &bind.Model[native]{Ins: s.ins, Outs: s.outs, WholeBatch: true}
	maxBatch, err := m.MaxBatch(cfg, byDefault)
	if err != nil {
		return nil, err
	}
	b, err := bind.Bind(cfg, m, maxBatch)
	if err != nil {
		return nil, err
	}
	foresee(b)
	return b, nil
}

// foresee sets known for the outputs whose dimensions are all fixed, the batch, or named like a dimension of an input. For example,
// input [batch, seq] and output [batch, seq, 768].
func foresee(b *binding) {
	byName := map[string]bind.Extent{}
	for i, p := range slices.Backward(b.In) {
		for k, name := range p.Native.symbols {
			if name != "" && p.Shape[k] == -1 {
				byName[name] = bind.Extent{From: i, Axis: k}
			}
		}
	}
	for i := range b.Out {
		// The runtime does not write to the given memory of an output that is an input passed through.
		handed := slices.ContainsFunc(b.In, func(p boundPort) bool { return p.Name == b.Out[i].Name })
		// The size of strings is not known before the run.
		if !handed && !b.Sig.Outputs[i].Unbatched && b.Out[i].DType != tensor.Bytes {
			b.Out[i].Native.known = known(&b.Out[i].Port, byName, rows(b))
		}
	}
}

// known returns the derived shape of an output, or nil when a dimension is not known.
func known(p *port, byName map[string]bind.Extent, rows int) []bind.Extent {
	out := make([]bind.Extent, 0, len(p.Shape))
	for k, d := range p.Shape {
		e, named := byName[p.Native.symbols[k]]
		switch {
		case d != -1:
			e = bind.Extent{N: d, Axis: -1}
		case named:
		case k == 0 && rows >= 0:
			e = bind.Extent{From: rows} // the first dimension of every tensor is the batch
		default:
			return nil
		}
		out = append(out, e)
	}
	return out
}

// rows returns the index of an input whose first dimension is the batch, or -1.
func rows(b *binding) int {
	if b.Sig.MaxBatch <= 0 {
		return -1
	}
	return slices.IndexFunc(b.Sig.Inputs, func(p config.Port) bool { return !p.Unbatched })
}
