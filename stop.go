package tutti

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/wire"
)

// Close stops the server in phases:
//
//  1. Readiness ends. For --drain-secs the ports stay open and requests are served as before, so that load balancers notice.
//     Jobs stop meanwhile: the chunks in execution record how far they are.
//  2. Clients are sent away: HTTP responses close their connections and, after --drain-secs, HTTP/2 and gRPC connections get
//     GOAWAY. Streams end with UNAVAILABLE when their requests have their responses.
//  3. New inference requests are refused, and running ones complete.
//  4. The services stop, and the models are unloaded.
//
// A server that another process has replaced goes through phases 2 and 4, without a change of its health.
//
// Phases 2 to 4 take at most --exit-timeout-secs. Then Close cuts off the remaining requests and returns an error. It ignores
// the cancellation of ctx, which is often the reason to close.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() { s.err = errors.Join(s.close(context.WithoutCancel(ctx)), s.journal.Close()) })
	return s.err
}

func (s *Server) close(ctx context.Context) error {
	next := s.Successor() != 0
	s.draining.Store(!next)
	serves := slices.ContainsFunc(s.endpoints, (*endpoint).started)
	jobs := s.stopJobs(ctx)
	if serves && !next {
		s.announce(ctx)
	}
	s.leaving.Store(!next)
	s.guard.close()
	defer s.guard.done.Wait()
	if s.ui != nil {
		s.ui.Close()
		s.window.Close()
		if err := s.past.Close(); err != nil {
			s.log.WarnContext(ctx, "closing the dashboard's history failed", slog.String("error", err.Error()))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.ExitTimeout)
	defer cancel()
	worker := <-jobs
	if serves {
		s.log.InfoContext(ctx, "stopping", slog.Duration("timeout", s.o.ExitTimeout))
		s.drain(ctx)
	}
	err := errors.Join(worker, s.stopServices(ctx), s.offer.Close(), s.giveUp(errors.New("it stopped before it was ready")), s.jobs.close(ctx, s.log), s.repo.Close(ctx), s.traces.close(ctx), s.meter.Close(), s.access.Close())
	if err == nil { // otherwise requests may still use them
		err = errors.Join(closeCache(s.responses), closeStore(s.store))
		s.collectDropped()
		err = errors.Join(err, s.closeGPUs(ctx))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("exit timeout of %s expired, requests under way were cut off: %w", s.o.ExitTimeout, err)
	}
	if n := s.alloc.InUse(); err == nil && n > 0 {
		s.log.WarnContext(ctx, "tensors were not released", slog.Int64("bytes", n))
	}
	return err
}

// collections bounds the garbage collections of collectDropped.
const collections = 8

// collectDropped releases the tensors of responses that broken gRPC connections have dropped unsent, by garbage collections. Pinned memory
// must be released before the GPUs are closed.
func (s *Server) collectDropped() {
	for i := 0; i < collections && s.heldTensors() > 0; i++ {
		wire.Collect()
	}
}

// heldTensors returns the bytes of tensors in host memory.
func (s *Server) heldTensors() int64 {
	n := s.alloc.InUse()
	if pinned, ok := s.gpus.Pinned(s.alloc).(interface{ InUse() int64 }); ok {
		n += pinned.InUse()
	}
	return n
}

// stopJobs stops the workers of jobs, and returns a channel that gets the result.
func (s *Server) stopJobs(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, s.o.Drain+s.o.ExitTimeout)
		defer cancel()
		done <- s.jobs.leave(ctx)
	}()
	return done
}

