package main

import (
	"context"
	"errors"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/ring"
)

// tracedInferer traces the requests of an executor, as the repository does.
type tracedInferer struct {
	infer.Inferer
	tracer *tracing.Tracer
}

// Submit starts a trace for the request.
func (f tracedInferer) Submit(ctx context.Context, req *infer.Request, sink infer.Sink) {
	req.Trace = f.tracer.Sample("chain", 1, req.ID)
	f.Inferer.Submit(ctx, req, sink)
}

// traced measures the cost of tracing a chain's requests for the trace store: at the default rate, and for all of
// them.
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
		func(n int) { s.infer(x, n) },
		func(n int) { s.infer(tracedInferer{x, tracers[0]}, n) },
		func(n int) { s.infer(tracedInferer{x, tracers[1]}, n) })
	s.limit("chain of 3, traced for the store", "us of CPU", costs[1].cpu/1000, 1.5)
	s.limit("  its allocations", "per request", costs[1].allocs, 0.01)
	s.limit("a step of it, where every request is traced", "us of CPU more", (costs[2].cpu-costs[0].cpu)/nodes/1000, 3)
	s.limit("  its allocations", "per request", costs[2].allocs, 2*nodes)
	return errors.Join(stores[0].Close(), stores[1].Close())
}
