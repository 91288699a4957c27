package bind

import (
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// MaxBatch returns the model's max_batch_size. When the configuration leaves out inputs or outputs and every first dimension of the
// file is variable, a max_batch_size of 0 becomes byDefault. A positive one is refused when the first dimensions are not variable.
func (m *Model[R]) MaxBatch(cfg *modelconfig.ModelConfig, byDefault int) (int, error) {
	size := int(cfg.GetMaxBatchSize())
	if len(cfg.GetInput()) > 0 && len(cfg.GetOutput()) > 0 {
		return size, nil
	}
	batches := !slices.ContainsFunc(slices.Concat(m.Ins, m.Outs), func(p Port[R]) bool { return len(p.Shape) == 0 || p.Shape[0] != -1 })
	switch {
	case size > 0 && !batches:
		return 0, status.Errorf(status.InvalidArg,
			"autofill failed for model '%s': model does not support batching while non-zero max_batch_size is specified", cfg.GetName())
	case size == 0 && batches:
		return byDefault, nil
	}
	return size, nil
}

// fillGaps returns the configuration with missing data types and dims of its ports taken from the file. A complete one is returned
// as it is.
func (b *Binding[R]) fillGaps(cfg *modelconfig.ModelConfig, ins []Port[R]) *modelconfig.ModelConfig {
	if len(config.CheckComplete(cfg)) == 0 {
		return cfg
	}
	// Bind refuses a tensor without a batch dimension in a model that batches later.
	unfit := func(p Port[R]) bool { return p.AnyRank || len(p.Shape) < len(b.batched(nil)) }
	sig := &config.Signature{}
	sig.Inputs, _ = b.complete(slices.DeleteFunc(slices.Clone(ins), unfit), false)
	sig.Outputs, _ = b.complete(slices.DeleteFunc(slices.Clone(b.model.Outs), unfit), true)
	return config.Complete(cfg, sig)
}

// complete returns signature ports for the file's ports. A port without dimensions becomes [1], and a port of any rank has no dims.
func (b *Binding[R]) complete(ports []Port[R], output bool) ([]config.Port, []Bound[R]) {
	var sig []config.Port
	var bound []Bound[R]
	for _, p := range ports {
		dims := p.Shape[min(len(p.Shape), len(b.batched(nil))):]
		bp := Bound[R]{Port: p}
		if len(dims) == 0 && !p.AnyRank {
			dims = []int64{1}
			bp.Reshape = follow(b.batched(dims), p.Shape, output)
		}
		sig = append(sig, config.Port{Name: p.Name, DType: p.DType, Dims: tensor.Of(dims...)})
		bound = append(bound, bp)
	}
	return sig, bound
}
