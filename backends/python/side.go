package python

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
)

// maxJoined is the most connected processes that a model has forked.
const maxJoined = 1024

// side is the side channel of a worker, or of a process that the model forked from it: packets that the process sends on its own
// initiative. A malformed packet ends the connection of a forked process, and kills a worker.
type side struct {
	w       *worker
	link    *link
	own     bool            // the side channel of the worker itself
	ctx     context.Context //nolint:containedctx // cancelled when the connection ends
	cancel  context.CancelFunc
	open    sync.Map // *openCall by id
	metrics customMetrics
}

// newSide returns a side channel. The caller must call serve.
func (w *worker) newSide(l *link, own bool) *side {
	s := &side{w: w, link: l, own: own, metrics: customMetrics{families: map[int64]*metricFamily{}}}
	s.ctx, s.cancel = context.WithCancel(w.ctx)
	return s
}

// join handles JOIN: a new side channel of a forked process.
func (w *worker) join(f *os.File) error {
	l, err := joined(f)
	if err != nil {
		return err
	}
	s := w.newSide(l, false)
	w.mu.Lock()
	full := len(w.joined) >= maxJoined || w.ctx.Err() != nil
	if !full {
		w.joined[s] = struct{}{}
	}
	w.mu.Unlock()
	if full {
		s.cancel()
		return l.close() // the process then exits
	}
	w.sides.Go(s.serve)
	return nil
}

// joined returns a link over a socket that a process has passed.
func joined(f *os.File) (*link, error) {
	raw, err := f.SyscallConn()
	kind := 0
	if err == nil {
		err = raw.Control(func(fd uintptr) { kind, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE) })
	}
	if err != nil || kind != unix.SOCK_SEQPACKET {
		return nil, errors.Join(errPacket("a socket with it", 0), f.Close())
	}
	return openLink(f)
}

// hangUpSides shuts down all side channels. Packets that have arrived are still handled.
func (w *worker) hangUpSides() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.side.link.hangUp()
	for s := range w.joined {
		s.link.hangUp()
	}
}

// serve handles packets until the connection ends.
func (s *side) serve() {
	var p packet
	defer p.free()
	defer s.cancel()
	err := s.link.receive(&p)
	for ; err == nil; err = s.link.receive(&p) {
		if err = s.handlePacket(&p); err != nil {
			break
		}
	}
	s.metrics.close()
	if !s.own {
		s.w.mu.Lock()
		delete(s.w.joined, s)
		s.w.mu.Unlock()
		_ = s.link.close()
		return
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
		s.w.kill(err.Error())
	}
	s.w.cancel()
}

// handlePacket handles one packet. Packets whose handling may block are copied and handled in a new goroutine. Only a malformed
// packet is an error.
func (s *side) handlePacket(p *packet) (err error) {
	defer s.recovers(&err)
	switch p.kind {
	case kindLog:
		s.w.logText(p.body)
	case kindCancelled:
		s.replyCancelled(p)
	case kindAbandon:
		s.abandon(p.id)
	case kindCancel:
		if c := s.findCall(p.id); c != nil {
			c.cancelled.Store(true) // responses are still delivered
		}
	case kindDone, kindFailed:
		s.w.ready.complete(p)
	case kindGPUGive:
		s.w.gpu.giveBack(p.id)
	case kindGPUDropped:
		s.w.gpu.dropped(p.id)
	case kindJoin:
		if p.file == nil {
			return errPacket("a socket with it", 0)
		}
		f := p.file
		p.file = nil
		return s.w.join(f)
	default:
		s.handleCopy(p)
	}
	return nil
}

// handleCopy handles a packet whose handling may block.
func (s *side) handleCopy(p *packet) {
	own := *p
	if p.mapped {
		p.mapped = false
	} else {
		own.body = append([]byte(nil), p.body...)
	}
	if p.kind == kindSend {
		s.send(&own)
		return
	}
	if p.kind == kindCall {
		s.openCall(own.id)
	}
	s.w.sides.Go(func() { s.execute(&own) })
}

