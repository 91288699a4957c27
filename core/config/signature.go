package config

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Port is one input or output of a model.
type Port struct {
	Name  string
	DType tensor.DType
	// Dims are the dims as config.pbtxt declares them: without the batch dimension if the model batches, -1 for a
	// variable extent.
	Dims     tensor.Shape
	Reshape  *Reshaping // set if the model has another shape than Dims
	Optional bool       // marks an input that a request may leave out
	// Unbatched marks a tensor without a batch dimension at a model that batches: a ragged or computed input, or an
	// output that is split as an input was. Dims are then those of a request, or the model's.
	Unbatched bool
	// ShapeTensor marks a tensor of extents. It has no batch dimension, and only requests with equal values share a
	// batch.
	ShapeTensor bool
	// Unchecked marks an output that is passed on as the model returns it: data type, shape and number of rows may
	// differ from the declaration, per request. A model returns such outputs separately for each request of a batch
	// (backends.Request.Out).
	Unchecked bool
	Labels    []string // has the class names of an output by index. Nil: none.
}

// OnHost reports whether the tensor is on the host also at a model that executes on a device: strings and extents.
func (p *Port) OnHost() bool { return p.DType == tensor.Bytes || p.ShapeTensor }

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
	Model     string
	Version   int64
	MaxBatch  int  // max_batch_size. 0: tensors have no batch dimension.
	Decoupled bool // marks a model that may send any number of responses to a request
	// Inputs and Outputs are those of requests. In the signature of a backend's model they are the model's own,
	// including computed inputs.
	Inputs  []Port
	Outputs []Port
	// Computed are inputs that requests do not carry: the scheduler computes them from the shapes in a batch.
	Computed []Computed
	// Scattered describes outputs that are split over the requests by an input's extents instead of by rows.
	Scattered []Scattered
	// OwnBatchIO reports that the model computes the inputs of batch_input itself, and splits the outputs of batch_output. Its signature has
	// neither Computed nor Scattered.
	OwnBatchIO bool
	// AnyPlace reports that the model reads inputs where they are, on the host or at a device, and may leave outputs at a device: a
	// Python model with FORCE_CPU_ONLY_INPUT_TENSORS "no".
	AnyPlace bool
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
	Output, Source int // indices in Outputs and Inputs
}

// Input returns the index of the named input, or -1.
func (s *Signature) Input(name string) int { return indexOf(s.Inputs, name) }

// Output returns the index of the named output, or -1.
func (s *Signature) Output(name string) int { return indexOf(s.Outputs, name) }

// indexOf scans linearly: below about twenty names that is faster than a map.
func indexOf(ports []Port, name string) int {
	for i := range ports {
		if ports[i].Name == name { // without copying ports, as slices.IndexFunc does
			return i
		}
	}
	return -1
}

// Reshaping converts between a tensor's shape in requests and its shape at the model. Both have the same elements;
// variable extents correspond in order. It is immutable.
type Reshaping struct {
	Dims tensor.Shape // the model's dims, without the batch dimension

	model, api tensor.Shape // with the batch dimension, if any
	pairs      []pair       // variable extents, including the batch dimension
}

// pair is one variable extent: its position on either side.
type pair struct{ api, model int }

// NewReshaping returns the reshape between the dims of requests and of the model. It reports false if their
// elements or variable extents differ. batches adds a batch dimension to both.
func NewReshaping(api, model tensor.Shape, batches bool) (r *Reshaping, ok bool) {
	if from := chunks(api.Dims()); !slices.Equal(from, chunks(model.Dims())) || slices.Contains(from, -1) {
		return nil, false
	}
	r = &Reshaping{Dims: model, model: model, api: api}
	if batches {
		r.model, r.api = model.Prepend(-1), api.Prepend(-1)
	}
	next := 0
	for i, d := range r.model.Dims() {
		if d == -1 {
			next += slices.Index(r.api.Dims()[next:], -1)
			r.pairs = append(r.pairs, pair{next, i})
			next++
		}
	}
	return r, true
}

// chunks returns the number of elements between each two variable extents; -1 if it overflows. For example,
// [2,4,-1,6] gives 8 and 6.
func chunks(dims []int64) []int64 {
	list := []int64{1}
	for _, d := range dims {
		last := &list[len(list)-1]
		switch {
		case d == -1:
			list = append(list, 1)
		case d < 0 || *last < 0 || d > 0 && *last > maxElements/d:
			*last = -1
		default:
			*last *= d
		}
	}
	return list
}

