package durable

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/dataset"
	"github.com/tutti-server/tutti/internal/telemetry"
)

const (
	// pieces is how many requests have the rows of a unit beside online requests. One request of all rows finds no free places in the
	// batches of online requests.
	pieces = 16
	// unitsBeside is how many units of a model are in pieces at a time: more than the free places of a batch.
	unitsBeside = 4
	// busyTime is how long a request of a whole unit may execute or wait before it is made again in pieces, if online requests came.
	busyTime = 250 * time.Millisecond
)

// errBusy says that a unit must be sent in pieces.
var errBusy = errors.New("online requests are served")

// whole sends a unit as one request. While online requests are served or expected it fails with errBusy; the inputs are released.
func (s *sender) whole(ctx context.Context, u *unit) (*infer.Response, error) {
	if u.piece || len(u.sent) == 1 {
		return s.request(ctx, u.sent, u.inputs)
	}
	if s.most(len(u.sent)) < len(u.sent) {
		u.releaseInputs()
		return nil, errBusy
	}
	limited, stop := context.WithCancel(ctx)
	defer stop()
	w := &onlineWatch{busy: s.busy, stop: stop}
	w.begin()
	resp, err := s.request(limited, u.sent, u.inputs)
	if gaveUp := w.end(); err != nil && gaveUp && ctx.Err() == nil {
		err = errBusy
	}
	return resp, err
}

// busy reports whether online requests are served.
func (s *sender) busy() bool { return !s.a.s.Background.Quiet(telemetry.Now()) }

// most returns how many rows of a unit of n a request may have now. While online requests are expected it is brief, because one that comes
// waits for it.
func (s *sender) most(n int) int {
	b, now := s.a.s.Background, telemetry.Now()
	switch {
	case !b.Quiet(now):
		return max(n/pieces, 1)
	case b.Expecting(now):
		return min(s.gate.brief(), n)
	}
	return n
}

// beside executes a unit while online requests are served or expected, in pieces: few units at a time, because the rows of more find no
// free places sooner. One that has waited until there are none is sent as one request again.
func (s *sender) beside(ctx context.Context, u *unit) {
	select {
	case s.gate.beside <- struct{}{}:
	case <-ctx.Done():
		u.err = ctx.Err()
		return
	}
	most := s.most(len(u.sent))
	if most < len(u.sent) {
		s.sendPieces(ctx, u, most)
	}
	<-s.gate.beside // before it is sent as one request, which may fail with errBusy again
	if most < len(u.sent) {
		return
	}
	if u.inputs, u.err = s.inputs(u.sent); u.err == nil {
		s.execute(ctx, u)
	}
}

// onlineWatch stops a request when online requests came.
type onlineWatch struct {
	busy func() bool
	stop func()

	mu     sync.Mutex
	timer  *time.Timer
	ended  bool
	gaveUp bool
}

func (w *onlineWatch) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(busyTime, w.look)
}

func (w *onlineWatch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.ended:
	case w.busy():
		w.gaveUp = true
		w.stop()
	default:
		w.timer.Reset(busyTime)
	}
}

// end reports whether the request was stopped.
func (w *onlineWatch) end() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.timer.Stop()
	return w.gaveUp
}

// sendPieces sends the rows of a unit in requests of most rows each.
func (s *sender) sendPieces(ctx context.Context, u *unit, most int) {
	turn := s.a.slice()
	var list []*unit
	var running sync.WaitGroup
	for rows := range slices.Chunk(u.sent, most) {
		p := &unit{entries: u.entries, sent: rows, piece: true}
		list = append(list, p)
		if p.err = turn.next(ctx); p.err == nil {
			p.inputs, p.err = s.inputs(rows)
		}
		if p.err != nil {
			break
		}
		running.Go(func() { s.execute(ctx, p) })
	}
	turn.yield()
	running.Wait()
	for _, p := range list {
		u.answers = append(u.answers, p.answers...)
		if u.err == nil {
			u.err = p.err
		}
	}
}

// inputs returns the inputs of a request of rows that were in one before.
func (s *sender) inputs(rows []*dataset.Row) ([]infer.Named, error) {
	batch := s.d.binder.NewBatch(s.a.memory)
	for _, row := range rows {
		if _, err := batch.Add(row); err != nil {
			return nil, err
		}
	}
	return batch.Inputs()
}
