package transport

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
)

// JSONLength is the header with the length of the JSON part of a body.
const JSONLength = "Inference-Header-Content-Length"

const (
	// firstRead bounds the memory that an announced length costs before its bytes arrive.
	firstRead = 64 << 10
	// mostRead is the most bytes that are charged before they arrive.
	mostRead = 4 << 20
)

// Body reads the body of one request after another, within the limits of the settings. It is not safe for concurrent use.
//
// Lifecycle:
//
//  1. Begin, once per request.
//  2. Open, at most once, for a request whose body is wanted. After an error there is nothing to read.
//  3. Any of the reading methods, in any order.
//  4. Release, once per Begin, after the response. It returns what Charge has taken.
type Body struct {
	// Charge holds the request's bytes in flight. The owner may add more, such as those of its tensors.
	Charge infer.Charge

	shared *Shared
	src    stallReader
	r      io.Reader // &src, or zip
	zip    *inflater // nil for a body that is not compressed
	left   int64     // -1 when the length is unknown
	read   int64
	// metered marks a body that is charged as it is read: its length is unknown, or too large to believe. Small ones are charged as a
	// whole.
	metered bool
	raw     bool // the body has no JSON
}

// Begin prepares b for the next request.
func (b *Body) Begin(s *Shared) { b.shared, b.Charge = s, s.InFlight.Charge() }

// Open begins to read r's body. It fails if the announced length is too large or no room is left in flight.
func (b *Body) Open(w http.ResponseWriter, r *http.Request, compressed bool) error {
	b.src.begin(w, r, b.shared.StallTimeout)
	b.r, b.left = &b.src, r.ContentLength
	v := r.Header[JSONLength]
	b.raw = len(v) > 0 && v[0] == "0"
	switch {
	case b.Oversized():
		return b.TooLarge(b.left)
	case compressed:
		b.zip = newInflater(&b.src)
		b.r, b.left = b.zip, -1
	case b.left > firstRead:
		b.metered = true
		return b.Charge.Fits(b.left)
	case b.left >= 0:
		return b.Charge.Acquire(b.left)
	}
	b.metered = true
	return b.shared.InFlight.Admit()
}

// Release ends the request's use of b.
func (b *Body) Release() {
	if b.zip != nil {
		b.zip.release()
	}
	b.Charge.Release()
	*b = Body{}
}

// Oversized reports whether the announced length exceeds the limit.
func (b *Body) Oversized() bool { return b.left > b.shared.MaxInput }

// Compressed reports whether the body is decompressed as it is read.
func (b *Body) Compressed() bool { return b.zip != nil }

// Left returns the number of unread bytes, -1 when it is unknown.
func (b *Body) Left() int64 { return b.left }

// ReadFull reads len(dst) bytes, charges them, and returns how many there were. The error is io.ErrUnexpectedEOF where the body ends early.
func (b *Body) ReadFull(dst []byte) (n int, err error) {
	if !b.metered {
		return b.readFull(dst)
	}
	for n < len(dst) {
		// A client holds, beside what it has sent, at most as much again.
		part := dst[n:min(int64(len(dst)), int64(n)+min(max(b.read, firstRead), mostRead))]
		if err := b.Charge.Acquire(int64(len(part))); err != nil {
			return n, err
		}
		got, err := b.readFull(part)
		n += got
		if err != nil {
			b.Charge.Shrink(int64(len(part) - got))
			return n, err
		}
	}
	return n, nil
}

// readFull reads len(dst) bytes, which are charged or few.
func (b *Body) readFull(dst []byte) (n int, err error) {
	n, err = io.ReadFull(b.r, dst)
	b.read += int64(n)
	if b.left >= 0 {
		b.left -= int64(n)
	}
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = io.ErrUnexpectedEOF
	default:
		err = readError(err)
	}
	return n, err
}

// CheckSize verifies that n further bytes are within the limit, and that there is room for them now.
func (b *Body) CheckSize(n int64) error {
	if b.read+n > b.shared.MaxInput || b.read+n < 0 {
		return b.TooLarge(b.read + n)
	}
	if b.metered {
		return b.Charge.Fits(n)
	}
	return nil
}

