// Package repeat implements the backend repeat, a decoupled model that sends the elements of its input one by one.
// Tests of streams use it; tensors and timing are those of NVIDIA's backend of this name.
package repeat

import (
	"context"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// NewFactory returns the factory of the backend repeat. Its models have no files and do not batch. The inputs are
// IN (INT32 [-1]), DELAY (UINT32 [-1], of IN's shape) and WAIT (UINT32 [1]); the outputs are OUT (INT32 [1]) and
// IDX (UINT32 [1]).
//
// Element i is sent as OUT = IN[i] and IDX = i, DELAY[i] milliseconds after the response before it. The instance
// accepts the next request WAIT milliseconds after this one began, even if responses remain: the responses of
// several requests then alternate. A request ends after its last response, and not before WAIT.
//
// For example, IN [7, 8], DELAY [0, 30] and WAIT [10] send 7 at once and 8 after 30 ms; the instance is free after
// 10 ms.
//
// A model that is not decoupled has one response, so IN must have one element.
func NewFactory() backends.Factory {
	return backends.Factory{
		Name:   "repeat",
		Guide:  backends.Guide{Doc: "A decoupled model that sends one response for each element of its input, each after a delay. If it is not decoupled, the input has one element. For tests of clients."},
		Params: []string{},
		New:    func(backends.Options) (backends.Backend, error) { return backends.Loader(load), nil },
	}
}

// load checks that the model does not batch.
func load(_ context.Context, s backends.Settings) (backends.Model, error) {
	if s.Config.GetMaxBatchSize() != 0 {
		return nil, status.Errorf(status.InvalidArg, "model '%s': backend 'repeat' does not batch, expected max_batch_size 0, found %d",
			s.Model, s.Config.GetMaxBatchSize())
	}
	port := func(name string, d tensor.DType, dim int64) config.Port {
		return config.Port{Name: name, DType: d, Dims: tensor.Of(dim)}
	}
	return model{backends.Ports{Sig: &config.Signature{
		Model: s.Model, Version: s.Version, Decoupled: s.Config.GetModelTransactionPolicy().GetDecoupled(),
		Inputs:  []config.Port{port("IN", tensor.Int32, -1), port("DELAY", tensor.Uint32, -1), port("WAIT", tensor.Uint32, 1)},
		Outputs: []config.Port{port("OUT", tensor.Int32, 1), port("IDX", tensor.Uint32, 1)},
	}}}, nil
}

// model is a loaded configuration, and its own instance.
type model struct{ backends.Ports }

// Threads returns 0: an execution waits and does not compute.
func (model) Threads() int { return 0 }

// NewInstance returns m, which holds no state of requests.
func (m model) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return m, nil
}

// Execute sends one response for each element of IN.
func (m model) Execute(ctx context.Context, b *backends.Batch) error {
	shape, delays := &b.In[0].Shape, &b.In[1].Shape
	if !shape.Equal(*delays) {
		return status.Errorf(status.InvalidArg, "expected IN and DELAY shape to match, got %s and %s", shape, delays)
	}
	in, delay := tensor.Slice[int32](&b.In[0]), tensor.Slice[uint32](&b.In[1])
	if !m.Sig.Decoupled && len(in) != 1 {
		return status.Errorf(status.Internal, "expected a single response, got %d", len(in))
	}
	c := clock{b: b, release: time.Now().Add(milliseconds(tensor.Slice[uint32](&b.In[2])[0]))}
	for i, v := range in {
		if err := c.sleep(ctx, milliseconds(delay[i])); err != nil {
			return err
		}
		if err := respond(b, v, uint32(i)); err != nil {
			return err
		}
	}
	return pause(ctx, time.Until(c.release))
}

func milliseconds(n uint32) time.Duration { return time.Duration(n) * time.Millisecond }

// clock detaches a batch from its instance once WAIT is over.
type clock struct {
	b       *backends.Batch
	release time.Time
	done    bool
}

// sleep waits for d. If WAIT ends during d, the instance is free from then on.
func (c *clock) sleep(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	if !c.done && !c.release.After(end) {
		if err := pause(ctx, time.Until(c.release)); err != nil {
			return err
		}
		c.done = true
		c.b.Detach()
	}
	return pause(ctx, time.Until(end))
}

// pause waits for d. It returns ErrCancelled when the client disconnects.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return status.ErrCancelled
	}
}

// respond sends one element, or sets the outputs of a model that is not decoupled.
func respond(b *backends.Batch, value int32, index uint32) error {
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
	if b.Responses == nil {
		b.SetOutput(0, out)
		b.SetOutput(1, idx)
		return nil
	}
	return b.Send(0, []tensor.Tensor{out, idx}, false)
}
