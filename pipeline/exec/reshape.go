package exec

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// toModel gives a node's inputs, which were checked, the shapes that its model has.
//
// hot: no allocation.
func toModel(in []tensor.Tensor, ports []config.Port) {
	for i := range in {
		if r := ports[i].Reshape; r != nil && in[i].Present() {
			r.ToModel(&in[i].Shape)
		}
	}
}

// toRequest gives a node's outputs, which its scheduler checked, the shapes that
// requests know. A Free output of another shape than the model's declaration keeps it.
//
// hot: no allocation.
func toRequest(out []tensor.Tensor, ports []config.Port) {
	for i := range out {
		if r := ports[i].Reshape; r != nil && out[i].Present() && (!ports[i].Free || r.OfModel(&out[i].Shape)) {
			r.ToRequest(&out[i].Shape)
		}
	}
}
