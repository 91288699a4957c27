package openvino

import (
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// adapt changes the shapes of the file as Triton does: a fixed batch dimension becomes variable, and with RESHAPE_IO_LAYOUT the
// inputs get their configured dimensions.
func adapt(cfg *modelconfig.ModelConfig, g *graph, o *settings) error {
	shapes := make([][]int64, len(g.ins))
	changed := false
	for i, p := range g.ins {
		shape := slices.Clone(p.Shape)
		if o.reshape || p.AnyRank {
			if d := configured(cfg, p.Name); d != nil {
				shape = d
			} else if p.AnyRank {
				return status.Errorf(status.InvalidArg,
					"unable to load model '%s', the model leaves the number of dimensions of input '%s' open, expected them in the configuration", cfg.GetName(), p.Name)
			}
		}
		if cfg.GetMaxBatchSize() > 0 && !o.fixed && len(shape) > 0 {
			shape[0] = -1
		}
		changed = changed || !slices.Equal(shape, p.Shape)
		shapes[i] = shape
	}
	if !changed {
		return nil
	}
	if err := g.reshape(shapes); err != nil {
		return status.Prefixf(err, "unable to load model '%s', the model cannot take inputs of shapes %s: ", cfg.GetName(), list(shapes))
	}
	return nil
}

// configured returns the configured dimensions of an input including the batch, or nil.
func configured(cfg *modelconfig.ModelConfig, name string) []int64 {
	for _, io := range cfg.GetInput() {
		if io.GetName() != name {
			continue
		}
		dims := io.GetDims()
		if r := io.GetReshape(); r != nil {
			dims = r.GetShape()
		}
		if cfg.GetMaxBatchSize() > 0 {
			return append([]int64{-1}, dims...)
		}
		return append([]int64{}, dims...)
	}
	return nil
}

func list(shapes [][]int64) string {
	texts := make([]string, len(shapes))
	for i, s := range shapes {
		texts[i] = tensor.Of(s...).String()
	}
	return strings.Join(texts, " ")
}
