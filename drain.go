package tutti

import (
	"context"
	"fmt"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// drainLook is after how long the server looks again whether it may stop.
const drainLook = 5 * time.Millisecond

// drain ends inference in Triton's order, while all services stay up:
//
//  1. Clients leave: readiness is gone, responses over HTTP close their connections, and requests are served as before,
//     but that no batch waits for more of them, until the connections that clients keep open are gone or their time is over.
//  2. New inference requests are refused, and those under way are waited for.
//
// It returns when ctx is over, too. The services stop afterwards.
func (s *server) drain(ctx context.Context) {
	d := drainer{log: s.log, left: int(s.o.ExitTimeout / time.Second)}
	s.repo.Flush()
	if s.http != nil {
		limit, cancel := context.WithTimeout(ctx, min(s.o.ExitConnections, s.o.ExitTimeout/2))
		http := s.http.service.(leaver) //nolint:errcheck,forcetypeassert // wire made it
		http.Leave()
		d.wait(limit, http.Connections, "HTTP service connections")
		cancel()
	}
	s.stopping.Store(true)
	s.log.Info("Waiting for in-flight requests to complete.") //nolint:sloglint // tools look for this line of Triton's
	d.wait(ctx, s.repo.Busy, "model versions that have in-flight inferences")
}

// leaver is a service whose clients keep connections open.
type leaver interface {
	// Leave has clients close their connections after their next response. Requests are served as before.
	Leave()
	// Connections returns how many connections are open.
	Connections() int
}

// drainer waits, and says every second for what.
type drainer struct {
	log  infoLogger
	left int // seconds, as the log counts them down
}

type infoLogger interface{ Info(msg string, args ...any) }

// wait returns when count is 0, or ctx is over.
func (d *drainer) wait(ctx context.Context, count func() int, what string) {
	look := time.NewTicker(drainLook)
	defer look.Stop()
	for told := (time.Time{}); ; {
		n := count()
		if n == 0 {
			return
		}
		if now := time.Now(); now.Sub(told) >= time.Second {
			d.log.Info(fmt.Sprintf("Timeout %d: Found %d %s", d.left, n, what))
			d.left, told = max(d.left-1, 0), now
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// Describe refuses every request that is about to be decoded once the server stops.
func (g *gate) Describe(model string, version int64) (*infer.Description, error) {
	d, err := g.Catalog.Describe(model, version)
	if err == nil && g.s.stopping.Load() {
		return nil, g.refusal(model, version)
	}
	return d, err
}

// refusal is what a client of a server that stops reads: Triton's words.
func (g *gate) refusal(model string, version int64) error {
	err := status.Errorf(status.Unavailable, "%sServer is stopping, scheduler for model has stopped accepting new inference requests", infer.IDPrefix(""))
	if cfg, failed := g.Config(model, version); failed == nil && cfg.GetEnsembleScheduling() != nil {
		err = status.Prefixf(err, "in ensemble '%s', ", model)
	}
	return err
}
