package rpc

import (
	"encoding/binary"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
)

const (
	// maxOut is the number of bytes that wait to be written above which messages stay with their calls.
	maxOut = 48 << 10
	// maxAnswers is the number of such bytes above which frames of the client are not handled: statuses, and answers to its frames.
	maxAnswers = 2 * maxOut
	// maxKeptOut is the memory that a connection keeps for further writes.
	maxKeptOut = 64 << 10
	// maxQueued is the number of bytes of a call that wait for its client above which SendMsg waits.
	maxQueued = 64 << 10
)

// output is what a connection sends. Any goroutine appends frames; flush has one of them write. All is guarded by the connection's mu.
type output struct {
	out, spare  []byte // frames to write, and the memory of the last ones
	writing     bool   // a goroutine writes
	window      int64  // bytes that the client accepts on the connection
	initial     int64  // that of a new stream
	maxFrame    int
	maxHeaders  int64 // of the client, if limited
	limited     bool
	noTable     bool // the next header block must say that we use no table
	saidNoTable bool
	sent        bool      // messages or headers since the last ping of the client
	paused      []*stream // that have bytes to send and a window; in turns
	leaving     bool      // the connection closes when everything is written
}

// outgoing is a message that is sent.
type outgoing struct {
	prefix [prefixSize]byte
	data   mem.BufferSlice
	at     int // bytes of the prefix and of data[0] that are sent
	begun  bool
}

// left returns how many bytes are left.
func (o *outgoing) left() int {
	if !o.begun {
		return prefixSize - o.at + o.data.Len()
	}
	return o.data.Len() - o.at
}

// append appends the next n bytes to b, and frees the buffers that are sent.
func (o *outgoing) append(b []byte, n int) []byte {
	if !o.begun {
		m := min(n, prefixSize-o.at)
		b = append(b, o.prefix[o.at:o.at+m]...)
		n -= m
		if o.at += m; o.at == prefixSize {
			o.begun, o.at = true, 0
		}
	}
	for n > 0 {
		p := o.data[0].ReadOnlyData()[o.at:]
		m := min(n, len(p))
		b = append(b, p[:m]...)
		n -= m
		if o.at += m; m == len(p) {
			o.data[0].Free() // the list may be the caller's
			o.data, o.at = o.data[1:], 0
		}
	}
	return b
}

// queue sends a message. The caller keeps its reference. A message that is not the last one is written at once.
func (s *stream) queue(o *outgoing, last bool) error {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	for s.queued >= maxQueued && !s.over() {
		s.writes.wait(&c.mu, s.ctx.Done())
	}
	if s.done || s.queued >= maxQueued {
		return s.endError()
	}
	if !s.headerSent {
		if err := c.sendHeader(s); err != nil {
			return err
		}
	}
	o.data.Ref()
	n := o.left()
	if len(s.out) == 0 && int64(n) <= min(s.window, c.window) && len(c.out)+n <= maxOut {
		c.appendData(s, o, n)
		o.data.Free() // empty buffers
	} else {
		o.data = append(mem.BufferSlice(nil), o.data...) // the caller frees its list
		s.out = append(s.out, *o)
		s.queued += n
		c.unblock(s)
	}
	if !last {
		c.flush()
	}
	return nil
}

// appendData appends n bytes of a message, which the windows allow.
func (c *conn) appendData(s *stream, o *outgoing, n int) {
	s.window -= int64(n)
	c.window -= int64(n)
	c.sent = true
	for n > 0 {
		m := min(n, c.maxFrame)
		c.out = appendHead(c.out, m, http2.FrameData, 0, s.id)
		c.out = o.append(c.out, m)
		n -= m
	}
}

// unblock adds a stream to those that have something to send, if its window allows.
func (c *conn) unblock(s *stream) {
	if !s.paused && len(s.out) > 0 && s.window > 0 {
		s.paused = true
		c.paused = append(c.paused, s)
	}
}

