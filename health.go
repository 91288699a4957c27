package tutti

import (
	"context"
	"log/slog"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/memory"
)

// guard refuses requests while the memory is full.
type guard struct {
	end  context.CancelFunc // nil without a bound
	done sync.WaitGroup
}

// guardMemory begins to watch the memory.
func (s *Server) guardMemory() {
	bound := int64(0)
	if b := s.o.Limits.Memory; b != nil {
		if bound = *b; bound == 0 {
			return
		}
	}
	ctx, end := context.WithCancel(context.Background())
	s.guard.end = end
	s.guard.done.Go(func() {
		memory.New(bound).Watch(ctx, func(why error) {
			s.inFlight.Block(why)
			if why != nil {
				s.log.WarnContext(ctx, "requests are refused, the memory is full", slog.String("reason", why.Error()))
				return
			}
			s.log.InfoContext(ctx, "requests are served again, there is memory")
		})
	})
}

func (g *guard) close() {
	if g.end != nil {
		g.end()
		g.done.Wait()
	}
}

// unloaded is the reason of versions in the index that are not meant to serve.
const unloaded = "unloaded"

// Degraded returns what does not work as configured: models that cannot serve, or serve at some places only, and memory that is
// full. It is empty for a sound server.
func (s *Server) Degraded() (list []infer.Degradation) {
	if err := s.repo.Err(); err != nil {
		list = append(list, infer.Degradation{What: "repository", Reason: status.Text(err)})
	}
	if err := s.inFlight.Blocked(); err != nil {
		list = append(list, infer.Degradation{What: "memory", Reason: status.Text(err)})
	}
	for _, e := range s.repo.Index(false) {
		reason := e.Reason
		if version, err := infer.ParseVersion(e.Version); err == nil && e.State == infer.Ready {
			if err := s.repo.ModelReady(e.Name, version); err != nil {
				reason = status.Text(err)
			}
		}
		if reason != "" && reason != unloaded {
			list = append(list, infer.Degradation{What: "model", Name: e.Name, Version: e.Version, Reason: reason})
		}
	}
	return list
}
