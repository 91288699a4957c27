package config

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

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
			listed := func(o *modelconfig.ModelOutput) bool { return o.GetName() == st.GetOutputName() }
			if !slices.ContainsFunc(full.Output, listed) {
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
		listed := func(o *modelconfig.ModelOutput) bool { return o.GetName() == st.GetOutputName() }
		hidden[st.GetInputName()], gone[st.GetOutputName()] = true, !slices.ContainsFunc(cfg.GetOutput(), listed)
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