// recovers turns a panic into the error of one packet.
func (s *side) recovers(err *error) {
	if x := recover(); x != nil {
		*err = recovery.Report(x, s.w.m.log, "serving python model '"+s.w.m.sig.Model+"'")
	}
}

// dispatch executes a packet by kind.
func (s *side) dispatch(p *packet) (err error) {
	defer s.recovers(&err)
	switch p.kind {
	case kindCall:
		return s.infer(p)
	case kindSend:
		return s.w.deliver(p)
	case kindGPUBorrow:
		return s.borrow(p)
	case kindMetric:
		return s.handleMetric(p)
	case kindModel:
		return s.handleModel(p)
	default:
		return status.Errorf(status.Unsupported, "unexpected packet of kind %d", p.kind)
	}
}

// execute executes a packet, and sends the reply if it needs one.
func (s *side) execute(p *packet) {
	err := s.dispatch(p)
	if p.flags&flagNeedsReply != 0 && !errors.Is(err, errReplied) {
		s.reply(p.id, flagFinal, err)
	}
	p.free()
}

// errReplied means that the reply was sent already.
var errReplied = errors.New("replied")

// reply sends a reply without outputs: success or an error.
func (s *side) reply(id uint32, flags uint16, err error) {
	_ = s.link.send(kindReply, flags, id, appendError(newBody(nil), err)) // the process may have exited
}

// appendError encodes a response without outputs.
func appendError(b []byte, err error) []byte {
	if err == nil {
		return append(b, stateOK, 0, 0, 0, 0, 0, 0, 0)
	}
	b = append(b, stateError, byte(status.CodeOf(err)), 0, 0, 0, 0, 0, 0)
	at := len(b)
	b = appendText(b, status.Text(err))
	b = appendParams(b, detailsOf(err))
	b = padded(b, at)
	binary.LittleEndian.PutUint32(b[at-4:], uint32(len(b)-at))
	return b
}

// logText handles LOG.
func (w *worker) logText(body []byte) {
	if len(body) == 0 {
		return
	}
	text := strings.ToValidUTF8(string(body[1:]), "\uFFFD")
	switch level := int(body[0]); {
	case level == logFailure:
		w.m.failed(w.name(), text)
	case level < len(logLevels):
		w.m.log.LogAttrs(w.ctx, logLevels[level], "a python model logged", slog.String("text", text))
	}
}

// readyTime is the most time that is_ready may take, as in Triton. After it the model is not ready.
const readyTime = 5 * time.Second

// readiness calls is_ready of a model. Concurrent callers share one call.
type readiness struct {
	mu      sync.Mutex
	current *readyCall // guarded by mu
	seq     uint32     // guarded by mu
}

// readyCall is one call of is_ready.
type readyCall struct {
	id   uint32
	done chan struct{} // closed when err is set
	err  error
}

// isReady returns the result of is_ready, while the model may execute. A call that exceeds readyTime continues, and the next
// caller gets its result.
func (w *worker) isReady() error {
	if !w.about.Ready {
		return nil
	}
	c, err := w.ready.call(w.side.link)
	if err != nil {
		return w.gone(err)
	}
	select {
	case <-c.done:
		return c.err
	case <-w.ctx.Done():
		return w.gone(io.EOF)
	case <-time.After(readyTime):
		return status.Reasonf(status.ModelNotReady, "Timed out waiting for user-defined is_ready() response")
	}
}

// call returns the pending call, or starts one.
func (r *readiness) call(l *link) (_ *readyCall, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current == nil {
		r.seq++
		if err = l.send(kindReady, 0, r.seq, newBody(nil)); err == nil {
			r.current = &readyCall{id: r.seq, done: make(chan struct{})}
		}
	}
	return r.current, err
}

// complete handles the worker's result of READY.
func (r *readiness) complete(p *packet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.current
	if c == nil || c.id != p.id {
		return
	}
	r.current = nil
	switch {
	case p.kind == kindFailed:
		c.err = failure(p)
	case p.flags&flagTrue == 0:
		c.err = status.Reasonf(status.ModelNotReady, "is_ready of the model returned False")
	}
	close(c.done)
}
