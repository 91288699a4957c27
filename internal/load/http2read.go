package load

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	frameHead = 9
	// largestFrame is the largest frame that we accept, which is HTTP/2's default.
	largestFrame = 16 << 10
	// renewal is the number of received bytes after which the server gets as much window again.
	renewal = ourWindow / 4
)

// frameReader reads frames and decodes headers.
type frameReader struct {
	r       *bufio.Reader
	head    [frameHead]byte
	payload []byte
	block   []byte // header fragments that are not complete
	decoder *hpack.Decoder
	fields  []hpack.HeaderField
	// The last headers and trailers that were decoded. They are mostly those of the next response, too.
	known [2]headers
	got   int // the received bytes that the server has no new window for
}

// headers are the ones of a response that matter.
type headers struct {
	block              []byte
	http, status, text string
}

func newFrameReader(r io.Reader) *frameReader {
	f := &frameReader{r: bufio.NewReaderSize(r, 64<<10)}
	f.decoder = hpack.NewDecoder(0, func(h hpack.HeaderField) { f.fields = append(f.fields, h) })
	return f
}

// next reads a frame. The payload is valid until the next call.
func (f *frameReader) next() (kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte, err error) {
	if _, err := io.ReadFull(f.r, f.head[:]); err != nil {
		return 0, 0, 0, nil, err
	}
	n := int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
	if n > largestFrame {
		return 0, 0, 0, nil, fmt.Errorf("a frame of HTTP/2 says that it has %d bytes, more than %d; is this a gRPC server?", n, largestFrame)
	}
	f.payload = slices.Grow(f.payload[:0], n)[:n]
	_, err = io.ReadFull(f.r, f.payload)
	return http2.FrameType(f.head[3]), http2.Flags(f.head[4]), binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31), f.payload, err
}

// decode returns the headers of a block.
func (f *frameReader) decode(block []byte) (headers, error) {
	for i := range f.known {
		if len(block) > 0 && bytes.Equal(block, f.known[i].block) {
			return f.known[i], nil
		}
	}
	f.fields = f.fields[:0]
	if _, err := f.decoder.Write(block); err != nil {
		return headers{}, err
	}
	if err := f.decoder.Close(); err != nil {
		return headers{}, err
	}
	h := headers{block: bytes.Clone(block)}
	for _, field := range f.fields {
		switch field.Name {
		case ":status":
			h.http = field.Value
		case "grpc-status":
			h.status = field.Value
		case "grpc-message":
			h.text = field.Value
		}
	}
	if h.status != "" {
		f.known[1] = h
	} else {
		f.known[0] = h
	}
	return h, nil
}

// read handles the frames of a link until it is lost.
func (t *conn2) read(l *link) {
	for {
		kind, flags, stream, payload, err := l.r.next()
		t.mu.Lock()
		if err == nil {
			err = t.handle(l, kind, flags, stream, payload)
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the server closed the connection")
			}
			t.lose(l, err)
		}
		// Responses that have arrived already are handled first.
		if l.r.r.Buffered() < frameHead {
			t.flush(l)
		}
		lost := l.err != nil
		t.mu.Unlock()
		if lost {
			return
		}
	}
}

