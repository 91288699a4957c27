package rpc

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const (
	frameHead = 9
	// minMaxFrame is the largest frame that either side may send by default. We accept and send no larger ones.
	minMaxFrame = 16 << 10
	maxWindow   = 1<<31 - 1
)

// dataFrame is a DATA frame of which a part has arrived.
type dataFrame struct {
	s    *stream // nil if the bytes are discarded
	left int
	last bool // the frame ends the call's messages
}

// headerBlock collects the fragments of HEADERS and CONTINUATION.
type headerBlock struct {
	id    uint32 // 0 if no block is open
	last  bool   // END_STREAM
	bytes []byte
	parts int
}

// maxParts bounds the frames of a header block.
const maxParts = 64

// frames handles the frames that have arrived. It reports whether it left some, because the connection is full.
func (c *conn) frames() (left bool, err error) {
	c.need = 0
	for {
		if c.data.left > 0 {
			if c.r == c.w {
				return false, nil
			}
			c.readData()
			continue
		}
		if c.w-c.r < frameHead {
			return false, nil
		}
		head := c.buf[c.r:c.w]
		n := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		kind, flags, id := http2.FrameType(head[3]), http2.Flags(head[4]), binary.BigEndian.Uint32(head[5:])&maxWindow
		if n > minMaxFrame {
			return false, failure(http2.ErrCodeFrameSize, "a frame has %d bytes, at most %d are allowed", n, minMaxFrame)
		}
		if c.block.id != 0 && (kind != http2.FrameContinuation || id != c.block.id) {
			return false, failure(http2.ErrCodeProtocol, "expected CONTINUATION of stream %d, found %v", c.block.id, kind)
		}
		if kind == http2.FrameData && !flags.Has(http2.FlagDataPadded) {
			c.r += frameHead
			if err := c.beginData(id, n, n, flags.Has(http2.FlagDataEndStream)); err != nil {
				return false, err
			}
			continue
		}
		if len(head) < frameHead+n {
			c.need = frameHead + n
			return false, nil
		}
		c.r += frameHead + n
		if err := c.frame(kind, flags, id, head[frameHead:frameHead+n]); err != nil {
			return false, err
		}
		if c.full() {
			return true, nil
		}
	}
}

// full reports whether so much is to be written that no more frames of the client are handled.
func (c *conn) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out) > maxAnswers
}

// awaitRoom waits while it is full and another goroutine writes: a client that sends pings and settings and reads nothing must not fill the
// memory.
func (c *conn) awaitRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.out) > maxAnswers && c.writing && !c.closed {
		c.room.Wait()
	}
}

// maxIdleFrames is how many frames that serve no call a client may send in a row: settings, priorities, unknown and empty ones. gRPC clients send a
// few on a connection.
const maxIdleFrames = 10_000

// idleFrame counts a frame that serves no call.
func (c *conn) idleFrame() error {
	if c.idle++; c.idle > maxIdleFrames {
		return failure(http2.ErrCodeEnhanceYourCalm, "%d frames in a row serve no call", c.idle)
	}
	return nil
}

// frame handles a frame that is complete.
func (c *conn) frame(kind http2.FrameType, flags http2.Flags, id uint32, p []byte) error {
	switch kind {
	case http2.FrameData:
		data, err := unpad(true, p)
		if err != nil {
			return err
		}
		if err := c.beginData(id, len(p), len(data), flags.Has(http2.FlagDataEndStream)); err != nil {
			return err
		}
		c.takeData(data)
		return nil
	case http2.FrameHeaders:
		return c.headersFrame(flags, id, p)
	case http2.FrameContinuation:
		if c.block.id == 0 {
			return failure(http2.ErrCodeProtocol, "CONTINUATION without HEADERS")
		}
		return c.addBlock(p, flags.Has(http2.FlagContinuationEndHeaders))
	case http2.FrameRSTStream:
		return c.resetFrame(id, p)
	case http2.FrameSettings:
		return c.settingsFrame(flags, id, p)
	case http2.FramePing:
		return c.pingFrame(flags, id, p)
	case http2.FrameWindowUpdate:
		return c.windowFrame(id, p)
	case http2.FramePushPromise:
		return failure(http2.ErrCodeProtocol, "a client must not send PUSH_PROMISE")
	case http2.FramePriority:
		if id == 0 {
			return failure(http2.ErrCodeProtocol, "PRIORITY of stream 0")
		}
		if len(p) != 5 {
			c.resetUnknown(id, http2.ErrCodeFrameSize)
		}
	case http2.FrameGoAway:
		if id != 0 {
			return failure(http2.ErrCodeProtocol, "GOAWAY of stream %d", id)
		}
	case http2.FramePriorityUpdate:
	}
	return c.idleFrame() // unknown frames are ignored, as HTTP/2 has it
}

