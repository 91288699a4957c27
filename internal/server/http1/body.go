package http1

import (
	"io"
	"net/http"
	"sync/atomic"
)

// body is a request's, of known length.
type body struct {
	c       *conn
	left    int64
	closed  bool
	arrived atomic.Bool // nothing is left; watch asks
}

func (b *body) begin(n int64) {
	b.left, b.closed = n, false
	b.arrived.Store(n == 0)
}

// Read reads what came with the head, then from the connection.
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
	} else if n, err = c.nc.Read(p); err == io.EOF { //nolint:errorlint // a connection returns it bare
		err = io.ErrUnexpectedEOF
	}
	b.left -= int64(n)
	if b.left == 0 {
		b.arrived.Store(true)
		err = io.EOF
	}
	return n, err
}

// Close ends reading.
func (b *body) Close() error {
	b.closed = true
	return nil
}

// What becomes of the rest of a body.
type rested uint8

const (
	complete rested = iota
	tooMuch         // it is not worth reading
	cutOff          // it did not come
)

// drain reads what the handler left.
func (b *body) drain() rested {
	switch {
	case b.left == 0:
		return complete
	case b.left > drainLimit:
		return tooMuch
	}
	b.closed = false
	if _, err := io.Copy(io.Discard, b); err != nil {
		return cutOff
	}
	return complete
}
