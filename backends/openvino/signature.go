package openvino

import "C"

import (
	"slices"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// bound binds the configuration to the file.
func bound(cfg *modelconfig.ModelConfig, g *graph, maxBatch int) (*binding, error) {
	b, err := bind.Bind(cfg, g.declares(), maxBatch)
	if err != nil {
		return nil, err
	}
	for _, p := range b.Sig.Inputs {
		if p.Optional {
			return nil, status.Errorf(status.Unsupported, "unable to load model '%s', input '%s' is optional, but every input of the model is needed", b.Sig.Model, p.Name)
		}
	}
	for i := range b.In {
		b.In[i].Native.ones = ones(b, &b.In[i], b.Sig.Inputs[i].Dims.Rank())
	}
	for i := range b.Out {
		b.Out[i].Native.ones = ones(b, &b.Out[i], b.Sig.Outputs[i].Dims.Rank())
		foresee(b, g, &b.Out[i])
	}
	return b, nil
}

// declares returns the declarations of the file, for package bind.
func (g *graph) declares() *bind.Model[native] {
	return &bind.Model[native]{Ins: g.ins, Outs: g.outs, FindAlias: g.named, FixedBatch: true}
}

// ones returns the number of trailing dimensions of size 1 that only the signature has.
func ones(b *binding, p *boundPort, rank int) int {
	if p.Reshape == nil {
		return 0
	}
	if b.Sig.MaxBatch > 0 {
		rank++
	}
	return rank - len(p.Shape)
}

// batchOf returns the batch size of the file, or 0 when it is variable or the model does not batch. It must be the same for all
// ports, and at least max_batch_size.
func batchOf(b *binding) (fixed int64, err error) {
	for _, p := range slices.Concat(b.In, b.Out) {
		if b.Sig.MaxBatch == 0 || p.AnyRank || len(p.Shape) == 0 {
			continue
		}
		if p.Shape[0] != -1 && fixed == 0 && p.Shape[0] >= int64(b.Sig.MaxBatch) {
			fixed = p.Shape[0]
		}
		if p.Shape[0] != -1 && p.Shape[0] != fixed {
			return 0, status.Errorf(status.InvalidArg, "model '%s', tensor '%s': for the model to support batching the shape should have at "+
				"least 1 dimension and the first dimension must be -1 or at least max_batch_size %d, and the same of all tensors; but shape expected by the model is %s",
				b.Sig.Model, p.Name, b.Sig.MaxBatch, tensor.Of(p.Shape...))
		}
	}
	return fixed, nil
}

// foresee sets known for an output whose dimensions are all fixed or the batch, and lent.
func foresee(b *binding, g *graph, p *boundPort) {
	_, handed := g.named(p.Name, false)
	p.Native.lent = handed || p.DType == tensor.Bytes
	rest := p.Shape
	if b.Sig.MaxBatch > 0 && len(rest) > 0 {
		rest = rest[1:]
	}
	p.Native.known = !p.AnyRank && !p.Native.lent && !slices.Contains(rest, -1)
}