// upTo appends at most n further bytes to dst, fewer only where the body ends.
func (b *Body) upTo(dst []byte, n int64) ([]byte, error) {
	for n > 0 {
		if len(dst) == cap(dst) {
			dst = grow(dst, n)
		}
		part := dst[len(dst):min(int64(cap(dst)), int64(len(dst))+n)]
		got, err := b.ReadFull(part)
		dst = dst[:len(dst)+got]
		n -= int64(got)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// grow makes room for up to n more bytes in steps, so that memory follows the bytes that have arrived.
func grow(b []byte, n int64) []byte {
	more := min(n, int64(max(firstRead, len(b))))
	grown := make([]byte, len(b), int64(len(b))+more)
	copy(grown, b)
	return grown
}

// ReadHead appends the first n bytes of the body, which are its JSON.
func (b *Body) ReadHead(dst []byte, n int64) ([]byte, error) {
	if n > b.shared.MaxInput {
		return dst, b.TooLarge(n)
	}
	start := len(dst)
	dst, err := b.upTo(dst, n)
	if err == nil && int64(len(dst)-start) < n {
		return dst, outOfRange(b.read, strconv.FormatInt(n, 10))
	}
	return dst, err
}

// ReadRest appends the rest of the body, which must be within the limit.
func (b *Body) ReadRest(dst []byte) ([]byte, error) {
	n := b.left
	if n < 0 {
		n = b.shared.MaxInput + 1
	}
	dst, err := b.upTo(dst, n)
	if size := int64(len(dst)); err == nil && size > b.shared.MaxInput {
		err = b.TooLarge(size)
	}
	return dst, err
}

// ReadJSON appends the rest of the body, which is all JSON and must be complete.
func (b *Body) ReadJSON(dst []byte) ([]byte, error) {
	dst, err := b.ReadRest(dst)
	if err == nil && b.left > 0 {
		err = status.Errorf(status.InvalidArg, "unexpected size for request JSON, expecting %d more bytes", b.left)
	}
	return dst, err
}

// AtEnd reports whether no bytes are left. It may wait for the client to end the body.
func (b *Body) AtEnd() (bool, error) {
	if b.left >= 0 {
		return b.left == 0, nil
	}
	var one [1]byte
	n, err := b.readFull(one[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n == 0, err
}

// TooLarge returns Triton's error for a body of size bytes.
func (b *Body) TooLarge(size int64) error {
	switch {
	case b.Compressed():
		return status.Errorf(status.InvalidArg, "Decompressed data size exceeds the maximum allowed value of %d bytes. "+
			"Use --http-max-input-size to increase the limit.", b.shared.MaxInput)
	case b.raw:
		return status.Errorf(status.InvalidArg, "Raw input has a byte_size (%d bytes) that exceeds the maximum allowed value "+
			"of %d bytes. Use --http-max-input-size to increase the limit.", size, b.shared.MaxInput)
	}
	return status.Errorf(status.InvalidArg, "request JSON size of %d bytes exceeds the maximum allowed input size of %d bytes. "+
		"Use --http-max-input-size to increase the limit.", size, b.shared.MaxInput)
}

// JSONSize returns the length of the JSON as the request's header has it: 0 for a body without JSON, -1 without the header, for a
// body that is all JSON. total is the length of the body, -1 if unknown.
func JSONSize(h http.Header, total int64) (int64, error) {
	v := h[JSONLength]
	if len(v) == 0 {
		return -1, nil
	}
	n, err := strconv.ParseInt(v[0], 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, status.Errorf(status.InvalidArg,
			"Unable to parse %s, value is out of range [ -2147483648, 2147483647 ], got: %s", JSONLength, v[0])
	case err != nil:
		return 0, status.Errorf(status.InvalidArg, "Unable to parse %s, got: %s", JSONLength, v[0])
	case n < 0 || total >= 0 && n > total:
		return 0, outOfRange(total, v[0])
	}
	return n, nil
}

func outOfRange(total int64, got string) error {
	return status.Errorf(status.InvalidArg, "inference header size should be in range (0, %d), got: %s", max(total, 0), got)
}

// ReadDocument reads a body that is one JSON document into buf, checks its syntax as a whole, and begins it in p. With optional
// the body may be empty. It returns the grown buf.
func (b *Body) ReadDocument(w http.ResponseWriter, r *http.Request, p *jsonwire.Parser, buf []byte, optional bool) ([]byte, error) {
	err := b.Open(w, r, false)
	if err == nil {
		buf, err = b.ReadJSON(buf[:0])
	}
	if err != nil || optional && len(buf) == 0 {
		return buf, err
	}
	return buf, p.Document(buf)
}

// RequireIdentity returns an error for a body in any Content-Encoding. Only infer requests may have one.
func RequireIdentity(r *http.Request) error {
	if v := r.Header.Get("Content-Encoding"); v != "" && v != "identity" {
		return status.Errorf(status.InvalidArg, "Unsupported content-encoding, only 'identity' is supported.")
	}
	return nil
}
