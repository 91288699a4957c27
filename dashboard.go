package tutti

import (
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/internal/server/overview"
	"github.com/tutti-server/tutti/internal/server/web"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
	"github.com/tutti-server/tutti/internal/tracing/ring"
)

// traceStore returns the store of traces of recent requests, nil if it is disabled or there is no dashboard to show
// them. Exemplars of the latencies of m refer to its traces.
func traceStore(o *options.Options, m *telemetry.Metrics) (*ring.Store, error) {
	if o.TraceStore.Bytes == 0 || !o.Dashboard.Enabled || !o.HTTP.Enabled {
		return nil, nil //nolint:nilnil // there is none
	}
	store, err := ring.New(o.TraceStore.Bytes, inspect.Sampling{Failed: true, Slow: true, Every: uint32(o.TraceStore.Every)}) //nolint:gosec // within its range
	if err == nil {
		store.OnRetained(func(r *tracing.Record, took int64) { m.Exemplar(r.Model, r.Version, r.ID.String(), took) })
	}
	return store, err
}

// captureStore returns the store of captured tensors, nil if capturing is disabled. Only clients with the token may
// start a capture.
func captureStore(o *options.Options) *capture.Store {
	c := &o.Capture
	if c.Bytes == 0 || o.Dashboard.Token == "" || !o.Dashboard.Enabled || !o.HTTP.Enabled {
		return nil
	}
	return capture.New(capture.Settings{Bytes: c.Bytes, RequestBytes: c.RequestBytes, RedactTensors: c.RedactTensors, RedactModels: c.RedactModels})
}

func closeStore(s *ring.Store) error {
	if s == nil {
		return nil
	}
	return s.Close()
}

// dashboard returns the server of /ui/.
func (s *Server) dashboard() (*web.Server, error) {
	pages, err := web.Pages()
	if err != nil {
		return nil, err
	}
	s.window = overview.New(s.windowSettings())
	set := web.Settings{
		Overview: s.window, Lifecycle: s.repo, Token: s.o.Dashboard.Token, Restricted: restricted(s.o.HTTP.Restricted),
		Pages: pages,
	}
	if s.store != nil {
		set.Inspector = s.store
	}
	if s.captures != nil {
		set.Captures = s.captures
	}
	s.ui = web.New(set)
	return s.ui, nil
}

// windowSettings returns the sources of the dashboard's figures.
func (s *Server) windowSettings() overview.Settings {
	set := overview.Settings{
		Name: s.o.ID, Version: Version, Models: s.repo, Ready: s.Ready, GPUs: s.metrics.Measured, TensorBytes: s.alloc.InUse,
	}
	if s.store != nil {
		set.Traces = s.store
	}
	return set
}

// closeDashboard stops the dashboard's goroutines.
func (s *Server) closeDashboard() {
	if s.ui != nil {
		s.ui.Close()
		s.window.Close()
	}
}
