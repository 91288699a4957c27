package exec

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// takeFree checks the data type of an input whose writer may give any, and applies the batch-dimension rule to its shape,
// which the caller checks next.
func takeFree(f plan.Free, sig *config.Signature, port *config.Port, t *tensor.Tensor) error {
	if t.DType != port.DType {
		return errDType(sig, port, t)
	}
	fitFree(t, f, &port.Dims)
	return nil
}

// fitFree gives or takes a batch dimension where only one side batches. dims are the reader's, without its own.
func fitFree(t *tensor.Tensor, f plan.Free, dims *tensor.Shape) {
	switch f {
	case plan.FreePrepend:
		if t.Shape.Matches(*dims) {
			t.Shape = t.Shape.Prepend(1)
		}
	case plan.FreeStrip:
		if !t.Shape.Matches(*dims) && t.Shape.Rank() > 0 && t.Shape.Dim(0) == 1 {
			t.Shape = t.Shape.Tail()
		}
	case plan.FreeAsIs, plan.Fixed:
	}
}