// pump appends messages that wait, in turns of a frame, while the windows and the bytes to write allow.
func (c *conn) pump() {
	for len(c.paused) > 0 && c.window > 0 && len(c.out) < maxOut {
		s := c.paused[0]
		c.paused[0] = nil
		c.paused = c.paused[1:]
		s.paused = false
		if len(s.out) == 0 || s.window <= 0 {
			continue // it was reset, or the window was reduced
		}
		o := &s.out[0]
		n := int(min(int64(o.left()), int64(c.maxFrame), s.window, c.window))
		c.appendData(s, o, n)
		s.queued -= n
		if o.left() == 0 {
			o.data.Free()
			s.out[0] = outgoing{}
			if s.out = s.out[1:]; len(s.out) == 0 {
				s.out = nil
			}
		}
		if s.queued < maxQueued {
			s.writes.signal()
		}
		if len(s.out) > 0 {
			c.unblock(s)
		} else if s.done {
			c.out = append(c.out, s.tail...)
			s.tail = nil
			c.remove(s)
		}
	}
	if len(c.paused) == 0 {
		c.paused = nil
	}
}

// flush writes what is appended, unless another goroutine does, which then writes it too. mu must be held; flush releases it while it writes.
func (c *conn) flush() {
	if c.writing {
		return
	}
	c.writing = true
	for !c.closed {
		c.pump()
		if len(c.out) == 0 {
			break
		}
		b := c.out
		c.out, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		_, err := c.nc.Write(b)
		c.mu.Lock()
		if cap(b) <= maxKeptOut {
			c.spare = b[:0]
		}
		c.room.Broadcast()
		if err != nil {
			c.closeLocked()
		}
	}
	c.writing = false
	c.depart()
}

// resize applies a new window of the client's streams.
func (c *conn) resize(v int64) error {
	more := v - c.initial
	c.initial = v
	for _, s := range c.streams {
		if s.window += more; s.window > maxWindow {
			return failure(http2.ErrCodeFlowControl, "SETTINGS_INITIAL_WINDOW_SIZE makes the window of stream %d larger than %d", s.id, maxWindow)
		}
		c.unblock(s)
	}
	return nil
}

// appendHead appends the head of a frame.
func appendHead(b []byte, n int, kind http2.FrameType, flags http2.Flags, id uint32) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags)) //nolint:gosec // the bytes of n
	return binary.BigEndian.AppendUint32(b, id)
}

func (c *conn) appendSettings(list []http2.Setting) {
	c.out = appendHead(c.out, 6*len(list), http2.FrameSettings, 0, 0)
	for _, s := range list {
		c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(c.out, uint16(s.ID)), s.Val)
	}
}

func (c *conn) appendWindowUpdate(id, more uint32) {
	c.out = binary.BigEndian.AppendUint32(appendHead(c.out, 4, http2.FrameWindowUpdate, 0, id), more)
}

func (c *conn) appendReset(id uint32, code http2.ErrCode) {
	c.out = appendReset(c.out, id, code)
}

func appendReset(b []byte, id uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(appendHead(b, 4, http2.FrameRSTStream, 0, id), uint32(code))
}

// resetUnknown resets a stream that may not be open.
func (c *conn) resetUnknown(id uint32, code http2.ErrCode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		c.resetLocked(s, code)
	} else {
		c.appendReset(id, code)
	}
}

func (c *conn) appendPing(ack bool, data []byte) {
	var flags http2.Flags
	if ack {
		flags = http2.FlagPingAck
	}
	c.out = append(appendHead(c.out, len(data), http2.FramePing, flags, 0), data...)
}

func (c *conn) appendGoAway(last uint32, code http2.ErrCode, text string) {
	c.out = appendHead(c.out, 8+len(text), http2.FrameGoAway, 0, 0)
	c.out = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(c.out, last), uint32(code))
	c.out = append(c.out, text...)
}
