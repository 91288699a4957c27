package http1

import (
	"io"
	"net/http"
	"sync/atomic"
)

// body reads a request body of known length.
type body struct {
	c       *conn
	left    int64
	closed  bool
	cut     bool        // the handler has read io.ErrUnexpectedEOF
	arrived atomic.Bool // left is 0; read by the watcher
}

func (b *body) begin(n int64) {
	b.left, b.closed, b.cut = n, false, false
	b.arrived.Store(n == 0)
}

// Read returns the bytes that came with the head, then reads from the connection.
//
// hot: no allocation.
func (b *body) Read(p []byte) (n int, err error) {
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case b.left == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	p = p[:min(int64(len(p)), b.left)]
	if c := b.c; c.r < c.w {
		n = copy(p, c.buf[c.r:c.w])
		c.r += n
	} else if n, err = c.nc.Read(p); err == io.EOF { //nolint:errorlint // a connection returns it unwrapped
		b.cut, err = true, io.ErrUnexpectedEOF
	}
	b.left -= int64(n)
	if b.left == 0 {
		b.arrived.Store(true)
		err = io.EOF
	}
	return n, err
}

// Close makes later reads fail. The server drains the rest.
func (b *body) Close() error {
	b.closed = true
	return nil
}

// drained is the outcome of drain.
type drained uint8

const (
	drainedAll drained = iota
	drainedNot         // too much is left, or it cannot be read: the response must say that the connection closes
	drainedCut         // the handler itself found that the connection ended before the body
)

// drain reads and discards the unread rest of the body.
func (b *body) drain() drained {
	switch {
	case b.left == 0:
		return drainedAll
	case b.cut:
		return drainedCut
	case b.left > drainLimit:
		return drainedNot
	}
	b.closed = false
	if _, err := io.Copy(io.Discard, b); err != nil {
		return drainedNot
	}
	return drainedAll
}
