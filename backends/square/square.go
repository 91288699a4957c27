// Package square holds the backend square, a decoupled model whose input says how
// many responses it has. It serves tests of streams, with the tensors and parameters of
// NVIDIA's backend of this name.
package square

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// NewFactory declares the backend square. Its models have no files. The input IN
// (INT32 [1]) with the value n has n responses with the output OUT (INT32 [1]), each of
// them n; none when n is not positive. An instance takes the next batch while the
// responses of earlier ones leave. A model may batch requests of one row each, whose
// responses then alternate. A model that is not decoupled has one response, so that n
// must be 1.
//
// Parameters: every response takes CUSTOM_INFER_DELAY_NS, and CUSTOM_OUTPUT_DELAY_NS when
// it has an output. The last CUSTOM_EMPTY_COUNT have none; of those before,
// CUSTOM_FAIL_COUNT fail, of which the first ends the request. Noticing that a client has
// gone takes CUSTOM_CANCEL_DELAY_NS.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "square",
		Guide:  backends.Guide{Doc: "A decoupled model that sends n responses for the input n, with delays and failures by NVIDIA's parameters. For tests of clients."},
		Params: []string{keyInfer, keyOutput, keyCancel, keyFail, keyEmpty},
		New:    func(backends.Options) (backends.Backend, error) { return backend{}, nil },
	}
}

type backend struct{}

var _ backends.Backend = backend{}

// Load reads the parameters.
func (backend) Load(_ context.Context, s backends.Settings) (backends.Model, error) {
	p, err := parse(&s)
	if err != nil {
		return nil, err
	}
	port := func(name string) []config.Port {
		return []config.Port{{Name: name, DType: tensor.Int32, Dims: tensor.Of(1)}}
	}
	return &model{p, &config.Signature{
		Model: s.Model, Version: s.Version, MaxBatch: int(max(s.Config.GetMaxBatchSize(), 0)),
		Decoupled: s.Config.GetModelTransactionPolicy().GetDecoupled(), Inputs: port("IN"), Outputs: port("OUT"),
	}}, nil
}

// Close does nothing: there is no runtime.
func (backend) Close() error { return nil }

type model struct {
	params params
	sig    *config.Signature
}

var _ backends.ThreadedModel = (*model)(nil)

// Signature is the same for every model, apart from MaxBatch and Decoupled.
func (m *model) Signature() *config.Signature { return m.sig }

// Threads reports none: an execution waits for its clients and hardly computes.
func (*model) Threads() int { return 0 }

// NewInstance returns an instance, which keeps nothing of a request.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return &instance{m}, nil
}

// Close does nothing.
func (*model) Close() error { return nil }

type instance struct{ *model }

var _ backends.Instance = (*instance)(nil)

// Close does nothing.
func (*instance) Close() error { return nil }
