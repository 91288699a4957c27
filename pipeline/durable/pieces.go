package durable

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/infer"
)

const (
	// pieces is how many requests have the rows of a unit beside online requests. One request of all rows finds no free places in the
	// batches of online requests.
	pieces = 16
	// busyTime is how long a request of a whole unit may execute or wait before it is made again in pieces, if online requests came.
	busyTime = 250 * time.Millisecond
)

// errBusy says that a unit must be sent in pieces.
var errBusy = errors.New("online requests are served")

// whole sends a unit as one request. Beside online requests it fails with errBusy; the inputs are released.
func (s *sender) whole(ctx context.Context, u *unit) (*infer.Response, error) {
	busy := s.a.s.Busy
	if busy == nil || u.piece || len(u.sent) == 1 {
		return s.request(ctx, u.sent, u.inputs)
	}
	if busy() {
		u.releaseInputs()
		return nil, errBusy
	}
	limited, stop := context.WithCancel(ctx)
	defer stop()
	w := &onlineWatch{busy: busy, stop: stop}
	w.begin()
	resp, err := s.request(limited, u.sent, u.inputs)
	if gaveUp := w.end(); err != nil && gaveUp && ctx.Err() == nil {
		err = errBusy
	}
	return resp, err
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

// sendPieces sends the rows of a unit in several requests at a time.
func (s *sender) sendPieces(ctx context.Context, u *unit) {
	var list []*unit
	var running sync.WaitGroup
	for rows := range slices.Chunk(u.sent, max(len(u.sent)/pieces, 1)) {
		p := &unit{entries: u.entries, sent: rows, piece: true}
		list = append(list, p)
		running.Go(func() { s.sendPiece(ctx, p) })
	}
	running.Wait()
	for _, p := range list {
		u.answers = append(u.answers, p.answers...)
		if u.err == nil {
			u.err = p.err
		}
	}
}

func (s *sender) sendPiece(ctx context.Context, p *unit) {
	batch := s.d.binder.NewBatch(s.a.memory)
	for _, row := range p.sent {
		if _, p.err = batch.Add(row); p.err != nil {
			return
		}
	}
	inputs, err := batch.Inputs()
	if p.err = err; err == nil {
		p.inputs = inputs
		s.execute(ctx, p)
	}
}
