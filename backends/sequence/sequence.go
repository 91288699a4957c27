// Package sequence holds the backend sequence, which adds up the numbers of each
// sequence. It remembers the sums itself, by row or by correlation id, and so serves
// tests of whatever keeps the requests of a sequence together.
package sequence

import (
	"context"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// NewFactory declares the backend sequence. Its models have no files, an input INPUT
// and an output OUTPUT (both INT32 [1]) and the control inputs that their configuration
// names, of which START and READY, as int32_false_true [0, 1], are required. OUTPUT is
// the sum of the sequence's inputs so far; START begins it anew. Sums are kept in the
// configuration's state (INT32 [1]) when there is one, to which a sequence's numbers
// are added from the start. Otherwise the model keeps them: by a control CORRID, which
// the strategy oldest needs, or by the row of the batch. A row that is not READY puts
// out 0.
//
// With the parameter countdown, true, and iterative_sequence INPUT says how often a
// request is executed, at least 1: OUTPUT is how often it is still to be, and 0 in the
// end. A model that is decoupled answers each execution, one by one.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "sequence",
		Guide:  backends.Guide{Doc: "Adds up the requests of a sequence, with the controls of sequence batching. For tests of clients."},
		Params: []string{"countdown"},
		New:    func(backends.Options) (backends.Backend, error) { return backend{}, nil },
	}
}

type backend struct{}

var _ backends.Backend = backend{}

// Load checks the controls.
func (backend) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	batching := s.Config.GetSequenceBatching()
	m := &model{start: -1, ready: -1, end: -1, corrid: -1, state: -1, sig: &config.Signature{
		Model: s.Model, Version: s.Version, MaxBatch: int(s.Config.GetMaxBatchSize()),
		Decoupled: s.Config.GetModelTransactionPolicy().GetDecoupled(),
		Inputs:    []config.Port{port("INPUT", tensor.Int32)}, Outputs: []config.Port{port("OUTPUT", tensor.Int32)},
	}}
	for _, in := range batching.GetControlInput() {
		for _, c := range in.GetControl() {
			if err := m.control(in.GetName(), c); err != nil {
				return nil, err
			}
		}
	}
	if m.start < 0 || m.ready < 0 {
		return nil, status.Errorf(status.InvalidArg,
			"model '%s': backend 'sequence' expects sequence_batching with control inputs for START and READY in its configuration", s.Model)
	}
	if err := m.stateful(batching.GetState()); err != nil {
		return nil, err
	}
	if batching.GetOldest() != nil && m.corrid < 0 && m.state < 0 {
		return nil, status.Errorf(status.InvalidArg,
			"model '%s': backend 'sequence' expects a control input for CORRID with the strategy oldest, where rows are no slots", s.Model)
	}
	if err := m.counting(s.Config); err != nil {
		return nil, err
	}
	return m, nil
}

// Close does nothing: there is no runtime.
func (backend) Close() error { return nil }

func port(name string, d tensor.DType) config.Port {
	return config.Port{Name: name, DType: d, Dims: tensor.Of(1)}
}

type model struct {
	sig *config.Signature
	// The inputs that carry signals, -1 for none.
	start, ready, end, corrid int
	state                     int  // the input, -1 for none; its output is the second
	countdown                 bool // INPUT is how often a request is executed
}

var _ backends.Model = (*model)(nil)

// control adds one control input.
func (m *model) control(name string, c *modelconfig.ModelSequenceBatching_Control) error {
	at, d := len(m.sig.Inputs), tensor.Int32
	switch c.GetKind() {
	case modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START:
		m.start = at
	case modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY:
		m.ready = at
	case modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END:
		m.end = at
	default:
		m.corrid, d = at, tensor.DType(c.GetDataType()) //nolint:gosec // the numbers are the same
	}
	if v := c.GetInt32FalseTrue(); m.corrid != at && (len(v) != 2 || v[0] != 0 || v[1] != 1) {
		return status.Errorf(status.InvalidArg, "model '%s': backend 'sequence' expects int32_false_true: [ 0, 1 ] for %s, found %v",
			m.sig.Model, c.GetKind(), v)
	}
	m.sig.Inputs = append(m.sig.Inputs, port(name, d))
	return nil
}

// stateful adds the state that sums are kept in, if there is one.
func (m *model) stateful(states []*modelconfig.ModelSequenceBatching_State) error {
	for _, st := range states {
		if len(states) > 1 || st.GetDataType() != modelconfig.DataType_TYPE_INT32 || !slices.Equal(st.GetDims(), []int64{1}) {
			return status.Errorf(status.InvalidArg, "model '%s': backend 'sequence' expects one state of TYPE_INT32 with dims [ 1 ], found %d, of which '%s' is %s with dims %v",
				m.sig.Model, len(states), st.GetInputName(), st.GetDataType(), st.GetDims())
		}
		m.state = len(m.sig.Inputs)
		m.sig.Inputs = append(m.sig.Inputs, port(st.GetInputName(), tensor.Int32))
		m.sig.Outputs = append(m.sig.Outputs, port(st.GetOutputName(), tensor.Int32))
	}
	return nil
}

// counting reads the parameter countdown.
func (m *model) counting(cfg *modelconfig.ModelConfig) error {
	switch v := cfg.GetParameters()["countdown"].GetStringValue(); v {
	case "", "false":
		return nil
	case "true":
	default:
		return status.Errorf(status.InvalidArg, "model '%s': parameter 'countdown' is '%s', expected true or false", m.sig.Model, v)
	}
	if !cfg.GetSequenceBatching().GetIterativeSequence() {
		return status.Errorf(status.InvalidArg,
			"model '%s': backend 'sequence' with parameter 'countdown' expects 'sequence_batching { iterative_sequence: true }'", m.sig.Model)
	}
	m.countdown = true
	return nil
}

// Signature has INPUT, the controls and OUTPUT, and the state.
func (m *model) Signature() *config.Signature { return m.sig }

// NewInstance returns an instance with sums of its own.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return &instance{model: m, byID: map[string]int32{}}, nil
}

// Close does nothing.
func (*model) Close() error { return nil }
