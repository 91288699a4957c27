package tutti

import (
	"context"
	"fmt"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

// drainInterval is the time between two checks whether the server may stop.
const drainInterval = 5 * time.Millisecond

// drain ends inference in Triton's order, while all services run:
//
//  1. Connections close: the server is not ready, HTTP responses close their connections, and requests are served as
//     before, but no batch waits for more of them. This phase ends with the last connection, or at its time limit.
//  2. New inference requests are refused, and running ones complete.
//
// It returns early when ctx is done. The services stop afterwards.
func (s *Server) drain(ctx context.Context) {
	d := drainer{log: s.log, left: int(s.o.ExitTimeout / time.Second)}
	s.repo.Flush()
	if s.http != nil {
		limit, cancel := context.WithTimeout(ctx, min(s.o.ExitConnections, s.o.ExitTimeout/2))
		http := s.http.service.(connectionDrainer) //nolint:errcheck,forcetypeassert // see wire
		http.Leave()
		d.wait(limit, http.Connections, "HTTP service connections")
		cancel()
	}
	s.stopping.Store(true)
	s.log.Info("Waiting for in-flight requests to complete.") //nolint:sloglint // tools look for this line of Triton's
	d.wait(ctx, s.repo.Busy, "model versions that have in-flight inferences")
}

// connectionDrainer is a service whose clients keep connections open.
type connectionDrainer interface {
	// Leave makes clients close their connections after their next response. Requests are served as before.
	Leave()
	// Connections returns how many connections are open.
	Connections() int
}

// drainer waits, and logs every second what it waits for.
type drainer struct {
	log  infoLogger
	left int // remaining seconds, for the log
}

type infoLogger interface{ Info(msg string, args ...any) }

// wait returns when count is 0, or ctx is done.
func (d *drainer) wait(ctx context.Context, count func() int, what string) {
	ticker := time.NewTicker(drainInterval)
	defer ticker.Stop()
	for logged := (time.Time{}); ; {
		n := count()
		if n == 0 {
			return
		}
		if now := time.Now(); now.Sub(logged) >= time.Second {
			d.log.Info(fmt.Sprintf("Timeout %d: Found %d %s", d.left, n, what))
			d.left, logged = max(d.left-1, 0), now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// catalog is the catalog of the repository as the services see it: not ready while the server is not, and refusing new
// requests once the server stops.
type catalog struct {
	infer.Catalog
	s *Server
}

// Ready implements infer.Catalog.
func (c *catalog) Ready() bool { return c.s.Ready() }

// Describe fails for every model once the server stops: the services call it before they decode a request.
func (c *catalog) Describe(model string, version int64) (*infer.Description, error) {
	d, err := c.Catalog.Describe(model, version)
	if err == nil && c.s.stopping.Load() {
		return nil, c.refusal(model, version)
	}
	return d, err
}

// refusal returns the error of a request to a server that stops, in Triton's words.
func (c *catalog) refusal(model string, version int64) error {
	err := status.Errorf(status.Unavailable, "%sServer is stopping, scheduler for model has stopped accepting new inference requests", infer.IDPrefix(""))
	if cfg, failed := c.Config(model, version); failed == nil && cfg.GetEnsembleScheduling() != nil {
		err = status.Prefixf(err, "in ensemble '%s', ", model)
	}
	return err
}
