// Package square holds the backend square, a decoupled model whose input says how
// often it answers. It serves tests of whatever streams answers, with the tensors of
// Triton's model of this name.
package square

import (
	"context"

	"tutti/backends"
	"tutti/core/config"
	"tutti/core/status"
	"tutti/core/tensor"
)

// NewFactory declares the backend square. Its models have no files. The input IN
// (INT32 [1]) with the value n is answered n times with the output OUT (INT32 [1]),
// each time n; not at all when n is not positive. It does not batch.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "square",
		Guide:  backends.Guide{Doc: "A decoupled model that answers the number n n times. For tests of clients."},
		Params: []string{},
		New:    func(backends.Options) (backends.Backend, error) { return backend{}, nil },
	}
}

type backend struct{}

var _ backends.Backend = backend{}

// Load checks that the model is decoupled and does not batch.
func (backend) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	if s.Config.GetMaxBatchSize() != 0 {
		return nil, status.Errorf(status.InvalidArg, "model '%s': backend 'square' does not batch, expected max_batch_size 0, found %d",
			s.Model, s.Config.GetMaxBatchSize())
	}
	if !s.Config.GetModelTransactionPolicy().GetDecoupled() {
		return nil, status.Errorf(status.InvalidArg,
			"model '%s': backend 'square' answers several times, expected 'model_transaction_policy { decoupled: true }'", s.Model)
	}
	port := func(name string) []config.Port {
		return []config.Port{{Name: name, DType: tensor.Int32, Dims: tensor.Of(1)}}
	}
	return model{&config.Signature{
		Model: s.Model, Version: s.Version, Decoupled: true, Inputs: port("IN"), Outputs: port("OUT"),
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

// Inline is false: the number of answers is the client's choice.
func (model) Inline() bool { return false }

// Close does nothing.
func (model) Close() error { return nil }

type instance struct{}

// Execute answers one request as often as its input says.
func (instance) Execute(_ context.Context, b *backends.Batch) error {
	n := tensor.Slice[int32](&b.In[0])[0]
	for range max(n, 0) {
		out, err := tensor.New(b.Allocator, tensor.Int32, tensor.Of(1))
		if err != nil {
			return err
		}
		tensor.Slice[int32](&out)[0] = n
		if err := b.Send(0, []tensor.Tensor{out}, false); err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing.
func (instance) Close() error { return nil }
