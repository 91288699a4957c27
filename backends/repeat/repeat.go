// Package repeat holds the backend repeat, a decoupled model that gives the elements
// of its input back one by one. It serves tests of whatever streams answers, with the
// tensors of Triton's model of this name.
package repeat

import (
	"context"
	"time"

	"tutti/backends"
	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
)

// NewFactory declares the backend repeat. Its models have no files. The inputs are
// IN (INT32 [-1]), DELAY (UINT32 [-1], as long as IN) and WAIT (UINT32 [1]); the
// outputs OUT (INT32 [1]) and IDX (UINT32 [1]). DELAY[i] milliseconds after the
// answer before it, element i is answered with OUT = IN[i] and IDX = i. A request
// ends WAIT milliseconds after it began at the earliest. It does not batch.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "repeat",
		Guide:  backends.Guide{Doc: "A decoupled model that answers a request once for each of its elements, after a delay each. For tests of clients."},
		Params: []string{},
		New:    func(backends.Options) (backends.Backend, error) { return backend{}, nil },
	}
}

type backend struct{}

var _ backends.Backend = backend{}

// Load checks that the model is decoupled and does not batch.
func (backend) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	if s.Config.GetMaxBatchSize() != 0 {
		return nil, status.Errorf(status.InvalidArg, "model '%s': backend 'repeat' does not batch, expected max_batch_size 0, found %d",
			s.Model, s.Config.GetMaxBatchSize())
	}
	if !s.Config.GetModelTransactionPolicy().GetDecoupled() {
		return nil, status.Errorf(status.InvalidArg,
			"model '%s': backend 'repeat' answers several times, expected 'model_transaction_policy { decoupled: true }'", s.Model)
	}
	port := func(name string, d tensor.DType, dim int64) config.Port {
		return config.Port{Name: name, DType: d, Dims: tensor.Of(dim)}
	}
	return model{&config.Signature{
		Model: s.Model, Version: s.Version, Decoupled: true,
		Inputs:  []config.Port{port("IN", tensor.Int32, -1), port("DELAY", tensor.Uint32, -1), port("WAIT", tensor.Uint32, 1)},
		Outputs: []config.Port{port("OUT", tensor.Int32, 1), port("IDX", tensor.Uint32, 1)},
	}}, nil
}

// Close does nothing: there is no runtime.
func (backend) Close() error { return nil }

type model struct{ sig *config.Signature }

var _ backends.Concurrent = model{}

// Signature is the same for every model.
func (m model) Signature() *config.Signature { return m.sig }

// NewInstance returns the only instance there is.
func (model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return instance{}, nil
}

// Inline is false: an execution waits.
func (model) Inline() bool { return false }

// Close does nothing.
func (model) Close() error { return nil }

type instance struct{}

// Execute answers one request element by element.
func (instance) Execute(ctx context.Context, b *backends.Batch) error {
	began := time.Now()
	in, delay := tensor.Slice[int32](&b.In[0]), tensor.Slice[uint32](&b.In[1])
	if len(in) != len(delay) {
		return status.Errorf(status.InvalidArg, "input 'DELAY' has %d elements, expected %d as input 'IN'", len(delay), len(in))
	}
	for i, v := range in {
		if err := pause(ctx, milliseconds(delay[i])); err != nil {
			return err
		}
		if err := answer(b, v, uint32(i)); err != nil {
			return err
		}
	}
	return pause(ctx, milliseconds(tensor.Slice[uint32](&b.In[2])[0])-time.Since(began))
}

func milliseconds(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }

// pause waits for d, or until the client has gone.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return status.ErrCancelled
	}
}

func answer(b *backends.Batch, value int32, index uint32) error {
	out, err := tensor.New(b.Allocator, tensor.Int32, tensor.Of(1))
	if err != nil {
		return err
	}
	idx, err := tensor.New(b.Allocator, tensor.Uint32, tensor.Of(1))
	if err != nil {
		out.Release()
		return err
	}
	tensor.Slice[int32](&out)[0], tensor.Slice[uint32](&idx)[0] = value, index
	return b.Send(0, []tensor.Tensor{out, idx}, false)
}

// Close does nothing.
func (instance) Close() error { return nil }
