// Package plan compiles an ensemble's configuration into a Plan. Names become slot numbers, and every check that does
// not need a request is made once. At run time only arrays are left.
//
// Compile runs a list of passes; Stages prints the state after any. Only this package builds a graph of names.
//
// For example, an ensemble of two steps that passes x to step "a", and y from "a" to step
// "b", whose output is z, compiles to two nodes and three slots:
//
//	slots    0: x, 1: y, 2: z
//	Nodes[0] a: In [0], Out [1], Need 1
//	Nodes[1] b: In [1], Out [2], Need 1
//	Inputs [0], Outputs [2], Readers [1 1 1]
package plan

import (
	"slices"
	"time"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Slot is the number of an ensemble tensor in a Plan.
type Slot = int32

// None is the slot of a port that is not mapped.
const None Slot = -1

// Plan is a compiled ensemble, or the one-node plan of a plain model. It is immutable and safe for concurrent use.
type Plan struct {
	// Signature is the pipeline's own: the inputs a request must give and the outputs it may request.
	Signature *config.Signature
	// Config is the ensemble's configuration, completed from its steps; nil for a plain model.
	Config *modelconfig.ModelConfig
	// Ensemble is false for the plan of a plain model.
	Ensemble bool
	// Nodes are the steps, each after the producers of its inputs.
	Nodes []Node
	// Slots counts the ensemble tensors; Names holds their names, for error texts.
	Slots int
	Names []string
	// Aliases holds, per slot, its names in nested ensembles, without prefix. It is nil for a plain model.
	Aliases [][]string
	// Inputs and Outputs hold the slot of each port of the signature, in its order.
	Inputs, Outputs []Slot
	// OutputRules holds, per output, the change of the batch dimension; nil when no output has one.
	OutputRules []BatchRule
	// OutputRuntime holds, per output, the rule for a tensor of undeclared shape; nil when every output is Declared.
	OutputRuntime []RuntimeRule
	// Reshape reports that the ensemble reshapes an input or output: its steps see another shape than requests.
	Reshape bool
	// Consumers lists, per slot, the inputs that read it.
	Consumers [][]InputRef
	// Readers counts, per slot, its consumers and its uses as an output.
	Readers []int32
	// OutputNodes holds, per output, the nodes that it needs.
	OutputNodes []NodeSet
	// AllNodes is the union of OutputNodes.
	AllNodes NodeSet
	// RowSets are the row sets of conditions, after set 0, which has all rows. Nil when no step has a condition.
	RowSets []RowSet
	// SlotRows holds, per slot, the row set of its tensor; nil when RowSets is.
	SlotRows []int32
	// Routes are the divisions of steps between alternatives; nil when there is none.
	Routes []*Route
	// Devices holds a bit for each device on which all device steps can run; 0 when there is none.
	Devices uint64
	// Copies are the copies between host and devices that a request needs.
	Copies []Copy
	// Segments divides the plan into its streams, each behind those that it depends on; nil when no step is decoupled.
	Segments []Segment
	// OutputStreams holds, per output, the stream that it is of; nil when Segments is.
	OutputStreams []int32
	// Early reports that outputs are sent as soon as they are known, to clients that accept several responses.
	Early bool
	// Limit is how long after its arrival a request must have its response; 0 for any time.
	Limit time.Duration
	// First is the part of the plan outside of every fan-out; nil when there is none.
	First *Part
}

// InputRef is one input of a node. Port is None where the node only waits for the tensor.
type InputRef struct {
	Node, Port int32
}

// Node is one step of a plan.
type Node struct {
	// Name is unique: the model's, with the nested ensemble's as a prefix, and the position if a model occurs twice.
	Name  string
	Model string
	// ID distinguishes models of the same name, as the Lookup returned it.
	ID      string
	Version int64 // the resolved version; -1 when the latest is used
	// Signature is the model's own.
	Signature *config.Signature
	// In and Out hold the slot of each port of the model's signature, None when unmapped.
	In, Out []Slot
	// Rules holds, per input, the change of the batch dimension.
	Rules []BatchRule
	// Runtime holds, per input, the rule for a tensor of undeclared type and shape; nil when every input is Declared.
	Runtime []RuntimeRule
	// Reshape reports that a port of the signature has another shape at the model.
	Reshape bool
	// Need counts the mapped inputs: the node is ready when all have arrived.
	Need int32
	// Places are where the model has instances; empty for the host.
	Places []tensor.Place
	// OnDevice reports that the step runs on a device; else it runs on the host. Why is the reason, empty for the zero
	// Places.
	OnDevice bool
	Why      string
	// Inputs is where a model of any place (config.Signature.AnyPlace) gets its inputs, and is expected to leave its outputs: at the
	// device of the first input that is at one, else on the host.
	Inputs Location
	// Edge reports that the step runs on the side of its neighbours (KIND_AUTO of a native step): on a device only if one of them does.
	Edge bool
	// Gathers reports that the model batches across requests and is no concurrent model.
	Gathers bool
	// Precision is that of the model: "int8", "bf16", "fp16", or "fp32" where it is declared. Otherwise it is empty.
	Precision string
	// Ensembles lists the ensembles that contain the step, outermost first, for error texts.
	Ensembles []string
	// Stream is the stream that the step is in: it runs once for each response or window of that stream, or once per request in stream 0. It is
	// the position in Plan.Segments.
	Stream int32
	// MaxInflight bounds how many requests of this ensemble the step may have at a time; 0 for no limit.
	MaxInflight uint32
	// Rows is the row set that the step runs for.
	Rows int32
	// Waits are the slots of the choices that it runs after, besides its inputs.
	Waits []Slot
	// Constants holds, per input, the row that the configuration gives; nil when no input has one. It belongs to the plan.
	Constants []Constant
	// Params are request parameters that only the node sees.
	Params infer.Params
	// Fault says what happens when the node fails; nil: its request fails. FallbackOf is the step that it runs instead of, "" for an
	// ordinary one.
	Fault      *Fault
	FallbackOf string
	// Operation is set for a node that is no model.
	Operation *Operation
}

// BatchRule is the change of a tensor's batch dimension between two steps of which only one batches.
type BatchRule uint8

// The batch-dimension rules.
const (
	AsIs    BatchRule = iota
	Strip             // [1, d...] becomes [d...]; any other batch size is an error
	Prepend           // [d...] becomes [1, d...]
)

// RuntimeRule is how a port reads a tensor that may differ from its declaration (config.Port.Unchecked). Its data type and
// dims are compared at run time, before the batch dimension is added or removed. The rules are those of Triton's
// ensemble scheduler (ReshapeTensorDims).
type RuntimeRule uint8

// The rules for tensors of undeclared shape.
const (
	Declared       RuntimeRule = iota // the tensor is as its producer declares it
	RuntimeAsIs                       // both sides batch, or neither does: the shape stays
	RuntimeStrip                      // only the producer batches: [1, d...] becomes [d...], unless the shape fits
	RuntimePrepend                    // only the reader batches: [d...] becomes [1, d...] if d... are its dims
)

// NodeSet is a set of node numbers.
type NodeSet []uint64

// NewNodeSet returns an empty set with room for n nodes.
func NewNodeSet(n int) NodeSet { return make(NodeSet, (n+63)/64) }

// Contains reports whether node i is in the set.
func (b NodeSet) Contains(i int32) bool { return b[i>>6]&(1<<(uint(i)&63)) != 0 }

// Add adds node i.
func (b NodeSet) Add(i int32) { b[i>>6] |= 1 << (uint(i) & 63) }

// AddAll adds every node of o.
func (b NodeSet) AddAll(o NodeSet) {
	for i := range o {
		b[i] |= o[i]
	}
}

// Lookup finds the models of an ensemble's steps.
type Lookup interface {
	// Model returns a model's signature and, when it is an ensemble, the configuration to inline. Version -1 is the
	// latest. The error must name the model and say why it cannot be used.
	Model(name string, version int64) (Model, error)
}

// Namer is a Lookup that lists its models, so that an error can suggest a similar name.
type Namer interface {
	Lookup
	// Names returns the names of all models, sorted.
	Names() []string
}

// NamespaceLookup is a Lookup of models in namespaces.
type NamespaceLookup interface {
	Lookup
	// In returns the Lookup of the models in one namespace.
	In(namespace string) Lookup
	// Self is the ID of the ensemble whose steps are looked up.
	Self() string
}

// Model describes a step's model.
type Model struct {
	// ID distinguishes models of the same name; empty when there is only one.
	ID string
	// Steps finds the models of an ensemble's own steps; nil for the Lookup of the ensemble.
	Steps     Lookup
	Signature *config.Signature
	// Places are where the model has instances; empty for the host. PlacesWhy is why, for example "KIND_CPU".
	Places    []tensor.Place
	PlacesWhy string
	// Edge reports that the model has instances on the host and on devices, and runs on the side of its neighbours.
	Edge bool
	// Gathers reports that the model batches across requests, and that a larger batch is better than an earlier one: it is no concurrent
	// model, which has an instance for each processor.
	Gathers bool
	// Precision is that of the model, see Node.Precision.
	Precision string
	// Formats are the image formats of inputs that declare one, by name.
	Formats map[string]modelconfig.ModelInput_Format
	// Idempotent reports that a request may be sent to the model again.
	Idempotent bool
	// Sequence reports that the requests of a sequence depend on each other.
	Sequence bool
	// Ensemble is the configuration of an ensemble, which is inlined; nil for other models.
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
	p := &Plan{Signature: sig, Slots: in + out, Consumers: make([][]InputRef, in+out), AllNodes: NodeSet{1}}
	node := Node{
		Name: sig.Model, Model: sig.Model, Version: sig.Version, Signature: sig,
		Need: int32(in), Rules: make([]BatchRule, in), Reshape: reshapes(sig),
	}
	for i := range in {
		p.Inputs = append(p.Inputs, Slot(i))
		p.Names = append(p.Names, sig.Inputs[i].Name)
	}
	for i := range out {
		p.Outputs = append(p.Outputs, Slot(in+i))
		p.Names = append(p.Names, sig.Outputs[i].Name)
		p.OutputNodes = append(p.OutputNodes, NodeSet{1})
	}
	node.In, node.Out = p.Inputs, p.Outputs
	p.Nodes = []Node{node}
	p.link()
	return p
}
