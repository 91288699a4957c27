package onnx

import "C"

import (
	"slices"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// port is what the model file declares about one input or output.
type port = bind.Port[native]

// boundPort is one port of the model file as the signature uses it.
type boundPort = bind.Bound[native]

// binding ties the ports of a signature to those of the model file.
type binding = bind.Binding[native]

// native is how the runtime knows a port.
type native struct {
	ort     C.int    // the runtime's number of the element type
	symbols []string // the name of each extent, "" where it has none
	// known is an output's shape in terms of the inputs' shapes, nil where only a run can tell.
	known []bind.Extent
}

// bound checks the configuration against the model file, and takes from the file what the configuration leaves out.
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

// foresee finds the outputs whose shape follows from the inputs': every dimension is fixed, the batch, or has the name of
// an input's dimension.
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
		// A model that hands an input through leaves the caller's output memory unwritten.
		handed := slices.ContainsFunc(b.In, func(p boundPort) bool { return p.Name == b.Out[i].Name })
		// Where strings end, only a run can tell.
		if !handed && !b.Sig.Outputs[i].Whole && b.Out[i].DType != tensor.Bytes {
			b.Out[i].Native.known = known(&b.Out[i].Port, byName, rows(b))
		}
	}
}

// known returns the shape of an output, nil where a dimension follows nothing.
func known(p *port, byName map[string]bind.Extent, rows int) []bind.Extent {
	out := make([]bind.Extent, 0, len(p.Shape))
	for k, d := range p.Shape {
		e, named := byName[p.Native.symbols[k]]
		switch {
		case d != -1:
			e = bind.Extent{N: d, Axis: -1}
		case named:
		case k == 0 && rows >= 0:
			e = bind.Extent{From: rows} // every tensor's first dimension is the batch
		default:
			return nil
		}
		out = append(out, e)
	}
	return out
}

// rows returns an input whose first dimension is the batch, -1 when there is none.
func rows(b *binding) int {
	if b.Sig.MaxBatch <= 0 {
		return -1
	}
	return slices.IndexFunc(b.Sig.Inputs, func(p config.Port) bool { return !p.Whole })
}
