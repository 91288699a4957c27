package main

import (
	"context"
	"errors"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/ring"
)

// followed traces the requests of an executor, as the repository does.
type followed struct {
	infer.Inferer
	tracer *tracing.Tracer
}

// Submit has the request traced.
func (f followed) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	req.Trace = f.tracer.Sample("chain", 1, req.ID)
	f.Inferer.Submit(ctx, req, sink)
}

// traced measures what it costs to trace the requests of a chain for the store: as many
// as it is by default, and all of them.
func (s *schedBench) traced() error {
	const nodes, stored = 3, 64 << 20
	x, err := s.executor(chain(nodes), s.inline)
	if err != nil {
		return err
	}
	var tracers [2]*tracing.Tracer
	var stores [2]*ring.Store
	for i, atMost := range [...]int{2000, 0} {
		if stores[i], err = ring.New(stored, inspect.Sampling{Failed: true, Slow: true, Every: 100}); err != nil {
			return err
		}
		if tracers[i], err = tracing.New(tracing.Options{Sinks: []tracing.Sink{stores[i]}, All: true, AtMost: atMost}); err != nil {
			return err
		}
	}
	costs := s.inTurns(200_000,
		func(n int) { s.ask(x, n) },
		func(n int) { s.ask(followed{x, tracers[0]}, n) },
		func(n int) { s.ask(followed{x, tracers[1]}, n) })
	s.limit("chain of 3, traced for the store", "us of CPU", costs[1].cpu/1000, 1.5)
	s.limit("  its allocations", "per request", costs[1].allocs, 0.01)
	s.limit("a step of it, where every request is traced", "us of CPU more", (costs[2].cpu-costs[0].cpu)/nodes/1000, 3)
	s.limit("  its allocations", "per request", costs[2].allocs, 2*nodes)
	return errors.Join(stores[0].Close(), stores[1].Close())
}
