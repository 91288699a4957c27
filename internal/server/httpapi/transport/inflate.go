package transport

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
)

// Compressed reports whether a request's body is compressed. The body's first bytes decide how, as in Triton, since clients
// confuse gzip and deflate. For an unknown coding it sets Accept-Encoding of the response.
func Compressed(w http.ResponseWriter, r *http.Request) (bool, error) {
	v := r.Header["Content-Encoding"]
	if len(v) == 0 {
		return false, nil
	}
	if len(v) == 1 {
		switch coding := strings.TrimSpace(v[0]); {
		case coding == "", strings.EqualFold(coding, "identity"):
			return false, nil
		case strings.EqualFold(coding, "gzip"), strings.EqualFold(coding, "deflate"), strings.EqualFold(coding, "x-gzip"):
			return true, nil
		}
	}
	w.Header().Set("Accept-Encoding", "gzip, deflate")
	return false, status.Errorf(status.Unsupported, "Unsupported compression type")
}

var (
	errNothing  = status.Errorf(status.InvalidArg, "nothing to be decompressed")
	errTrailing = status.Errorf(status.InvalidArg, "failed to decompress the request: data follows the compressed body")
)

// inflater decompresses gzip, zlib and bare deflate. It is pooled: newInflater and release bracket its use.
type inflater struct {
	src  io.Reader // the compressed bytes
	in   bufio.Reader
	r    io.Reader // gzip, zlib or bare
	gzip gzip.Reader
	zlib io.ReadCloser
	bare io.ReadCloser
	done bool
}

const inflateBuffer = 16 << 10

var inflaters = pool.Of[inflater]{New: func() *inflater {
	f := new(inflater)
	f.in = *bufio.NewReaderSize(nil, inflateBuffer)
	return f
}}

func newInflater(src io.Reader) *inflater {
	f := inflaters.Get()
	f.src, f.r, f.done = src, nil, false
	f.in.Reset(src)
	return f
}

// release returns f to the pool.
func (f *inflater) release() {
	f.src, f.r = nil, nil
	f.in.Reset(nil)
	inflaters.Put(f)
}

// Read reads decompressed bytes. It returns io.EOF only where the compressed data is complete and nothing follows it.
func (f *inflater) Read(p []byte) (int, error) {
	if f.done {
		return 0, io.EOF
	}
	if f.r == nil {
		if err := f.start(); err != nil {
			return 0, inflateError(err)
		}
	}
	n, err := f.r.Read(p)
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = f.end()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = inflateError(err)
	}
	return n, err
}

// start detects the compression.
func (f *inflater) start() (err error) {
	head, err := f.in.Peek(2)
	switch {
	case len(head) == 0 && errors.Is(err, io.EOF):
		return errNothing
	case len(head) < 2:
		return unexpected(err)
	case head[0] == 0x1f && head[1] == 0x8b:
		f.r = &f.gzip
		return unexpected(f.gzip.Reset(&f.in))
	case head[0]&15 == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0:
		return unexpected(f.startZlib())
	}
	if f.bare == nil {
		f.bare = flate.NewReader(&f.in)
	} else if err := f.bare.(flate.Resetter).Reset(&f.in, nil); err != nil { //nolint:errcheck,forcetypeassert // the package says it is one
		return err
	}
	f.r = f.bare
	return nil
}

func (f *inflater) startZlib() (err error) {
	if f.zlib == nil {
		f.zlib, err = zlib.NewReader(&f.in)
	} else {
		err = f.zlib.(zlib.Resetter).Reset(&f.in, nil) //nolint:errcheck,forcetypeassert // the package says it is one
	}
	f.r = f.zlib
	return err
}

// unexpected converts the end of the body inside a header into io.ErrUnexpectedEOF.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// end verifies that the body ends with its compressed data.
func (f *inflater) end() error {
	f.done = true
	_, err := f.in.ReadByte()
	if err == nil {
		return errTrailing
	}
	return err
}

// inflateError returns the error of a body that cannot be decompressed.
func inflateError(err error) error {
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &corrupt),
		errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum),
		errors.Is(err, zlib.ErrHeader), errors.Is(err, zlib.ErrChecksum), errors.Is(err, zlib.ErrDictionary):
		// Not wrapped: callers take io.ErrUnexpectedEOF for the end of the body.
		return status.Errorf(status.InvalidArg, "failed to decompress the request: %s", err.Error())
	}
	return err
}
