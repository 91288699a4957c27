package config

import (
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Port is one input or output of a model.
type Port struct {
	Name  string
	DType tensor.DType
	// Dims are the dimensions as config.pbtxt declares them: without the batch
	// dimension when the model batches, -1 for a variable extent.
	Dims tensor.Shape
	// Reshape says what the model has in place of Dims; nil when it has the same.
	Reshape *Reshaping
	// Optional marks an input that a request may leave out.
	Optional bool
	// Whole marks a tensor that at the model has no batch dimension, though the model
	// batches: a ragged or computed input, or an output that is split as an input was.
	// Dims are then those of a request, or without one the model's.
	Whole bool
	// ShapeTensor marks a tensor of extents: it has no batch dimension, and requests
	// share a batch only when its values are the same.
	ShapeTensor bool
	// Free marks an output that is passed on as the model gives it: its data type, shape and number of rows may differ
	// from what is declared, from request to request. A model gives such outputs to each request of a batch by itself
	// (backends.Request.Out).
	Free bool
	// Labels names the classes of an output, one per index; nil when it has none.
	Labels []string
}

// FullDims returns the port's dimensions as a request carries them: with a leading
// -1 when the model batches.
func (p *Port) FullDims(maxBatch int) tensor.Shape {
	if maxBatch > 0 && !p.ShapeTensor {
		return p.Dims.Prepend(-1)
	}
	return p.Dims
}

// Accepts reports whether s, batch dimension included, fits the port.
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

// Signature says what a model takes and gives. It is immutable once its model is loaded.
type Signature struct {
	Model   string
	Version int64
	// MaxBatch is max_batch_size: 0 means that tensors carry no batch dimension.
	MaxBatch int
	// Decoupled marks a model that answers a request any number of times.
	Decoupled bool
	// Inputs and Outputs are what requests give and get. In the signature of a
	// backend's model they are as the model has them, computed inputs among them.
	Inputs  []Port
	Outputs []Port
	// Computed are the inputs that no request gives: the scheduler makes them of the
	// shapes in a batch.
	Computed []Computed
	// Scattered says of outputs how a batch's is split, where rows do not say it.
	Scattered []Scattered
}

// Computed is a model's input made of the shapes of another one, over the requests of
// a batch.
type Computed struct {
	Name  string
	DType tensor.DType
	Kind  modelconfig.BatchInput_Kind
	// Source is the position in Inputs of what is measured, At that of the result
	// among the model's inputs.
	Source, At int
}

// Scattered is an output whose elements are those of an input, request by request:
// each request gets as many as the output's dims have with the input's extents in
// place of -1.
type Scattered struct {
	// Output and Source are positions in Outputs and Inputs.
	Output, Source int
}

// Input returns the position of the named input, or -1.
func (s *Signature) Input(name string) int { return indexOf(s.Inputs, name) }

// Output returns the position of the named output, or -1.
func (s *Signature) Output(name string) int { return indexOf(s.Outputs, name) }

// indexOf scans: port lists are short, and a scan beats a map below some twenty names.
func indexOf(ports []Port, name string) int {
	for i := range ports {
		if ports[i].Name == name {
			return i
		}
	}
	return -1
}