// ToModel converts a request's shape into the model's.
//
// hot: no allocation up to eight dimensions.
func (r *Reshaping) ToModel(s *tensor.Shape) {
	out := r.model
	for _, p := range r.pairs {
		out.SetDim(p.model, s.Dim(p.api))
	}
	*s = out
}

// OfModel reports whether s matches the model's declared shape.
func (r *Reshaping) OfModel(s *tensor.Shape) bool { return s.Matches(r.model) }

// ToRequest converts a model's shape into the request's.
//
// hot: no allocation up to eight dimensions.
func (r *Reshaping) ToRequest(s *tensor.Shape) {
	out := r.api
	for _, p := range r.pairs {
		out.SetDim(p.api, s.Dim(p.model))
	}
	*s = out
}

// narrow returns the reshape to model, r's shape with some variable extents fixed, and the dims of requests.
func (r *Reshaping) narrow(model tensor.Shape, batches bool) (*Reshaping, tensor.Shape) {
	api := r.api
	if batches {
		api = api.Tail()
	}
	for _, p := range r.pairs {
		at, from := p.model, p.api
		if batches {
			at, from = at-1, from-1
		}
		if at >= 0 {
			api.SetDim(from, model.Dim(at))
		}
	}
	narrowed, ok := NewReshaping(api, model, batches)
	if !ok {
		return r, api // too many elements: both sides have the same extents
	}
	return narrowed, api
}

// ModelDims returns the dims at the model: after the reshape, if any.
func (p *Port) ModelDims() tensor.Shape {
	if p.Reshape != nil {
		return p.Reshape.Dims
	}
	return p.Dims
}

// JoinsRows reports whether a batch of the model is its requests' rows one after the other. Otherwise some input is
// ragged, a shape tensor or computed, or some output is split by elements.
func (s *Signature) JoinsRows() bool {
	return len(s.Computed)+len(s.Scattered) == 0 &&
		!slices.ContainsFunc(s.Inputs, func(p Port) bool { return p.Unbatched || p.ShapeTensor })
}

// AtModel returns the signature with the model's dims in place of the requests'. Computed inputs are not included.
func (s *Signature) AtModel() *Signature {
	m := *s
	m.Inputs, m.Outputs = atModel(s.Inputs), atModel(s.Outputs)
	return &m
}

func atModel(ports []Port) []Port {
	list := slices.Clone(ports)
	for i := range list {
		list[i].Dims, list[i].Reshape = list[i].ModelDims(), nil
	}
	return list
}

// ModelOf returns the model's own side of a signature: its inputs with the computed ones last, and its outputs.
func ModelOf(sig *Signature) *Signature {
	m := sig.AtModel()
	for _, ports := range [][]Port{m.Inputs, m.Outputs} {
		for i := range ports {
			if ports[i].Unbatched {
				ports[i].Dims = tensor.Of(-1) // the single variable dim that it has at the model
			}
		}
	}
	for i := range m.Computed {
		c := &m.Computed[i]
		m.Inputs = append(m.Inputs, Port{Name: c.Name, DType: c.DType, Dims: c.Dims(), Unbatched: true})
	}
	m.Computed, m.Scattered = nil, nil
	return m
}

// WithSequence returns cfg with the inputs and outputs that sequence batching adds to a model: control inputs (dims
// [1]), and the inputs and outputs of states. An empty list stays empty, because the model provides its ports.
// Without sequence batching it returns cfg.
func WithSequence(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	return addSequence(cfg, len(cfg.GetInput()) > 0, len(cfg.GetOutput()) > 0)
}

// DeclareSequence is WithSequence for a model that provides no ports itself: it also adds to an empty list.
func DeclareSequence(cfg *modelconfig.ModelConfig) *modelconfig.ModelConfig {
	return addSequence(cfg, true, true)
}

func addSequence(cfg *modelconfig.ModelConfig, inputs, outputs bool) *modelconfig.ModelConfig {
	s := cfg.GetSequenceBatching()
	if len(s.GetControlInput()) == 0 && len(s.GetState()) == 0 {
		return cfg
	}
	full := proto.CloneOf(cfg)
	if inputs {
		for _, in := range s.GetControlInput() {
			for _, c := range in.GetControl() {
				addInput(full, in.GetName(), controlType(c), []int64{1})
			}
		}
		for _, st := range s.GetState() {
			addInput(full, st.GetInputName(), st.GetDataType(), st.GetDims())
		}
	}
	if outputs {
		for _, st := range s.GetState() {
			if !listsOutput(full, st.GetOutputName()) {
				full.Output = append(full.Output, &modelconfig.ModelOutput{
					Name: st.GetOutputName(), DataType: st.GetDataType(), Dims: slices.Clone(st.GetDims()),
				})
			}
		}
	}
	return full
}