// stopServices stops all services and waits for their requests until ctx is done.
func (s *Server) stopServices(ctx context.Context) error {
	errs := make([]error, len(s.endpoints))
	var wg sync.WaitGroup
	for i, e := range s.endpoints {
		wg.Go(func() { errs[i] = e.stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// closeGPUs closes the regions of clients and the GPUs. Errors of a GPU that is lost are warnings: the end of the process frees its memory.
func (s *Server) closeGPUs(ctx context.Context) error {
	lost, err := tensor.SplitLost(errors.Join(s.regions.Close(), s.gpus.Close()))
	if lost != nil {
		s.log.WarnContext(ctx, "closing a lost GPU failed", slog.String("error", status.Line(lost.Error())))
	}
	return err
}

// announce is phase 1 of Close.
func (s *Server) announce(ctx context.Context) {
	if s.http != nil {
		s.http.service.(connectionDrainer).Announce() //nolint:errcheck,forcetypeassert // see wire
	}
	if s.grpc != nil {
		s.grpc.service.(watched).ReadinessChanged() //nolint:errcheck,forcetypeassert // see wire
	}
	if s.o.Drain <= 0 {
		return
	}
	s.log.InfoContext(ctx, "draining: not ready any more, requests are still served", slog.Duration("time", s.o.Drain))
	timer := time.NewTimer(s.o.Drain)
	defer timer.Stop()
	<-timer.C
}

// watched is a service whose clients may watch the readiness.
type watched interface {
	// ReadinessChanged informs the watchers at once.
	ReadinessChanged()
	// ServeLast serves the requests that arrive before their connections close, in place of refusing them.
	ServeLast()
}

// drainInterval is the time between two checks whether the server may stop.
const drainInterval = 5 * time.Millisecond

// drain ends inference in Triton's order, while all services run: phases 2 and 3 of Close. Phase 2 ends with the last HTTP
// connection, or at its time limit. No batch waits for more requests any more. drain returns early when ctx is done.
func (s *Server) drain(ctx context.Context) {
	d := drainer{log: s.log, left: int(s.o.ExitTimeout / time.Second)}
	s.repo.Flush()
	next := s.Successor() != 0
	if s.grpc != nil && (s.o.Drain > 0 || next) {
		// New clients come no more: GOAWAY makes the others leave. Without --drain-secs they are refused in phase 3 in Triton's
		// words, which needs open connections.
		if err := s.grpc.listener.pause(); err != nil && !next {
			s.log.WarnContext(ctx, "closing a socket", slog.Any("error", err))
		}
		s.grpc.service.(watched).ServeLast() //nolint:errcheck,forcetypeassert // see wire
		go func() { _ = s.grpc.stop(ctx) }() // stopServices returns the error
	}
	if s.http != nil {
		limit, cancel := context.WithTimeout(ctx, min(s.o.ExitConnections, s.o.ExitTimeout/2))
		http := s.http.service.(connectionDrainer) //nolint:errcheck,forcetypeassert // see wire
		if next {
			http.HandOver()
		} else {
			http.Leave()
		}
		d.wait(limit, http.Connections, "HTTP service connections")
		cancel()
	}
	if next { // no request is refused: those on the last connections go to the successor when they are closed
		_ = s.stopServices(ctx) // close returns the error
	}
	s.stopping.Store(true)
	s.repo.EndCopies()
	s.log.Info("Waiting for in-flight requests to complete.") //nolint:sloglint // tools look for this line of Triton's
	d.wait(ctx, s.repo.Busy, "model versions that have in-flight inferences")
}

// connectionDrainer is a service whose clients keep connections open.
type connectionDrainer interface {
	// Announce makes health say that the server leaves. Requests are served as before, and connections kept.
	Announce()
	// Leave makes clients close their connections after their next response. Requests are served as before.
	Leave()
	// HandOver is Leave for a server that another process has replaced at the same address: health does not change.
	HandOver()
	// Connections returns how many connections are open.
	Connections() int
}

// drainer waits, and logs every second what it waits for.
type drainer struct {
	log  *slog.Logger
	left int // remaining seconds, for the log
}

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
			d.log.InfoContext(ctx, fmt.Sprintf("Timeout %d: Found %d %s", d.left, n, what)) //nolint:sloglint // tools look for this line of Triton's
			d.left, logged = max(d.left-1, 0), now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
