package durable

import (
	"context"
	"errors"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/dataset"
)

// The bounds of a sender.
const (
	maxUnits    = 64   // of a chunk that are executed or not yet written
	unitEntries = 1024 // rows of a unit without a request
	// A request that is refused because the model is busy is sent again before the chunk's attempt fails.
	sendTries = 6
	sendPause = 50 * time.Millisecond
)

// entry is a row of a unit: it is sent, has an error, or has an earlier result.
type entry struct {
	row   *dataset.Row
	err   error
	cells []dataset.Cell // of an earlier result
}

// answer is a response to a request of some rows.
type answer struct {
	resp *infer.Response
	rows []*dataset.Row
}

// unit is consecutive rows that one request has, with those between them that are not sent.
type unit struct {
	entries []entry
	inputs  []infer.Named // of the request; moved to it
	sent    []*dataset.Row
	answers []answer // in the order of the rows
	err     error    // ends the attempt
	piece   bool     // part of another unit
	done    chan struct{}
}

func (u *unit) release() {
	for i := range u.answers {
		u.answers[i].resp.Release()
	}
	for i := range u.inputs {
		u.inputs[i].Tensor.Release()
	}
	u.answers, u.inputs = nil, nil
}

// sender makes units of rows and sends their requests. Requests of several chunks share the gate of their model.
type sender struct {
	a    *activities
	d    *data
	gate *gate
	idle chan *unit // to workers without a unit; closed behind the last unit
}

// send puts the units of rows into the channel, in the order of the rows, and closes it. Requests are executed meanwhile:
// a unit's done is closed when it is. The receiver must release every unit after that.
func (s *sender) send(ctx context.Context, rows func(yield func(*dataset.Row, error) bool), reused map[int64][]dataset.Cell, units chan<- *unit) {
	defer close(units)
	s.idle = make(chan *unit)
	defer close(s.idle)
	turn := s.a.slice()
	defer turn.yield()
	batch := s.d.binder.NewBatch(s.a.memory)
	u := &unit{done: make(chan struct{})}
	flush := func() bool {
		turn.yield()
		full := u
		u = &unit{done: make(chan struct{})}
		return s.dispatch(ctx, full, batch, units)
	}
	for row, err := range rows {
		if err == nil {
			err = turn.next(ctx)
		}
		if err != nil {
			u.err = err
			break
		}
		if cells := reused[row.Number]; cells != nil {
			u.entries = append(u.entries, entry{row: row, cells: cells})
		} else {
			ok, err := batch.Add(row)
			if err == nil && !ok {
				if !flush() {
					return
				}
				_, err = batch.Add(row) // it always fits
			}
			u.entries = append(u.entries, entry{row: row, err: err})
			if err == nil {
				u.sent = append(u.sent, row)
			}
		}
		if len(u.entries) >= unitEntries && len(u.sent) == 0 || batch.Rows() >= max(s.d.desc.MaxBatch, 1) {
			if !flush() {
				return
			}
		}
	}
	flush()
}

// dispatch executes a unit, and reports whether others may follow.
func (s *sender) dispatch(ctx context.Context, u *unit, batch *dataset.Batch, units chan<- *unit) bool {
	if u.err == nil && len(u.sent) > 0 {
		var inputs []infer.Named
		if inputs, u.err = batch.Inputs(); u.err == nil {
			u.inputs = append(u.inputs, inputs...)
			u.err = s.gate.acquire(ctx)
		}
	}
	if u.err != nil || len(u.sent) == 0 {
		u.releaseInputs()
		close(u.done)
		units <- u
		return u.err == nil
	}
	select {
	case s.idle <- u:
	default:
		go s.work(ctx, u)
	}
	units <- u
	return true
}

// work executes units, the first of which is given. Its goroutine has grown its stack once for all of them.
func (s *sender) work(ctx context.Context, u *unit) {
	for ; u != nil; u = <-s.idle {
		s.execute(ctx, u)
		s.gate.release(len(u.sent))
		close(u.done)
	}
}

func (u *unit) releaseInputs() {
	for i := range u.inputs {
		u.inputs[i].Tensor.Release()
	}
	u.inputs = nil
}

// execute sends the request of a unit. One of several rows that fails because of a row is sent again row by row.
func (s *sender) execute(ctx context.Context, u *unit) {
	resp, err := s.whole(ctx, u)
	u.inputs = nil
	switch {
	case errors.Is(err, errBusy):
		s.beside(ctx, u)
		return
	case err == nil:
		u.answers = append(u.answers, answer{resp, u.sent})
		return
	case !ofRow(err):
		u.err = err
		return
	case len(u.sent) == 1:
		u.fail(u.sent[0], err)
		return
	}
	for i, row := range u.sent {
		resp, err := s.again(ctx, u.sent[i:i+1])
		switch {
		case err == nil:
			u.answers = append(u.answers, answer{resp, u.sent[i : i+1]})
		case ofRow(err):
			u.fail(row, err)
		default:
			u.err = err
			return
		}
	}
}

// fail records the error of a row.
func (u *unit) fail(row *dataset.Row, err error) {
	for i := range u.entries {
		if u.entries[i].row == row {
			u.entries[i].err = err
		}
	}
}

// again makes a request of some rows.
func (s *sender) again(ctx context.Context, rows []*dataset.Row) (*infer.Response, error) {
	inputs, err := s.inputs(rows)
	if err != nil {
		return nil, err
	}
	return s.request(ctx, rows, inputs)
}

// request sends a request, whose inputs it owns. One that a busy model refuses is made and sent again, some times.
func (s *sender) request(ctx context.Context, rows []*dataset.Row, inputs []infer.Named) (*infer.Response, error) {
	for try := 0; ; try++ {
		req := infer.NewRequest()
		req.Model, req.Version = s.d.desc.Model, s.d.desc.Version
		req.Inputs = append(req.Inputs, inputs...)
		req.Outputs = append(req.Outputs, s.d.renderer.Outputs()...)
		s.a.setPriority(req, s.d.desc)
		call := infer.NewCall()
		s.a.s.Inferer.Submit(ctx, req, call)
		resp, err := call.Wait()
		if err == nil && resp == nil {
			err = status.Errorf(status.Internal, "model '%s' sent no response", s.d.desc.Model)
		}
		if err == nil || ofRow(err) || ctx.Err() != nil || try+1 >= sendTries {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(max(sendPause<<try, min(status.RetryAfter(err), time.Second))):
		}
		if inputs, err = s.inputs(rows); err != nil {
			return nil, err
		}
	}
}
