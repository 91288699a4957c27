package tutti

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/memory"
	"github.com/tutti-server/tutti/internal/options"
)

// guard watches a server that serves: it refuses requests while the memory is full, and looks for what is degraded.
type guard struct {
	end  context.CancelFunc // nil before the server serves
	done sync.WaitGroup

	mu    sync.Mutex
	since map[infer.Degradation]time.Time // what is degraded, without reasons and times; guarded by mu
	found []infer.Degradation             // at the last look; guarded by mu
}

// degradedTime is the time between two looks at what is degraded.
const degradedTime = time.Second

// watch begins to watch the server.
func (s *Server) watch() {
	ctx, end := context.WithCancel(context.Background())
	s.guard.end = end
	s.guard.done.Go(func() {
		tick := time.NewTicker(degradedTime)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.Degraded()
			case <-ctx.Done():
				return
			}
		}
	})
	s.guard.done.Go(func() { s.releaseIdle(ctx) })
	if s.bound == nil {
		return
	}
	s.guard.done.Go(func() {
		s.bound.Watch(ctx, func(why error) {
			s.inFlight.Block(why)
			if why != nil {
				s.log.WarnContext(ctx, "requests are refused, the memory is full", slog.String("reason", why.Error()))
				return
			}
			s.log.InfoContext(ctx, "requests are served again, there is memory")
		})
	})
}

// newMeter returns the meter of the memory that the options bound, nil if they switch the refusals off.
func newMeter(o *options.Limits) *memory.Meter {
	switch {
	case o.Memory == nil:
		return memory.New(0)
	case *o.Memory == 0:
		return nil
	}
	return memory.New(*o.Memory)
}

// admit returns why the pool must not map n bytes for a tensor: the memory has no room for it.
func (s *Server) admit(n int64) error {
	u := s.bound.Use()
	mapped, _ := s.alloc.Usage() // also what is not written yet, and so not in use
	switch room := min(u.Room(), u.Limit-mapped); {
	case u.Limit <= 0 || n <= room:
		return nil
	case n > u.Limit:
		return status.Reasonf(status.TooLarge, "a tensor of %d bytes is %w: %s has %d bytes; send less data, or change --memory-limit-bytes", n, infer.ErrTooLarge, u.Of, u.Limit)
	default:
		return &status.Error{Code: status.Unavailable, Reason: status.MemoryLimit, RetryAfter: time.Second, Msg: fmt.Sprintf(
			"a tensor of %d bytes does not fit in the %d bytes that are left of the %d bytes of %s; send the request again later or to another server, or change --memory-limit-bytes", n, max(room, 0), u.Limit, u.Of,
		)}
	}
}

// idleTime is the time after which what nothing uses is released. It takes up to twice as long.
const idleTime = 20 * time.Second

// releaseIdle returns the memory of tensors, and ends workers of the schedulers, that were not used for a while.
func (s *Server) releaseIdle(ctx context.Context) {
	tick := time.NewTicker(idleTime)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.alloc.ReleaseIdle()
			s.repo.ReleaseIdle()
		case <-ctx.Done():
			return
		}
	}
}

// close ends the looks, and does not wait for one that asks a model: done has that.
func (g *guard) close() {
	if g.end != nil {
		g.end()
	}
}

// unloaded is the reason of versions in the index that are not meant to serve.
const unloaded = "unloaded"

// Degraded returns what does not work as configured, with the time since when: models that cannot serve, serve at some places only or
// are stuck, memory that is full, buckets and a response cache that do not respond, a full disk of jobs. It is empty for a sound server.
func (s *Server) Degraded() []infer.Degradation { return s.guard.date(s.degraded(), time.Now()) }

func (s *Server) degraded() (list []infer.Degradation) {
	if err := s.repo.Err(); err != nil {
		list = append(list, infer.Degradation{What: "repository", Reason: status.Text(err)})
	}
	for _, f := range s.repo.LostBuckets() {
		list = append(list, infer.Degradation{What: "repository", Name: f.Dir, Reason: status.Text(f.Err)})
	}
	if c, ok := s.responses.(interface{ Lost() error }); ok && c.Lost() != nil {
		list = append(list, infer.Degradation{What: "cache", Name: "redis", Reason: status.Text(c.Lost())})
	}
	if s.jobs != nil && s.jobs.conn.Full() != nil {
		list = append(list, infer.Degradation{What: "jobs", Name: "temporal", Reason: status.Text(s.jobs.conn.Full())})
	}
	if err := s.inFlight.Blocked(); err != nil {
		list = append(list, infer.Degradation{What: "memory", Reason: status.Text(err)})
	}
	for _, e := range s.repo.Opened() {
		reason, since := e.Reason, time.Time{}
		if version, err := infer.ParseVersion(e.Version); err == nil && e.State == infer.Ready {
			err := s.repo.ModelReady(e.Name, version)
			if text, at := s.repo.Degraded(e.Name, version); text != "" {
				reason, since = text, at
			} else if err != nil {
				reason = status.Text(err)
			} else if text, at := s.repo.Stuck(e.Name, version); text != "" {
				reason, since = text, at
			} else if reason == s.repo.Evicted(e.Name, version) {
				reason = "" // as --model-memory asks for
			}
		}
		if reason != "" && reason != unloaded {
			list = append(list, infer.Degradation{What: "model", Name: e.Name, Version: e.Version, Reason: reason, Since: since})
		}
	}
	return list
}

// date sets the times of a list that are not known to those at which the parts were found degraded first, now at the latest.
func (g *guard) date(list []infer.Degradation, now time.Time) []infer.Degradation {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.since
	g.since = make(map[infer.Degradation]time.Time, len(list))
	for i := range list {
		d := &list[i]
		key := infer.Degradation{What: d.What, Name: d.Name, Version: d.Version}
		if at, ok := was[key]; ok && (d.Since.IsZero() || at.Before(d.Since)) {
			d.Since = at
		} else if d.Since.IsZero() {
			d.Since = now
		}
		d.Since = d.Since.Round(0).UTC().Truncate(time.Millisecond)
		g.since[key] = d.Since
	}
	g.found = slices.Clone(list)
	return list
}

// last returns what was degraded at the last look, at most degradedTime ago.
func (g *guard) last() []infer.Degradation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.found)
}
