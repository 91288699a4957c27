package openvino

import "C"

import (
	"slices"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// bound checks the configuration against the model file, and takes from the file what the configuration leaves out.
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

// declares is the file as the binding sees it.
func (g *graph) declares() *bind.Model[native] {
	return &bind.Model[native]{Ins: g.ins, Outs: g.outs, FindAlias: g.named, FixedBatch: true}
}

// ones counts the dimensions of extent 1 that a signature has after those of the file.
func ones(b *binding, p *boundPort, rank int) int {
	if p.Reshape == nil {
		return 0
	}
	if b.Sig.MaxBatch > 0 {
		rank++
	}
	return rank - len(p.Shape)
}

// batchOf returns the file's batch size where that is not variable; 0 where it is, or there is none. All ports have the
// batch alike: variable, or of one size that holds the largest batch.
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

// foresee marks an output whose shape is known before a run: every dimension is fixed, or the batch.
func foresee(b *binding, g *graph, p *boundPort) {
	_, handed := g.named(p.Name, false)
	p.Native.lent = handed || p.DType == tensor.Bytes
	rest := p.Shape
	if b.Sig.MaxBatch > 0 && len(rest) > 0 {
		rest = rest[1:]
	}
	p.Native.known = !p.AnyRank && !p.Native.lent && !slices.Contains(rest, -1)
}
