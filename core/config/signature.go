package config

import "tutti/core/tensor"

// Port is one input or output of a model.
type Port struct {
	Name  string
	DType tensor.DType
	// Dims are the dimensions as config.pbtxt declares them: without the batch
	// dimension when the model batches, -1 for a variable extent.
	Dims tensor.Shape
	// Optional marks an input that a request may leave out.
	Optional bool
	// Labels names the classes of an output, one per index; nil when it has none.
	Labels []string
}

// FullDims returns the port's dimensions as a request carries them: with a leading
// -1 when the model batches.
func (p *Port) FullDims(maxBatch int) tensor.Shape {
	if maxBatch > 0 {
		return p.Dims.Prepend(-1)
	}
	return p.Dims
}

// Accepts reports whether s, batch dimension included, fits the port.
//
// hot: copies no shape.
func (p *Port) Accepts(s *tensor.Shape, maxBatch int) bool {
	dims, want := s.Dims(), p.Dims.Dims()
	if maxBatch > 0 {
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
	Inputs    []Port
	Outputs   []Port
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
