// Package sequence implements the backend sequence, which adds up the inputs of each sequence. It holds the sums by
// batch row or by correlation id, so tests of sequence batching use it to check that the requests of a sequence
// reach the same instance and slot.
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

// NewFactory returns the factory of the backend sequence. Its models have no files. They have an input INPUT and an
// output OUTPUT (both INT32 [1]) and the control inputs that the configuration declares. START and READY are
// required, as int32_false_true [0, 1]. OUTPUT is the sum of the sequence's inputs so far; START resets it. The
// output of a row that is not READY is 0.
//
// If the configuration declares a state (INT32 [1]), it holds the sums, and a sequence starts from the state's
// initial value. Otherwise the instance holds them: by the control CORRID, which the strategy oldest requires, or
// by the row of the batch. For example, a sequence that sends 1, 3 and 1 receives 1, 4 and 5.
//
// With the parameter countdown "true", which requires iterative_sequence, INPUT is the number of executions of the
// request, at least 1. OUTPUT is the number that remains, 0 after the last. A decoupled model sends a response for
// each execution.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "sequence",
		Guide:  backends.Guide{Doc: "Adds up the inputs of a sequence, with the controls of sequence batching. For tests of clients."},
		Params: []string{"countdown"},
		New:    func(backends.Options) (backends.Backend, error) { return backends.Loader(load), nil },
	}
}

// load checks the controls.
func load(_ context.Context, s backends.Settings) (backends.Model, error) {
	batching := s.Config.GetSequenceBatching()
	m := &model{start: -1, ready: -1, end: -1, corrid: -1, state: -1, Ports: backends.Ports{Sig: &config.Signature{
		Model: s.Model, Version: s.Version, MaxBatch: int(s.Config.GetMaxBatchSize()),
		Decoupled: s.Config.GetModelTransactionPolicy().GetDecoupled(),
		Inputs:    []config.Port{port("INPUT", tensor.Int32)}, Outputs: []config.Port{port("OUTPUT", tensor.Int32)},
	}}}
	for _, in := range batching.GetControlInput() {
		for _, c := range in.GetControl() {
			if err := m.addControl(in.GetName(), c); err != nil {
				return nil, err
			}
		}
	}
	if m.start < 0 || m.ready < 0 {
		return nil, status.Errorf(status.InvalidArg,
			"model '%s': backend 'sequence' expects sequence_batching with control inputs for START and READY in its configuration", s.Model)
	}
	if err := m.addState(batching.GetState()); err != nil {
		return nil, err
	}
	if batching.GetOldest() != nil && m.corrid < 0 && m.state < 0 {
		return nil, status.Errorf(status.InvalidArg,
			"model '%s': backend 'sequence' expects a control input for CORRID with the strategy oldest, where rows are no slots", s.Model)
	}
	if err := m.parseCountdown(s.Config); err != nil {
		return nil, err
	}
	return m, nil
}

func port(name string, d tensor.DType) config.Port {
	return config.Port{Name: name, DType: d, Dims: tensor.Of(1)}
}

// model is a loaded configuration.
type model struct {
	backends.Ports
	// The indexes of the control inputs, -1 if absent.
	start, ready, end, corrid int
	state                     int  // index of the state's input, -1 if absent; its output is the second
	countdown                 bool // INPUT is the number of executions of a request
}

// addControl adds one control input.
func (m *model) addControl(name string, c *modelconfig.ModelSequenceBatching_Control) error {
	at, d := len(m.Sig.Inputs), tensor.Int32
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
			m.Sig.Model, c.GetKind(), v)
	}
	m.Sig.Inputs = append(m.Sig.Inputs, port(name, d))
	return nil
}

// addState adds the state that holds the sums, if one is configured.
func (m *model) addState(states []*modelconfig.ModelSequenceBatching_State) error {
	for _, st := range states {
		if len(states) > 1 || st.GetDataType() != modelconfig.DataType_TYPE_INT32 || !slices.Equal(st.GetDims(), []int64{1}) {
			return status.Errorf(status.InvalidArg, "model '%s': backend 'sequence' expects one state of TYPE_INT32 with dims [ 1 ], found %d, of which '%s' is %s with dims %v",
				m.Sig.Model, len(states), st.GetInputName(), st.GetDataType(), st.GetDims())
		}
		m.state = len(m.Sig.Inputs)
		m.Sig.Inputs = append(m.Sig.Inputs, port(st.GetInputName(), tensor.Int32))
		m.Sig.Outputs = append(m.Sig.Outputs, port(st.GetOutputName(), tensor.Int32))
	}
	return nil
}

// parseCountdown parses the parameter countdown.
func (m *model) parseCountdown(cfg *modelconfig.ModelConfig) error {
	switch v := cfg.GetParameters()["countdown"].GetStringValue(); {
	case v == "", v == "false":
		return nil
	case v != "true":
		return status.Errorf(status.InvalidArg, "model '%s': parameter 'countdown' is '%s', expected true or false", m.Sig.Model, v)
	case !cfg.GetSequenceBatching().GetIterativeSequence():
		return status.Errorf(status.InvalidArg,
			"model '%s': backend 'sequence' with parameter 'countdown' expects 'sequence_batching { iterative_sequence: true }'", m.Sig.Model)
	}
	m.countdown = true
	return nil
}

