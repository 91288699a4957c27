package identity

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// slow is a model whose executions are delayed. It is not concurrent: at most one request for each instance waits
// at a time.
type slow struct {
	*model
	params params
	made   atomic.Int64
}

// plain hides that the wrapped model is concurrent.
type plain struct{ m *slow }

var _ backends.Model = plain{}

// Signature returns the ports as configured.
func (p plain) Signature() *config.Signature { return p.m.sig }

// Threads returns 0: an execution waits and does not compute.
func (plain) Threads() int { return 0 }

// NewInstance returns the next instance, with the delay of its number.
func (p plain) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return &sleeper{instance{p.m.model}, &p.m.params, p.m.params.delayOf(int(p.m.made.Add(1) - 1))}, nil
}

// Close does nothing: there is nothing to free.
func (plain) Close() error { return nil }

// sleeper is an instance that waits before it responds.
type sleeper struct {
	instance
	params *params
	delay  time.Duration
}

// Execute waits, reports activities and sets the outputs. It fails as cancelled when all clients disconnect.
func (s *sleeper) Execute(ctx context.Context, b *backends.Batch) error {
	if err := pause(ctx, s.delay, b.Requests); err != nil {
		return err
	}
	if s.params.tracing {
		if err := s.params.report(ctx, b.Requests); err != nil {
			return err
		}
	}
	return s.instance.Execute(ctx, b)
}

// pause waits for d. It returns ErrCancelled when the batch is cancelled or the clients of all requests disconnect.
func pause(ctx context.Context, d time.Duration, reqs []backends.Request) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for i := range reqs {
		if reqs[i].Ctx == nil {
			continue
		}
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return status.ErrCancelled
		case <-reqs[i].Ctx.Done():
			if i == len(reqs)-1 {
				return status.ErrCancelled
			}
		}
	}
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return status.ErrCancelled
	}
}
