// Package sequence holds the backend sequence, which adds up the numbers of each
// sequence. It remembers the sums itself, by row or by correlation id, and so serves
// tests of whatever keeps the requests of a sequence together.
package sequence

import (
	"context"

	"tutti/backends"
	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/proto/modelconfig"
)

// NewFactory declares the backend sequence. Its models have no files, an input INPUT
// and an output OUTPUT (both INT32 [1]) and the control inputs that their configuration
// names, of which START and READY, as int32_false_true [0, 1], are required. OUTPUT is
// the sum of the sequence's inputs so far; START begins it anew. With a control
// CORRID sums are kept by that, which the strategy oldest needs, otherwise by the row of
// the batch. A row that is not READY puts out 0.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name: "sequence",
		New:  func(backends.Options) (backends.Backend, error) { return backend{}, nil },
	}
}

type backend struct{}

var _ backends.Backend = backend{}

// Load checks the controls.
func (backend) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	batching := s.Config.GetSequenceBatching()
	m := &model{start: -1, ready: -1, end: -1, corrid: -1, sig: &config.Signature{
		Model: s.Model, Version: s.Version, MaxBatch: int(s.Config.GetMaxBatchSize()),
		Inputs: []config.Port{port("INPUT", tensor.Int32)}, Outputs: []config.Port{port("OUTPUT", tensor.Int32)},
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
	if batching.GetOldest() != nil && m.corrid < 0 {
		return nil, status.Errorf(status.InvalidArg,
			"model '%s': backend 'sequence' expects a control input for CORRID with the strategy oldest, where rows are no slots", s.Model)
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

// Signature has INPUT, the controls and OUTPUT.
func (m *model) Signature() *config.Signature { return m.sig }

// NewInstance returns an instance with sums of its own.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return &instance{model: m, byID: map[string]int32{}}, nil
}

// Close does nothing.
func (*model) Close() error { return nil }

type instance struct {
	*model
	byRow []int32
	byID  map[string]int32
}

// Execute adds each row's number to its sum. Sums wrap around as INT32 does.
func (x *instance) Execute(_ context.Context, b *backends.Batch) error {
	out, err := b.Alloc(0, tensor.Int32, b.In[0].Shape)
	if err != nil {
		return err
	}
	in, sums := tensor.Slice[int32](&b.In[0]), tensor.Slice[int32](out)
	start, ready := tensor.Slice[int32](&b.In[x.start]), tensor.Slice[int32](&b.In[x.ready])
	ids := x.ids(b)
	for row := range sums {
		var id []byte
		if x.corrid >= 0 {
			id, ids = x.id(b, ids)
		}
		if sums[row] = 0; ready[row] == 0 {
			continue
		}
		if sums[row] = in[row]; start[row] == 0 {
			sums[row] += x.sum(row, id)
		}
		x.keep(b, row, id, sums[row])
	}
	return nil
}

// sum returns what was kept of a sequence.
func (x *instance) sum(row int, id []byte) int32 {
	switch {
	case x.corrid >= 0:
		return x.byID[string(id)]
	case row < len(x.byRow):
		return x.byRow[row]
	default:
		return 0
	}
}

func (x *instance) keep(b *backends.Batch, row int, id []byte, sum int32) {
	switch ended := x.end >= 0 && tensor.Slice[int32](&b.In[x.end])[row] != 0; {
	case x.corrid < 0:
		for len(x.byRow) <= row {
			x.byRow = append(x.byRow, 0)
		}
		x.byRow[row] = sum
	case ended:
		delete(x.byID, string(id))
	default:
		x.byID[string(id)] = sum
	}
}

// ids returns the memory of the correlation ids.
func (x *instance) ids(b *backends.Batch) []byte {
	if x.corrid < 0 {
		return nil
	}
	return b.In[x.corrid].Bytes()
}

// id takes the next id.
func (x *instance) id(b *backends.Batch, ids []byte) (one, rest []byte) {
	if size := b.In[x.corrid].DType.Size(); size > 0 {
		return ids[:size], ids[size:]
	}
	one, rest, _ = tensor.NextBytes(ids)
	return one, rest
}

// Close does nothing.
func (*instance) Close() error { return nil }