// handle handles a frame. It is called with mu.
func (t *conn2) handle(l *link, kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) error {
	c := l.calls[stream]
	switch kind {
	case http2.FrameData:
		return t.data(l, c, flags, payload)
	case http2.FrameHeaders, http2.FrameContinuation:
		return t.headersFrame(l, c, kind, flags, payload)
	case http2.FrameRSTStream:
		if c != nil && len(payload) == 4 {
			t.end(l, c, &ResponseError{Code: "RST_STREAM", Text: http2.ErrCode(binary.BigEndian.Uint32(payload)).String()})
		}
	case http2.FrameSettings:
		if !flags.Has(http2.FlagSettingsAck) {
			l.settings(payload)
			l.out = appendFrame(l.out, http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
			t.broadcast()
		}
	case http2.FramePing:
		if !flags.Has(http2.FlagPingAck) {
			l.out = appendFrame(l.out, http2.FramePing, http2.FlagPingAck, 0, payload)
		}
	case http2.FrameGoAway:
		t.goAway(l, payload)
	case http2.FrameWindowUpdate:
		if len(payload) != 4 {
			return errors.New("a window update of HTTP/2 is broken")
		}
		more := int64(binary.BigEndian.Uint32(payload) &^ (1 << 31))
		if stream == 0 {
			l.window += more
		} else if c != nil {
			c.window += more
		}
		t.broadcast()
	}
	return nil
}

// unpadded returns a payload without its padding.
func unpadded(flags http2.Flags, payload []byte) ([]byte, error) {
	if !flags.Has(http2.FlagDataPadded) {
		return payload, nil
	}
	if len(payload) == 0 || int(payload[0]) >= len(payload) {
		return nil, errors.New("the padding of a frame of HTTP/2 is longer than the frame")
	}
	return payload[1 : len(payload)-int(payload[0])], nil
}

// data handles a part of a response.
func (t *conn2) data(l *link, c *caller, flags http2.Flags, payload []byte) error {
	if l.r.got += len(payload); l.r.got >= renewal {
		l.out = appendFrame(l.out, http2.FrameWindowUpdate, 0, 0, binary.BigEndian.AppendUint32(nil, uint32(l.r.got))) //nolint:gosec // about renewal
		l.r.got = 0
	}
	part, err := unpadded(flags, payload)
	if err != nil || c == nil {
		return err
	}
	if len(c.response)+len(part) > largest {
		return fmt.Errorf("a response is larger than %d bytes", largest)
	}
	if c.response = append(c.response, part...); flags.Has(http2.FlagDataEndStream) {
		t.end(l, c, errors.New("the response has no trailers"))
	}
	return nil
}

// headersFrame handles headers, trailers and their continuations. HTTP/2 sends no other frame before they are complete.
func (t *conn2) headersFrame(l *link, c *caller, kind http2.FrameType, flags http2.Flags, payload []byte) error {
	if kind == http2.FrameHeaders {
		part, err := unpadded(flags, payload)
		if err != nil {
			return err
		}
		if flags.Has(http2.FlagHeadersPriority) {
			part = part[min(len(part), 5):]
		}
		l.r.block = append(l.r.block[:0], part...)
		if c != nil && flags.Has(http2.FlagHeadersEndStream) {
			c.ending = true
		}
	} else if l.r.block = append(l.r.block, payload...); len(l.r.block) > 1<<20 {
		return errors.New("the headers of a response are larger than 1 MiB")
	}
	if !flags.Has(http2.FlagHeadersEndHeaders) {
		return nil
	}
	h, err := l.r.decode(l.r.block)
	if err != nil || c == nil {
		return err
	}
	if h.http != "" {
		c.http = h.http
	}
	if h.status != "" {
		c.status, c.text = h.status, h.text
	}
	if c.ending {
		t.end(l, c, nil)
	}
	return nil
}

// end delivers the result of a call.
func (t *conn2) end(l *link, c *caller, err error) {
	if t.loop != nil {
		c.stamp = t.loop.stamp
	}
	t.deliver(l, c, err)
	l.progress = time.Now()
	if l.draining || len(l.calls) == l.streams-1 {
		t.broadcast()
	}
}

// settings applies the settings of the server.
func (l *link) settings(payload []byte) {
	for ; len(payload) >= 6; payload = payload[6:] {
		value := binary.BigEndian.Uint32(payload[2:])
		switch http2.SettingID(binary.BigEndian.Uint16(payload)) {
		case http2.SettingInitialWindowSize:
			for _, c := range l.calls {
				c.window += int64(value) - l.initial
			}
			l.initial = int64(value)
		case http2.SettingMaxFrameSize:
			l.frame = int(value)
		case http2.SettingMaxConcurrentStreams:
			l.streams = int(max(value, 1))
		}
	}
}

// goAway ends the calls that the server does not answer any more, and keeps new ones off the link.
func (t *conn2) goAway(l *link, payload []byte) {
	l.draining = true
	if len(payload) < 8 {
		return
	}
	last, code := binary.BigEndian.Uint32(payload)&^(1<<31), http2.ErrCode(binary.BigEndian.Uint32(payload[4:]))
	for id, c := range l.calls {
		if id > last {
			t.deliver(l, c, fmt.Errorf("the server closes the connection: %v %.100s", code, payload[8:]))
		}
	}
	t.broadcast()
}
