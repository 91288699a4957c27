package exec

import (
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
)

// Input streams. The requests of one sequence are the pieces of a stream for windows of the ensemble's inputs: a window may have positions of
// several requests, and starts a sub-run of the request that completes it. The client sends pieces while the responses to earlier ones come.
//
// For example, with windows of 16,000 samples, a client that sends 5,000 samples in each request has no response to three of them, and one to
// the fourth.

const (
	// inputIdle is how long an input stream is kept after its last request.
	inputIdle = time.Minute
	// maxInputStreams bounds the input streams of an operation, and maxInputBytes what they keep for windows that are not complete.
	maxInputStreams = 16384
	maxInputBytes   = 256 << 20
)

// inputStreams are those of one operation, by sequence.
type inputStreams struct {
	mu    sync.Mutex
	live  map[infer.Sequence]*inputStream // by id and name, without the flags
	swept int64

	held atomic.Int64 // bytes
	most int64
}

func newInputStreams() *inputStreams {
	return &inputStreams{live: map[infer.Sequence]*inputStream{}, most: maxInputBytes}
}

// inputStream is a stream whose pieces are requests.
type inputStream struct {
	used    int64 // guarded by the mu of inputStreams
	tickets int32 // given to requests, guarded by the mu of inputStreams

	mu      sync.Mutex
	busy    bool            // a goroutine takes pieces; it alone uses op
	next    int32           // the ticket that follows
	waiting map[int32]piece // by ticket
	op      *operator
}

// piece is what one request adds. run is nil for a request that ended before.
type piece struct {
	run  *run
	item []tensor.Tensor
	end  bool
}

// ticket is the place of a request in an input stream.
type ticket struct {
	of     *inputStream
	number int32
	fed    bool
}

// enterStreams takes the request's place in the input streams of its sequence.
func (r *run) enterStreams() error {
	q := &r.req.Sequence
	if r.sub == nil || q.ID == 0 && q.Name == "" {
		return nil
	}
	for i, b := range r.x.inner {
		if b.inputs == nil {
			continue
		}
		t, err := b.enter(q, r.x.plan.Signature.Model)
		if err != nil {
			return r.prefixed(err)
		}
		r.sub.streams[i].ticket = t
	}
	return nil
}

// enter returns the next place in the stream of a sequence, which begins with the flag Start.
func (b *begun) enter(q *infer.Sequence, model string) (t ticket, err error) {
	in, now := b.inputs, telemetry.Now()
	key := infer.Sequence{ID: q.ID, Name: q.Name}
	in.mu.Lock()
	left := in.sweep(now)
	s := in.live[key]
	if s != nil && q.Start {
		left = append(left, in.leave(key))
		s = nil
	}
	switch {
	case s == nil && !q.Start:
		err = status.Errorf(status.InvalidArg,
			"inference request for sequence %s to model '%s' must specify the START flag on the first request of the sequence", sequenceText(q), model)
	case s == nil && len(in.live) >= maxInputStreams:
		err = status.Reasonf(status.LimitReached, "model '%s' has %d input streams, the most that it takes; send the END flag with the last request of each", model, maxInputStreams)
	case s == nil:
		s = &inputStream{waiting: map[int32]piece{}, op: newOperator(b)}
		s.op.window.held = &in.held
		in.live[key] = s
	}
	if err == nil {
		t = ticket{of: s, number: s.tickets}
		s.tickets++
		s.used = now
		if q.End {
			delete(in.live, key)
		}
	}
	in.mu.Unlock()
	b.end(left)
	return t, err
}

func sequenceText(q *infer.Sequence) string {
	if q.Name != "" {
		return q.Name
	}
	return strconv.FormatUint(q.ID, 10)
}

// leave forgets a stream, which ends behind the requests that it has; mu is held. The caller passes it to end.
func (in *inputStreams) leave(key infer.Sequence) *inputStream {
	s := in.live[key]
	delete(in.live, key)
	last := s.tickets
	s.tickets++
	s.add(last, piece{end: true})
	return s
}