// NewInstance returns an instance that holds its sums separately from other instances.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return &instance{model: m, byID: map[string]int32{}}, nil
}

// instance holds the sums of its sequences, unless the configuration declares a state for them.
type instance struct {
	*model
	byRow []int32
	byID  map[string]int32
}

// Execute adds each row's input to its sum, or decrements its count. Sums wrap around like INT32.
func (x *instance) Execute(_ context.Context, b *backends.Batch) error {
	in := tensor.Slice[int32](&b.In[0])
	start, ready := tensor.Slice[int32](&b.In[x.start]), tensor.Slice[int32](&b.In[x.ready])
	out, err := x.outputs(b)
	if err != nil {
		return err
	}
	var ids []byte // the correlation ids
	if x.corrid >= 0 {
		ids = b.In[x.corrid].Bytes()
	}
	for row := range in {
		var id []byte
		if x.corrid >= 0 {
			id, ids = x.id(b, ids)
		}
		old := x.sum(b, row, id, start[row] != 0)
		var sum int32
		if ready[row] != 0 {
			sum = x.next(b, row, in[row], old)
			x.keep(b, row, id, sum)
		}
		if err := out.set(b, row, sum, ready[row] != 0); err != nil {
			return err
		}
	}
	return nil
}

// next returns the new sum, or the remaining count of a countdown.
func (x *instance) next(b *backends.Batch, row int, in, old int32) int32 {
	if !x.countdown {
		return old + in
	}
	if old <= 0 {
		old = in
	}
	if old <= 0 {
		b.Fail(row, status.Errorf(status.InvalidArg, "input 'INPUT' of model '%s' is %d, expected how often to execute the request, at least 1", x.Sig.Model, in))
		return 0
	}
	if old > 1 {
		b.Reschedule(row)
	}
	return old - 1
}

// sum returns the stored sum of a row's sequence. A state already has the initial value when a sequence starts.
func (x *instance) sum(b *backends.Batch, row int, id []byte, start bool) int32 {
	switch {
	case x.state >= 0:
		return tensor.Slice[int32](&b.In[x.state])[row]
	case start:
		return 0
	case x.corrid >= 0:
		return x.byID[string(id)]
	case row < len(x.byRow):
		return x.byRow[row]
	default:
		return 0
	}
}

// keep stores the sum of a row's sequence, or deletes it after the sequence's end.
func (x *instance) keep(b *backends.Batch, row int, id []byte, sum int32) {
	switch ended := x.end >= 0 && tensor.Slice[int32](&b.In[x.end])[row] != 0; {
	case x.state >= 0:
	case x.corrid < 0:
		for len(x.byRow) <= row {
			x.byRow = append(x.byRow, 0)
		}
		x.byRow[row] = sum
	case ended && (!x.countdown || sum <= 0):
		delete(x.byID, string(id))
	default:
		x.byID[string(id)] = sum
	}
}

// id splits the next correlation id from the rest.
func (x *instance) id(b *backends.Batch, ids []byte) (one, rest []byte) {
	if size := b.In[x.corrid].DType.Size(); size > 0 {
		return ids[:size], ids[size:]
	}
	one, rest, _ = tensor.NextBytes(ids)
	return one, rest
}

// results receives a batch's sums: its outputs, or responses of a decoupled model.
type results struct {
	*model
	out, state []int32
}

func (x *instance) outputs(b *backends.Batch) (r results, err error) {
	r.model = x.model
	if x.Sig.Decoupled {
		return r, nil
	}
	out, err := b.Alloc(0, tensor.Int32, b.In[0].Shape)
	if err != nil {
		return r, err
	}
	r.out = tensor.Slice[int32](out)
	if x.state >= 0 {
		if out, err = b.AllocInPlace(1, tensor.Int32, b.In[x.state].Shape); err != nil {
			return r, err
		}
		r.state = tensor.Slice[int32](out)
	}
	return r, nil
}

// set stores the sum of a row in the outputs, or sends it. It sends nothing for a row that is not ready or has
// failed.
func (r *results) set(b *backends.Batch, row int, sum int32, ready bool) error {
	if !r.Sig.Decoupled {
		if r.out[row] = sum; r.state != nil {
			r.state[row] = sum
		}
		return nil
	}
	if !ready || !succeeded(&b.Requests[row]) {
		return nil
	}
	response := make([]tensor.Tensor, len(r.Sig.Outputs))
	shape := b.In[0].Shape
	shape.SetDim(0, 1)
	for i := range response {
		t, err := tensor.New(b.Allocator, tensor.Int32, shape)
		if err != nil {
			tensor.ReleaseAll(response)
			return err
		}
		tensor.Slice[int32](&t)[0] = sum
		response[i] = t
	}
	if err := b.Send(row, response, !b.Requests[row].Rescheduled); err != nil {
		b.Fail(row, err) // only that row
	}
	return nil
}

// succeeded reports whether a request has not failed so far.
func succeeded(q *backends.Request) bool { return q.Err == nil }
