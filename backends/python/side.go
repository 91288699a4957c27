package python

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/recovery"
)

// maxJoined is how many processes that a model has forked may be connected at once.
const maxJoined = 1024

// side is a connection on which a process sends requests of its own: the worker, or a process that the model forked from it.
// What a forked process sends wrongly ends its connection; what the worker sends wrongly ends the worker.
type side struct {
	w      *worker
	link   *link
	own    bool            // the worker's
	ctx    context.Context //nolint:containedctx // the connection's life, for what is sent on it
	cancel context.CancelFunc
	open   openCalls
	meters meters
}

// newSide returns the side of a connection, which serve then serves.
func (w *worker) newSide(l *link, own bool) *side {
	s := &side{w: w, link: l, own: own}
	s.ctx, s.cancel = context.WithCancel(w.ctx)
	return s
}

// join takes a connection that a forked process has made.
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
		return l.close() // the process then ends
	}
	w.sides.Go(s.serve)
	return nil
}

// joined returns the link of a socket that a process has passed.
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

// leave forgets a forked process that is gone.
func (w *worker) leave(s *side) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.joined, s)
}

// hangUpSides ends every connection, once what has come on it is served.
func (w *worker) hangUpSides() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.side.link.hangUp()
	for s := range w.joined {
		s.link.hangUp()
	}
}

// serve serves what the process sends until it is gone.
func (s *side) serve() {
	var p packet
	defer p.free()
	defer s.cancel()
	err := s.link.receive(&p)
	for ; err == nil; err = s.link.receive(&p) {
		if err = s.take(&p); err != nil {
			break
		}
	}
	s.meters.close()
	if !s.own {
		s.w.leave(s)
		_ = s.link.close()
		return
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
		s.w.kill(err.Error())
	}
	s.w.cancel()
}

// take serves one packet. What may take its time gets a goroutine and a body of its own. Only a packet that cannot be
// understood gives an error.
func (s *side) take(p *packet) (err error) {
	defer s.recovers(&err)
	switch p.kind {
	case kindLog:
		s.w.logText(p.body)
		return nil
	case kindCancelled:
		s.tellCancelled(p)
		return nil
	case kindAbandon:
		s.open.abandon(p.id)
		return nil
	case kindCancel:
		s.open.ask(p.id)
		return nil
	case kindDone, kindFailed:
		s.w.ready.answer(p)
		return nil
	case kindJoin:
		if p.file == nil {
			return errPacket("a socket with it", 0)
		}
		f := p.file
		p.file = nil
		return s.w.join(f)
	}
	own := *p
	if p.mapped {
		p.mapped = false
	} else {
		own.body = append([]byte(nil), p.body...)
	}
	switch p.kind {
	case kindSend:
		s.send(&own)
		return nil
	case kindCall:
		s.open.add(s, own.id)
	}
	s.w.sides.Go(func() { s.answer(&own) })
	return nil
}

// recovers makes a panic the error of one packet.
func (s *side) recovers(err *error) {
	if x := recover(); x != nil {
		*err = recovery.Report(x, s.w.m.log, "serving python model '"+s.w.m.sig.Model+"'")
	}
}

// handle does what a packet is for.
func (s *side) handle(p *packet) (err error) {
	defer s.recovers(&err)
	switch p.kind {
	case kindCall:
		return s.infer(p)
	case kindSend:
		return s.w.deliver(p)
	case kindMetric:
		return s.meter(p)
	case kindModel:
		return s.control(p)
	default:
		return status.Errorf(status.Unsupported, "unexpected packet of kind %d", p.kind)
	}
}

// answer does what a packet is for, and replies where that is asked for.
func (s *side) answer(p *packet) {
	err := s.handle(p)
	if p.flags&flagAsks != 0 && !errors.Is(err, errReplied) {
		s.reply(p.id, flagFinal, err)
	}
	p.free()
}

// errReplied says that a question has its reply already.
var errReplied = errors.New("replied")

// reply answers a question with success or an error.
func (s *side) reply(id uint32, flags uint16, err error) {
	_ = s.link.send(kindReply, flags, id, appendError(newBody(nil), err)) // a process that is gone needs none
}

// appendError appends an answer without outputs.
func appendError(b []byte, err error) []byte {
	if err == nil {
		return append(b, stateAnswered, 0, 0, 0, 0, 0, 0, 0)
	}
	b = append(b, stateError, byte(status.CodeOf(err)), 0, 0, 0, 0, 0, 0)
	at := len(b)
	b = appendText(b, status.Text(err))
	b = append(b, 0, 0)
	for (len(b)-at)%8 != 0 {
		b = append(b, 0)
	}
	binary.LittleEndian.PutUint32(b[at-4:], uint32(len(b)-at))
	return b
}

// logText logs what a model has to say.
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