// sweep forgets streams without requests; mu is held.
func (in *inputStreams) sweep(now int64) (left []*inputStream) {
	if now-in.swept < int64(time.Second) {
		return nil
	}
	in.swept = now
	for key, s := range in.live {
		if now-s.used > int64(inputIdle) && s.idle(s.tickets) {
			left = append(left, in.leave(key))
		}
	}
	return left
}

// end takes the pieces of streams that were forgotten.
func (b *begun) end(list []*inputStream) {
	if len(list) == 0 {
		return
	}
	loop := scheduler.NewRunLoop(b.x.workers)
	for _, s := range list {
		b.drain(s, loop)
	}
	loop.Dispatch()
	loop.Finish()
}

// endInputs ends the input streams of an executor without requests.
func (x *Executor) endInputs() {
	for _, b := range x.inner {
		if b.inputs == nil {
			continue
		}
		var left []*inputStream
		b.inputs.mu.Lock()
		for key := range b.inputs.live {
			left = append(left, b.inputs.leave(key))
		}
		b.inputs.mu.Unlock()
		b.end(left)
	}
}

// idle reports whether all of n pieces were taken.
func (s *inputStream) idle(n int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next == n && !s.busy
}

func (s *inputStream) add(number int32, p piece) {
	s.mu.Lock()
	s.waiting[number] = p
	s.mu.Unlock()
}

// feedPiece adds the tensors of a request to its input stream. The piece keeps the run active until it is taken.
func (r *run) feedPiece(at int, item []tensor.Tensor, loop *scheduler.RunLoop) {
	t, in := &r.sub.streams[at].ticket, r.x.inner[at].inputs
	if held, size := in.held.Load(), bytesOf(item); held > 0 && held+size > in.most {
		tensor.ReleaseAll(item)
		r.failOf(r.x.inner[at].x.source, status.Reasonf(status.BytesInFlight, "the input streams of model '%s' keep %d bytes for windows that are not complete, and have no room for %d more; send the request again",
			r.x.plan.Signature.Model, held, size))
		return // its place is given up when the request ends
	}
	t.fed = true
	r.active.Add(1)
	t.of.add(t.number, piece{run: r, item: item, end: r.req.Sequence.End})
	r.x.inner[at].drain(t.of, loop)
}

// leaveStreams gives up the places of a request that ends without having added its pieces.
func (r *run) leaveStreams() {
	if r.sub == nil {
		return
	}
	for i := range r.sub.streams {
		t := &r.sub.streams[i].ticket
		if t.of == nil {
			continue
		}
		if !t.fed {
			t.of.add(t.number, piece{end: r.req.Sequence.End})
			r.x.inner[i].end([]*inputStream{t.of})
		}
		*t = ticket{}
	}
}

// drain takes the pieces that are next in order. One goroutine at a time does.
func (b *begun) drain(s *inputStream, loop *scheduler.RunLoop) {
	s.mu.Lock()
	if s.busy {
		s.mu.Unlock()
		return
	}
	s.busy = true
	for p, there := s.waiting[s.next]; there; p, there = s.waiting[s.next] {
		delete(s.waiting, s.next)
		s.next++
		s.mu.Unlock()
		if p.run != nil {
			b.takePiece(s.op, p, loop)
		}
		if p.end {
			s.op.reset()
		}
		s.mu.Lock()
	}
	s.busy = false
	s.mu.Unlock()
}

// takePiece adds a piece and starts the sub-runs of the windows that it completes.
func (b *begun) takePiece(o *operator, p piece, loop *scheduler.RunLoop) {
	r, side := p.run, &o.sides[0]
	side.early[side.next] = p.item
	if side.end = -1; p.end {
		side.end = side.next + 1
	}
	for r.failure.Load() == nil {
		out, err := b.takeWindow(o, r.x.alloc)
		if err != nil {
			r.failOf(b.x.source, err)
			break
		}
		if out == nil {
			break
		}
		c := r.nextSubRun(b.at, out, nil)
		c.holders.Store(1)
		c.start(loop)
	}
	if item, there := side.early[side.next]; there { // the request has failed
		tensor.ReleaseAll(item)
		delete(side.early, side.next)
	}
	r.streamEnded(b.at, r.origin(), loop)
	r.taskDone(0, loop)
}
