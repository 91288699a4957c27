// Package square implements the backend square, a decoupled model whose input is the number of its responses. Tests
// of streams use it; tensors and parameters are those of NVIDIA's backend of this name.
package square

import (
	"context"
	"strconv"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
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
		Params: keys,
		New:    func(backends.Options) (backends.Backend, error) { return backends.Loader(load), nil },
	}
}

// load reads the parameters.
func load(_ context.Context, s backends.Settings) (backends.Model, error) {
	p, err := parse(&s)
	if err != nil {
		return nil, err
	}
	port := func(name string) []config.Port {
		return []config.Port{{Name: name, DType: tensor.Int32, Dims: tensor.Of(1)}}
	}
	return &model{backends.Ports{Sig: &config.Signature{
		Model: s.Model, Version: s.Version, MaxBatch: int(max(s.Config.GetMaxBatchSize(), 0)),
		Decoupled: s.Config.GetModelTransactionPolicy().GetDecoupled(), Inputs: port("IN"), Outputs: port("OUT"),
	}}, p}, nil
}

// model is a loaded configuration, and its own instance.
type model struct {
	backends.Ports
	params params
}

// Threads returns 0: an execution waits and hardly computes.
func (*model) Threads() int { return 0 }

// NewInstance returns m, which holds no state of requests.
func (m *model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return m, nil
}

// keys are the parameters of config.pbtxt, with the names of NVIDIA's backend.
var keys = []string{"CUSTOM_INFER_DELAY_NS", "CUSTOM_OUTPUT_DELAY_NS", "CUSTOM_CANCEL_DELAY_NS", "CUSTOM_FAIL_COUNT", "CUSTOM_EMPTY_COUNT"}

// params are the parameters of a model.
type params struct {
	infer, output, cancel time.Duration
	fail, empty           int64
}

func parse(s *backends.Settings) (p params, err error) {
	to := []*int64{(*int64)(&p.infer), (*int64)(&p.output), (*int64)(&p.cancel), &p.fail, &p.empty}
	for i, key := range keys {
		if *to[i], err = number(s, key); err != nil {
			return p, err
		}
	}
	return p, nil
}

// maxNumber bounds a parameter: as nanoseconds it is 13 days and cannot overflow.
const maxNumber = 1 << 50

// number returns a parameter, 0 if it is not set.
func number(s *backends.Settings, key string) (int64, error) {
	text := s.Param(key)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > maxNumber {
		return 0, status.Errorf(status.InvalidArg, "model '%s': parameter '%s' is '%s', expected an integer from 0 to %d", s.Model, key, text, int64(maxNumber))
	}
	return n, nil
}

// Execute sends to each request the number of responses that its input asks for.
func (m *model) Execute(ctx context.Context, b *backends.Batch) error {
	counts := tensor.Slice[int32](&b.In[0])
	if !m.Sig.Decoupled {
		return m.respondOnce(b, counts)
	}
	b.Detach()
	list := make([]request, 0, len(b.Requests))
	for i := range b.Requests {
		q := &b.Requests[i]
		if q.Rows > 1 {
			q.Err = status.Errorf(status.InvalidArg, "unexpected shape for IN input")
			continue
		}
		if n := int64(counts[q.First]); n > 0 {
			list = append(list, request{i: i, n: n})
		}
	}
	for len(list) > 0 {
		list = m.round(ctx, b, list)
	}
	return nil
}

// respondOnce sets the single response of each request of a model that is not decoupled.
func (*model) respondOnce(b *backends.Batch, counts []int32) error {
	for i := range b.Requests {
		if n := counts[b.Requests[i].First]; n != 1 && b.Requests[i].Err == nil {
			b.Requests[i].Err = status.Errorf(status.Internal, "expected a single response, got %d", max(n, 0))
		}
	}
	out, err := b.Alloc(0, tensor.Int32, b.In[0].Shape)
	if err == nil {
		copy(tensor.Slice[int32](out), counts)
	}
	return err
}

// request is a request of the batch with responses left: e of n are done.
type request struct {
	i    int
	e, n int64
}

// round sends the next response of each request and returns the requests that have more. One delay covers the
// responses of all requests.
func (m *model) round(ctx context.Context, b *backends.Batch, list []request) []request {
	next := list[:0]
	sleep(ctx, b.Requests, m.params.infer)
	waited := false
	for _, r := range list {
		q := &b.Requests[r.i]
		if q.Err = m.fails(ctx, q, r); q.Err == nil && r.e < r.n-m.params.empty {
			if !waited {
				waited = true
				sleep(ctx, b.Requests, m.params.output)
			}
			q.Err = m.send(b, r)
		}
		if r.e++; q.Err == nil && r.e < r.n {
			next = append(next, r)
		}
	}
	return next
}

// fails returns the error that ends a request before its next response, or nil.
func (m *model) fails(ctx context.Context, q *backends.Request, r request) error {
	p := &m.params
	switch {
	case ctx.Err() != nil, q.Ctx != nil && q.Ctx.Err() != nil:
		sleep(context.WithoutCancel(ctx), nil, p.cancel)
		return status.ErrCancelled
	case r.e >= r.n-p.empty-p.fail && r.e < r.n-p.empty:
		return status.Errorf(status.Unknown, "simulated failure")
	}
	return nil
}

// send sends the next response of a request.
func (m *model) send(b *backends.Batch, r request) error {
	shape := tensor.Of(1)
	if m.Sig.MaxBatch > 0 {
		shape = tensor.Of(1, 1)
	}
	out, err := tensor.New(b.Allocator, tensor.Int32, shape)
	if err != nil {
		return err
	}
	tensor.Slice[int32](&out)[0] = int32(r.n)
	return b.Send(r.i, []tensor.Tensor{out}, false)
}

// sleep waits for d, or until the batch, or the only request of the batch, is cancelled.
func sleep(ctx context.Context, reqs []backends.Request, d time.Duration) {
	if d <= 0 {
		return
	}
	gone := ctx.Done()
	if len(reqs) == 1 && reqs[0].Ctx != nil {
		gone = reqs[0].Ctx.Done()
	}
	select {
	case <-time.After(d):
	case <-gone:
	}
}