func addInput(cfg *modelconfig.ModelConfig, name string, d modelconfig.DataType, dims []int64) {
	if !slices.ContainsFunc(cfg.Input, func(in *modelconfig.ModelInput) bool { return in.GetName() == name }) {
		cfg.Input = append(cfg.Input, &modelconfig.ModelInput{Name: name, DataType: d, Dims: slices.Clone(dims)})
	}
}

func listsOutput(cfg *modelconfig.ModelConfig, name string) bool {
	return slices.ContainsFunc(cfg.GetOutput(), func(out *modelconfig.ModelOutput) bool { return out.GetName() == name })
}

// controlType returns the data type of a control tensor.
func controlType(c *modelconfig.ModelSequenceBatching_Control) modelconfig.DataType {
	switch {
	case c.GetKind() == modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID:
		return c.GetDataType()
	case len(c.GetInt32FalseTrue()) > 0:
		return modelconfig.DataType_TYPE_INT32
	case len(c.GetFp32FalseTrue()) > 0:
		return modelconfig.DataType_TYPE_FP32
	default:
		return modelconfig.DataType_TYPE_BOOL
	}
}

// HideSequence returns sig as requests see it: without control inputs and without the inputs and outputs of states,
// except outputs that cfg lists. Each of them must be in sig with the configured type, and a control must have one
// element. Without sequence batching it returns sig.
func HideSequence(cfg *modelconfig.ModelConfig, sig *Signature) (*Signature, error) {
	s := cfg.GetSequenceBatching()
	hidden, gone := map[string]bool{}, map[string]bool{}
	for _, in := range s.GetControlInput() {
		hidden[in.GetName()] = true
		for _, c := range in.GetControl() {
			at := sig.Input(in.GetName())
			if err := hide(sig, sig.Inputs, at, "control", "input", in.GetName(), controlType(c)); err != nil {
				return nil, err
			}
			one := tensor.Of(1)
			if sig.MaxBatch > 0 {
				one = one.Prepend(1)
			}
			if p := &sig.Inputs[at]; !p.Accepts(&one, sig.MaxBatch) {
				return nil, status.Errorf(status.InvalidArg, "unable to load model '%s', sequence control tensor '%s' has dims %s, expected [1]",
					sig.Model, p.Name, p.Dims)
			}
		}
	}
	for _, st := range s.GetState() {
		hidden[st.GetInputName()], gone[st.GetOutputName()] = true, !listsOutput(cfg, st.GetOutputName())
		if err := hide(sig, sig.Inputs, sig.Input(st.GetInputName()), "state", "input", st.GetInputName(), st.GetDataType()); err != nil {
			return nil, err
		}
		if err := hide(sig, sig.Outputs, sig.Output(st.GetOutputName()), "state", "output", st.GetOutputName(), st.GetDataType()); err != nil {
			return nil, err
		}
	}
	if len(hidden) == 0 {
		return sig, nil
	}
	public := *sig
	public.Inputs = slices.DeleteFunc(slices.Clone(sig.Inputs), func(p Port) bool { return hidden[p.Name] })
	public.Outputs = slices.DeleteFunc(slices.Clone(sig.Outputs), func(p Port) bool { return gone[p.Name] })
	return &public, nil
}

// hide checks one port that requests do not see.
func hide(sig *Signature, ports []Port, at int, what, kind, name string, d modelconfig.DataType) error {
	if at < 0 {
		return MissingSequenceTensor(sig.Model, what, kind, name)
	}
	if want := tensor.DType(d); ports[at].DType != want { //nolint:gosec // the numbers are the same
		return status.Errorf(status.InvalidArg, "unable to load model '%s', sequence %s tensor '%s' is configured as %s, but the model's %s is %s",
			sig.Model, what, name, want.ConfigName(), kind, ports[at].DType.ConfigName())
	}
	return nil
}

// MissingSequenceTensor is the error for a model without a control or state that its configuration names.
func MissingSequenceTensor(model, what, kind, name string) error {
	return status.Errorf(status.InvalidArg, "unable to load model '%s', sequence %s tensor '%s' is no %s of the model", model, what, name, kind)
}