// unpad returns a payload without its padding.
func unpad(padded bool, p []byte) ([]byte, error) {
	if !padded {
		return p, nil
	}
	if len(p) == 0 || int(p[0]) >= len(p) {
		return nil, failure(http2.ErrCodeProtocol, "the padding is longer than the frame")
	}
	return p[1 : len(p)-int(p[0])], nil
}

// beginData begins a DATA frame of n bytes, of which size are not padding.
func (c *conn) beginData(id uint32, n, size int, last bool) error {
	if id == 0 {
		return failure(http2.ErrCodeProtocol, "DATA of stream 0")
	}
	if c.quota -= int64(n); c.quota < 0 {
		return failure(http2.ErrCodeFlowControl, "the client has sent more than the window of the connection")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The window of the connection does not wait for the handlers: that of each call does.
	if c.taken += int64(n); c.taken >= int64(c.srv.set.ConnWindow)/4 {
		c.appendWindowUpdate(0, uint32(c.taken)) //nolint:gosec // about a quarter of a window
		c.quota += c.taken
		c.taken = 0
	}
	if id > c.maxID {
		return failure(http2.ErrCodeProtocol, "DATA of stream %d, which has not begun", id)
	}
	s := c.streams[id]
	switch {
	case s == nil || s.done:
		s = nil // it has ended, and the client does not know yet
	case s.ended:
		c.resetLocked(s, http2.ErrCodeStreamClosed)
		s = nil
	default:
		if s.quota -= int64(n); s.quota < 0 {
			c.resetLocked(s, http2.ErrCodeFlowControl)
			s = nil
		} else if n > size {
			s.returnWindow(n - size)
		}
	}
	c.data = dataFrame{s: s, left: size, last: last}
	if size == 0 {
		c.endData()
		if !last {
			return c.idleFrame()
		}
	}
	return nil
}

// readData takes the bytes of a DATA frame that have arrived.
func (c *conn) readData() {
	n := min(c.data.left, c.w-c.r)
	p := c.buf[c.r : c.r+n]
	c.r += n
	c.takeData(p)
}

// takeData takes bytes of a DATA frame.
func (c *conn) takeData(p []byte) {
	c.data.left -= len(p)
	s := c.data.s
	if s != nil && len(p) > 0 {
		c.idle = 0
		c.mu.Lock()
		if s.done {
			c.data.s = nil
		} else {
			s.take(p, c.data.last && c.data.left == 0)
		}
		if c.data.left == 0 {
			c.endData()
		}
		c.mu.Unlock()
		return
	}
	if c.data.left == 0 {
		c.mu.Lock()
		c.endData()
		c.mu.Unlock()
	}
}

// endData ends a DATA frame. mu must be held.
func (c *conn) endData() {
	s := c.data.s
	if c.data.s = nil; s == nil || !c.data.last {
		return
	}
	c.idle = 0
	s.endMessages()
	if !s.begun {
		s.begun, s.whole = true, true
		c.ready = append(c.ready, s)
	}
}

func (c *conn) resetFrame(id uint32, p []byte) error {
	if len(p) != 4 {
		return failure(http2.ErrCodeFrameSize, "RST_STREAM has %d bytes", len(p))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 || id > c.maxID {
		return failure(http2.ErrCodeProtocol, "RST_STREAM of stream %d, which has not begun", id)
	}
	if s := c.streams[id]; s != nil {
		c.forget(s)
	}
	return nil
}

func (c *conn) settingsFrame(flags http2.Flags, id uint32, p []byte) error {
	if id != 0 {
		return failure(http2.ErrCodeProtocol, "SETTINGS of stream %d", id)
	}
	ack := flags.Has(http2.FlagSettingsAck)
	if len(p)%6 != 0 || ack && len(p) > 0 {
		return failure(http2.ErrCodeFrameSize, "SETTINGS has %d bytes", len(p))
	}
	if ack {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; len(p) > 0; p = p[6:] {
		if err := c.setting(http2.SettingID(binary.BigEndian.Uint16(p)), binary.BigEndian.Uint32(p[2:])); err != nil {
			return err
		}
	}
	c.out = appendHead(c.out, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	return c.idleFrame()
}

// setting applies one setting of the client. mu must be held.
func (c *conn) setting(id http2.SettingID, v uint32) error {
	switch id {
	case http2.SettingEnablePush:
		if v > 1 {
			return failure(http2.ErrCodeProtocol, "SETTINGS_ENABLE_PUSH is %d", v)
		}
	case http2.SettingInitialWindowSize:
		if v > maxWindow {
			return failure(http2.ErrCodeFlowControl, "SETTINGS_INITIAL_WINDOW_SIZE is %d", v)
		}
		return c.resize(int64(v))
	case http2.SettingMaxFrameSize:
		if v < minMaxFrame || v > 1<<24-1 {
			return failure(http2.ErrCodeProtocol, "SETTINGS_MAX_FRAME_SIZE is %d", v)
		}
	case http2.SettingMaxHeaderListSize:
		c.maxHeaders, c.limited = int64(v), true
	case http2.SettingHeaderTableSize:
		// We use no table, and must say so if the client's becomes smaller than the default.
		c.noTable = c.noTable || v < defaultTable && !c.saidNoTable
	case http2.SettingMaxConcurrentStreams, http2.SettingEnableConnectProtocol, http2.SettingNoRFC7540Priorities:
	}
	return nil
}

func (c *conn) windowFrame(id uint32, p []byte) error {
	if len(p) != 4 {
		return failure(http2.ErrCodeFrameSize, "WINDOW_UPDATE has %d bytes", len(p))
	}
	more := int64(binary.BigEndian.Uint32(p) & maxWindow)
	c.mu.Lock()
	defer c.mu.Unlock()
	if id > c.maxID {
		return failure(http2.ErrCodeProtocol, "WINDOW_UPDATE of stream %d, which has not begun", id)
	}
	if id == 0 {
		if c.window += more; more == 0 || c.window > maxWindow {
			return failure(windowCode(more), "WINDOW_UPDATE of %d bytes for the connection", more)
		}
		c.pump()
		return nil
	}
	s := c.streams[id]
	if s == nil {
		return nil
	}
	if s.window += more; more == 0 || s.window > maxWindow {
		c.resetLocked(s, windowCode(more))
		return nil
	}
	c.unblock(s)
	c.pump()
	return nil
}

// windowCode returns the code of the error of a window update.
func windowCode(more int64) http2.ErrCode {
	if more == 0 {
		return http2.ErrCodeProtocol
	}
	return http2.ErrCodeFlowControl
}

func (c *conn) headersFrame(flags http2.Flags, id uint32, p []byte) error {
	p, err := unpad(flags.Has(http2.FlagHeadersPadded), p)
	if err != nil {
		return err
	}
	if flags.Has(http2.FlagHeadersPriority) {
		if len(p) < 5 {
			return failure(http2.ErrCodeFrameSize, "the priority in HEADERS has %d bytes", len(p))
		}
		p = p[5:]
	}
	if id%2 != 1 || id <= c.maxID { // maxID changes on the leader's goroutine only
		return failure(http2.ErrCodeProtocol, "received an illegal stream id: %d", id)
	}
	c.block.id, c.block.last, c.block.parts, c.block.bytes = id, flags.Has(http2.FlagHeadersEndStream), 0, c.block.bytes[:0]
	if flags.Has(http2.FlagHeadersEndHeaders) {
		return c.endBlock(p)
	}
	return c.addBlock(p, false)
}

// addBlock adds a fragment to the open header block.
func (c *conn) addBlock(p []byte, last bool) error {
	c.block.bytes = append(c.block.bytes, p...)
	if c.block.parts++; c.block.parts > maxParts || len(c.block.bytes) > 2*int(c.srv.set.MaxHeaders) {
		return failure(http2.ErrCodeEnhanceYourCalm, "the headers of a call have more than %d bytes or %d frames", 2*c.srv.set.MaxHeaders, maxParts)
	}
	if !last {
		return nil
	}
	return c.endBlock(c.block.bytes)
}

// endBlock handles a complete header block.
func (c *conn) endBlock(block []byte) error {
	id, last := c.block.id, c.block.last
	c.block.id = 0
	h, err := c.heads.decode(block)
	if err != nil {
		return err
	}
	c.open(id, h, last)
	if cap(c.block.bytes) > smallBuffer {
		c.block.bytes = nil
	}
	return nil
}
