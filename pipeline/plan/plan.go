// Package plan compiles an ensemble's configuration into a Plan: names become slot
// numbers, every check that can be made before a request is made once, and what is
// left for run time are arrays.
//
// Compile runs a list of passes, a file each; Stages prints the state after any of
// them. This is the only package that holds a graph of names.
package plan

import (
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Slot is the number of an ensemble tensor in a Plan.
type Slot = int32

// None is the slot of a port that is not mapped.
const None Slot = -1

// Plan is a compiled pipeline. It is immutable.
type Plan struct {
	// Signature is the pipeline's own: what a request must give and may ask for.
	Signature *config.Signature
	// Config is the ensemble's configuration with what its steps told; nil for a
	// plain model.
	Config *modelconfig.ModelConfig
	// Ensemble tells a compiled ensemble from the one-node plan of a plain model.
	Ensemble bool
	Nodes    []Node // in an order in which every node follows its producers
	// Slots counts the ensemble tensors; Names holds theirs, for error texts.
	Slots int
	Names []string
	// Aliases holds what else tensors are called in the ensembles, nested ones included,
	// without prefix; nil when there is nothing.
	Aliases [][]string
	// Inputs and Outputs hold the slot of each port of the signature, in its order.
	Inputs, Outputs []Slot
	// OutputFit says, per output, what happens to the batch dimension on the way out;
	// nil when nothing ever does.
	OutputFit []Fit
	// OutputFree says, per output, how a tensor of any shape is taken; nil when none is Free.
	OutputFree []Free
	// Reshape tells that the ensemble sets the shape of some input or output anew: its steps have another one than requests.
	Reshape bool
	// Consumers lists, per slot, the inputs that read it.
	Consumers [][]Use
	// Readers counts, per slot, its consumers and its uses as an output.
	Readers []int32
	// OutputNodes holds, per output, the nodes it needs.
	OutputNodes []Bits
	// AllNodes is the union of OutputNodes.
	AllNodes Bits
	// Devices holds a bit for each device where all steps at devices can be; 0 when
	// there are none such.
	Devices uint64
	// Moves are the copies between places that a request needs.
	Moves []Move
	// Parts divides the plan where decoupled steps answer; nil when no step is
	// decoupled.
	Parts []Part
}

// Use is one input of a node.
type Use struct {
	Node, Port int32
}

// Node is one step of a plan.
type Node struct {
	// Name tells the steps of a plan apart: the model's name, with the ensemble's
	// in front when it was nested, and the step's position when a model comes twice.
	Name  string
	Model string
	// ID is what the Lookup tells the model from others of its name by.
	ID      string
	Version int64 // the resolved version; -1 when the latest is to be used
	// Signature is the model's own.
	Signature *config.Signature
	// In and Out hold the slot of each port of the model's signature, None when unmapped.
	In, Out []Slot
	// Fit says, per input, what happens to the batch dimension on the way in.
	Fit []Fit
	// Free says, per input, how a tensor of any data type and shape is taken; nil when none is Free.
	Free []Free
	// Reshape tells that some port of the signature has another shape at the model.
	Reshape bool
	// Need counts the inputs that are mapped: the node is ready when all have arrived.
	Need int32
	// Places are where the model has instances; empty: on the host.
	Places []tensor.Place
	// Site is where the step runs.
	Site Site
	// Ensembles lists the ensembles the step is in, outermost first, for error texts.
	Ensembles []string
	// Stream counts the decoupled steps that the step follows, of whose answers it
	// takes each.
	Stream int32
	// MaxInflight bounds how many requests of this ensemble the step may have at a
	// time; 0 for any number.
	MaxInflight uint32
}

// Fit is what happens to a tensor's batch dimension between two steps of which only
// one batches.
type Fit uint8

// The batch-dimension rules.
const (
	AsIs    Fit = iota
	Strip       // [1, d...] becomes [d...]; any other batch size is an error
	Prepend     // [d...] becomes [1, d...]
)

// Free says how a port takes the output of a model that may differ from its declaration (config.Port.Free): the data type is
// compared when the tensor is there, and so are the dims, before the batch dimension is given or taken. These are the rules
// of Triton's ensemble scheduler (ReshapeTensorDims).
type Free uint8

// The ways.
const (
	Fixed       Free = iota // the tensor is as its writer declares it, or was checked before
	FreeAsIs                // both sides batch, or neither does: the shape stays
	FreeStrip               // only the writer batches: [1, d...] becomes [d...], unless the shape fits as it is
	FreePrepend             // only the reader batches: [d...] becomes [1, d...] if d... are its dims
)

// Bits is a set of node numbers.
type Bits []uint64

// NewBits returns an empty set with room for n nodes.
func NewBits(n int) Bits { return make(Bits, (n+63)/64) }

// Has reports whether node i is in the set.
func (b Bits) Has(i int32) bool { return b[i>>6]&(1<<(uint(i)&63)) != 0 }

// Set adds node i.
func (b Bits) Set(i int32) { b[i>>6] |= 1 << (uint(i) & 63) }

// Or adds every node of o.
func (b Bits) Or(o Bits) {
	for i := range o {
		b[i] |= o[i]
	}
}

// Lookup answers what the compiler must know about other models.
type Lookup interface {
	// Model returns a model's signature and, when it is an ensemble, the
	// configuration to inline; version -1 asks for the latest. The error says why
	// the model cannot be used, in words that name it.
	Model(name string, version int64) (Model, error)
}

// Namer is a Lookup that can list the models that there are, to suggest one of them.
type Namer interface {
	Lookup
	// Names returns the names of all models, sorted.
	Names() []string
}

// Spaces is a Lookup of models that are in namespaces.
type Spaces interface {
	Lookup
	// In returns the Lookup of the models in one namespace.
	In(namespace string) Lookup
	// Self is the ID of the ensemble whose steps are looked up.
	Self() string
}

// Model is what Lookup knows of a step's model.
type Model struct {
	// ID tells the model from others of its name; empty when there can be none.
	ID string
	// Steps, unless nil, is who knows the models of an ensemble's own steps.
	Steps     Lookup
	Signature *config.Signature
	// Places are where the model has instances; empty: on the host.
	Places []tensor.Place
	// Ensemble is the configuration of an ensemble, to be inlined; nil for any other model.
	Ensemble *modelconfig.ModelConfig
}

// reshapes reports whether some port has another shape at the model.
func reshapes(sig *config.Signature) bool {
	has := func(p config.Port) bool { return p.Reshape != nil }
	return slices.ContainsFunc(sig.Inputs, has) || slices.ContainsFunc(sig.Outputs, has)
}

// Single returns the one-node plan of a plain model.
func Single(sig *config.Signature) *Plan {
	in, out := len(sig.Inputs), len(sig.Outputs)
	p := &Plan{
		Signature: sig,
		Slots:     in + out,
		Consumers: make([][]Use, in+out),
		AllNodes:  Bits{1},
	}
	node := Node{
		Name: sig.Model, Model: sig.Model, Version: sig.Version, Signature: sig,
		Need: int32(in), Fit: make([]Fit, in), Reshape: reshapes(sig),
	}
	for i := range in {
		p.Consumers[i] = []Use{{Node: 0, Port: int32(i)}}
		p.Inputs = append(p.Inputs, Slot(i))
		p.Names = append(p.Names, sig.Inputs[i].Name)
	}
	for i := range out {
		p.Outputs = append(p.Outputs, Slot(in+i))
		p.Names = append(p.Names, sig.Outputs[i].Name)
		p.OutputNodes = append(p.OutputNodes, Bits{1})
	}
	node.In, node.Out = p.Inputs, p.Outputs
	p.Nodes = []Node{node}
	p.Readers = make([]int32, p.Slots)
	for i := range p.Readers {
		p.Readers[i] = 1
	}
	return p
}
