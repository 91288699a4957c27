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

// slow is a model whose executions take time. It is not concurrent: as many requests
// are held up at a time as there are instances.
type slow struct {
	*model
	params params
	made   atomic.Int64
}

// plain hides that the model inside is concurrent.
type plain struct{ m *slow }

var _ backends.Model = plain{}

// Signature returns the ports as configured.
func (p plain) Signature() *config.Signature { return p.m.sig }

// Threads reports none: an execution waits and does not compute.
func (plain) Threads() int { return 0 }

// NewInstance returns an instance with a delay of its own.
func (p plain) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return &sleeper{instance{p.m.model}, &p.m.params, p.m.params.of(int(p.m.made.Add(1) - 1))}, nil
}

// Close does nothing: there is nothing to free.
func (plain) Close() error { return nil }

// sleeper is an instance that waits before it answers.
type sleeper struct {
	instance
	params *params
	delay  time.Duration
}

// Execute waits, unless every client has gone, reports activities and responds.
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

// pause waits for d, or until the clients of all requests have gone.
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
