package config

import (
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Port is one input or output of a model.
type Port struct {
	Name  string
	DType tensor.DType
	// Dims are the dims as config.pbtxt declares them: without the batch dimension if the model batches, -1 for a
	// variable extent.
	Dims tensor.Shape
	// Reshape is set if the model has another shape than Dims.
	Reshape *Reshaping
	// Optional marks an input that a request may leave out.
	Optional bool
	// Unbatched marks a tensor without a batch dimension at a model that batches: a ragged or computed input, or an
	// output that is split as an input was. Dims are then those of a request, or the model's.
	Unbatched bool
	// ShapeTensor marks a tensor of extents. It has no batch dimension, and only requests with equal values share a
	// batch.
	ShapeTensor bool
	// Free marks an output that is passed on as the model returns it: data type, shape and number of rows may
	// differ from the declaration, per request. A model returns such outputs separately for each request of a batch
	// (backends.Request.Out).
	Free bool
	// Labels has the class names of an output by index. Nil: none.
	Labels []string
}

// FullDims returns the dims in a request: with a leading -1 if the model batches.
func (p *Port) FullDims(maxBatch int) tensor.Shape {
	if maxBatch > 0 && !p.ShapeTensor {
		return p.Dims.Prepend(-1)
	}
	return p.Dims
}

// Accepts reports whether s, including the batch dimension, fits the port.
//
// hot: copies no shape.
func (p *Port) Accepts(s *tensor.Shape, maxBatch int) bool {
	dims, want := s.Dims(), p.Dims.Dims()
	if maxBatch > 0 && !p.ShapeTensor {
		if len(dims) == 0 {
			return false
		}
		dims = dims[1:]
	}
	if len(dims) != len(want) {
		return false
	}
	for i, d := range dims {
		if want[i] != -1 && d != want[i] {
			return false
		}
	}
	return true
}

// Signature describes the inputs and outputs of a model. It is immutable after the model is loaded.
type Signature struct {
	Model   string
	Version int64
	// MaxBatch is max_batch_size. 0: tensors have no batch dimension.
	MaxBatch int
	// Decoupled marks a model that may send any number of responses to a request.
	Decoupled bool
	// Inputs and Outputs are those of requests. In the signature of a backend's model they are the model's own,
	// including computed inputs.
	Inputs  []Port
	Outputs []Port
	// Computed are inputs that requests do not carry: the scheduler computes them from the shapes in a batch.
	Computed []Computed
	// Scattered describes outputs that are split over the requests by an input's extents instead of by rows.
	Scattered []Scattered
}

// Computed is a model input that is computed from the shapes of another input over the requests of a batch.
type Computed struct {
	Name  string
	DType tensor.DType
	Kind  modelconfig.BatchInput_Kind
	// Source is the index in Inputs of the measured input; At is the index of the result among the model's inputs.
	Source, At int
}

// Scattered is an output with elements for each request in turn. Each request gets the number of elements of the
// output's dims, with the extents of its input in place of -1.
type Scattered struct {
	// Output and Source are indices in Outputs and Inputs.
	Output, Source int
}

// Input returns the index of the named input, or -1.
func (s *Signature) Input(name string) int { return indexOf(s.Inputs, name) }

// Output returns the index of the named output, or -1.
func (s *Signature) Output(name string) int { return indexOf(s.Outputs, name) }

// indexOf scans linearly: below about twenty names that is faster than a map.
func indexOf(ports []Port, name string) int {
	for i := range ports {
		if ports[i].Name == name {
			return i
		}
	}
	return -1
}
