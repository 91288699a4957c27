// Package square implements the backend square, a decoupled model whose input is the number of its responses. Tests
// of streams use it; tensors and parameters are those of NVIDIA's backend of this name.
package square

import (
	"context"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// NewFactory returns the factory of the backend square. Its models have no files. For input IN (INT32 [1]) with the
// value n, the model sends n responses with output OUT (INT32 [1]) of value n; none if n is not positive. For
// example, IN 3 sends 3 three times. The instance accepts the next batch while it sends responses. A model may
// batch requests of one row each; their responses alternate. A model that is not decoupled has one response, so n
// must be 1.
//
// The parameters are:
// - CUSTOM_INFER_DELAY_NS delays every response.
// - CUSTOM_OUTPUT_DELAY_NS further delays a response that has an output.
// - CUSTOM_EMPTY_COUNT is the number of last responses that have no output.
// - CUSTOM_FAIL_COUNT is the number of responses before those that fail. The first failure ends the request.
// - CUSTOM_CANCEL_DELAY_NS delays the reaction to a cancelled request.
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

// Signature returns the same ports for every model; only MaxBatch and Decoupled differ.
func (m *model) Signature() *config.Signature { return m.sig }

// Threads returns 0: an execution waits and hardly computes.
func (*model) Threads() int { return 0 }

// NewInstance returns an instance. It holds no state of requests.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return &instance{m}, nil
}

// Close does nothing.
func (*model) Close() error { return nil }

type instance struct{ *model }

var _ backends.Instance = (*instance)(nil)

// Close does nothing.
func (*instance) Close() error { return nil }
