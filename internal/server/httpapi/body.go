package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
)

const jsonLength = "Inference-Header-Content-Length"

// firstRead bounds what a claimed length may cost before its bytes arrive.
const firstRead = 64 << 10

// body reads a request's body and knows how much of it is left.
type body struct {
	r    io.Reader
	left int64 // -1 when only the end will tell
	read int64
	max  int64
	// charge takes what is read of a body whose length nobody knows; nil when it is
	// charged as a whole.
	charge *infer.Charge
	// inflated marks a body whose bytes are counted after decompression, raw one without JSON.
	inflated, raw bool
}

// full reads exactly len(b) bytes; n tells how many there were. Any failure but the
// body's end is the client's, such as a malformed chunk.
func (b *body) full(dst []byte) (n int, err error) {
	n, err = io.ReadFull(b.r, dst)
	b.count(n)
	switch {
	case err == nil:
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = io.ErrUnexpectedEOF
	default:
		err = readError(err)
	}
	return n, err
}

func (b *body) count(n int) {
	b.read += int64(n)
	if b.left >= 0 {
		b.left -= int64(n)
	}
}

// upTo appends at most n further bytes to dst, less only where the body ends.
func (b *body) upTo(dst []byte, n int64) ([]byte, error) {
	for n > 0 {
		if len(dst) == cap(dst) {
			dst = grow(dst, n)
		}
		part := dst[len(dst):min(int64(cap(dst)), int64(len(dst))+n)]
		if err := b.take(int64(len(part))); err != nil {
			return dst, err
		}
		got, err := b.full(part)
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

// take charges n bytes that are about to be read, unless the whole body is charged.
func (b *body) take(n int64) error {
	if b.charge == nil {
		return nil
	}
	return b.charge.Take(n)
}

// grow makes room for up to n bytes, little by little: memory follows what has arrived.
func grow(b []byte, n int64) []byte {
	more := min(n, int64(max(firstRead, len(b))))
	grown := make([]byte, len(b), int64(len(b))+more)
	copy(grown, b)
	return grown
}

// atEnd reports whether nothing is left.
func (b *body) atEnd() (bool, error) {
	if b.left >= 0 {
		return b.left == 0, nil
	}
	var one [1]byte
	n, err := b.full(one[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n == 0, err
}

func (b *body) tooLarge(size int64) error {
	switch {
	case b.inflated:
		return status.Errorf(status.InvalidArg, "Decompressed data size exceeds the maximum allowed value of %d bytes. "+
			"Use --http-max-input-size to increase the limit.", b.max)
	case b.raw:
		return status.Errorf(status.InvalidArg, "Raw input has a byte_size (%d bytes) that exceeds the maximum allowed value "+
			"of %d bytes. Use --http-max-input-size to increase the limit.", size, b.max)
	}
	return status.Errorf(status.InvalidArg, "request JSON size of %d bytes exceeds the maximum allowed input size of %d bytes. "+
		"Use --http-max-input-size to increase the limit.", size, b.max)
}

// noLength is lengthHeader's value without the header.
const noLength = -1

// lengthHeader returns the length of the body's JSON as the client gave it; 0 says that there is none.
func lengthHeader(h http.Header, total int64) (int64, error) {
	v := h[jsonLength]
	if len(v) == 0 {
		return noLength, nil
	}
	n, err := strconv.ParseInt(v[0], 10, 32)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, status.Errorf(status.InvalidArg,
			"Unable to parse %s, value is out of range [ -2147483648, 2147483647 ], got: %s", jsonLength, v[0])
	case err != nil:
		return 0, status.Errorf(status.InvalidArg, "Unable to parse %s, got: %s", jsonLength, v[0])
	case n < 0 || total >= 0 && n > total:
		return 0, outOfRange(total, v[0])
	}
	return n, nil
}

// withoutJSON reports whether a request says that its body is a raw tensor.
func withoutJSON(h http.Header) bool {
	v := h[jsonLength]
	return len(v) > 0 && v[0] == "0"
}

func outOfRange(total int64, got string) error {
	return status.Errorf(status.InvalidArg, "inference header size should be in range (0, %d), got: %s", max(total, 0), got)
}
