package transport

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/pool"
)

// slowestRate is the lowest rate of a body, in bytes per second. It bounds how long a client that sends a byte now and then
// holds memory.
const slowestRate = 4 << 10

// stalledError is the error of a body that the client stopped sending.
type stalledError struct{ after time.Duration }

// Error implements error.
func (e stalledError) Error() string {
	return "the request's body did not arrive in time: nothing, or too little, was received for " + e.after.String()
}

// stallReader reads a body from its connection and extends the read deadline while bytes arrive.
type stallReader struct {
	r     io.ReadCloser
	w     http.ResponseWriter
	left  int64 // -1 when the length is unknown
	stall time.Duration
	got   int64
	more  bool      // an earlier read left bytes to come
	began time.Time // zero until the third read: a body in one or two reads needs no clock
	set   time.Time // when the deadline was last extended
}

func (s *stallReader) begin(w http.ResponseWriter, r *http.Request, stall time.Duration) {
	*s = stallReader{r: r.Body, w: w, left: r.ContentLength, stall: stall}
}

// Read implements io.Reader.
//
// hot: no allocation, and no system call but the read once the body is complete.
func (s *stallReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.left > 0 {
		s.left -= int64(n)
	}
	switch {
	case err == nil && s.left != 0 && s.stall > 0:
		s.got += int64(n)
		if s.more {
			s.extend()
		}
		s.more = true
	case err != nil && errors.Is(err, os.ErrDeadlineExceeded):
		err = stalledError{s.stall}
	}
	return n, err
}

// extend moves the deadline for the next bytes, at most to the time at which the body is too slow as a whole.
func (s *stallReader) extend() {
	now := time.Now()
	if s.began.IsZero() {
		s.began = now
	} else if now.Sub(s.set) < s.stall/4 {
		return
	}
	s.set = now
	until := now.Add(s.stall)
	if last := s.began.Add(s.stall + time.Duration(s.got/slowestRate)*time.Second); last.Before(until) {
		until = last
	}
	// A writer without deadlines, as in tests, has no connection.
	_ = http.NewResponseController(s.w).SetReadDeadline(until)
}

// Close closes the body.
func (s *stallReader) Close() error { return s.r.Close() }

// StallBody returns r's body with deadlines, for handlers that read r.Body.
func (s *Shared) StallBody(w http.ResponseWriter, r *http.Request) io.ReadCloser {
	b := new(stallReader)
	b.begin(w, r, s.StallTimeout)
	return b
}

// readError returns the error of a failed read. Every failure is the client's, such as a malformed chunk.
func readError(err error) error {
	_, coded := errors.AsType[*status.Error](err)
	_, stalled := errors.AsType[stalledError](err)
	if coded || stalled {
		return err
	}
	return status.Errorf(status.InvalidArg, "failed to read the request: %w", err)
}

// maxChunks is the most non-empty chunks of a body.
const maxChunks = 1 << 16

// errChunks rejects a body in too many chunks. Its connection closes.
var errChunks = status.Errorf(status.InvalidArg,
	"Chunked request body exceeds maximum of %d non-empty chunks. Send fewer or larger HTTP chunks.", maxChunks)

// chunks counts the chunks of a chunked body.
//
// net/http decodes chunks without showing where they end. So this reads, by reflection, how many bytes net/http's chunk reader
// has left in the current chunk, and reads at most those. If a release of Go keeps them elsewhere the count is lost, which a
// test would show; bodies would still be read, under net/http's own bounds.
type chunks struct {
	io.ReadCloser
	left  reflect.Value // bytes left in the current chunk; invalid when the field is not found
	count int
}

// CountChunks returns a request's chunked body with a bound on its chunks.
func CountChunks(b io.ReadCloser) io.ReadCloser {
	return &chunks{ReadCloser: b, left: chunkLeft(reflect.ValueOf(b))}
}

// chunkLeft finds the field in net/http's body v. With "Expect: 100-continue" another reader has that body as a field.
func chunkLeft(v reflect.Value) reflect.Value {
	for _, name := range []string{"readCloser", "src", "n"} {
		for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return reflect.Value{}
		}
		if f := v.FieldByName(name); f.IsValid() {
			v = f
		} else if name != "readCloser" {
			return reflect.Value{}
		}
	}
	if !v.CanUint() {
		return reflect.Value{}
	}
	return v
}

// Read reads from the current chunk.
func (c *chunks) Read(p []byte) (int, error) {
	switch {
	case !c.left.IsValid():
		return c.ReadCloser.Read(p)
	case c.count > maxChunks:
		return 0, errChunks
	}
	if c.left.Uint() == 0 {
		// A read of no bytes reads the next chunk's size.
		if n, err := c.ReadCloser.Read(nil); err != nil {
			return n, err
		}
		if err := c.begun(); err != nil {
			return 0, err
		}
	}
	left := c.left.Uint()
	n, err := c.ReadCloser.Read(p[:min(uint64(len(p)), left)])
	if err == nil && uint64(n) == left {
		err = c.begun()
	}
	return n, err
}

// begun counts a chunk whose size has been read.
func (c *chunks) begun() error {
	if c.left.Uint() == 0 {
		return nil
	}
	if c.count++; c.count > maxChunks {
		return errChunks
	}
	return nil
}

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

// inflater decompresses gzip, zlib and bare deflate. It is pooled: newInflater and release bracket its use.
type inflater struct {
	src  io.Reader // the compressed bytes
	in   bufio.Reader
	r    io.Reader // gzip, zlib or bare
	gzip gzip.Reader
	zlib io.ReadCloser
	bare io.ReadCloser
	last error // of the read that ended it, also for those that follow
}

var inflaters = pool.Of[inflater]{New: func() *inflater {
	f := new(inflater)
	f.in = *bufio.NewReaderSize(nil, 16<<10)
	return f
}}

func newInflater(src io.Reader) *inflater {
	f := inflaters.Get()
	f.src, f.r, f.last = src, nil, nil
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
	if f.last != nil {
		return 0, f.last
	}
	if f.r == nil {
		if err := f.start(); err != nil {
			f.last = inflateError(err)
			return 0, f.last
		}
	}
	n, err := f.r.Read(p)
	if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		err = f.end()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = inflateError(err)
	}
	f.last = err
	return n, err
}

// start detects the compression.
func (f *inflater) start() (err error) {
	head, err := f.in.Peek(2)
	switch {
	case len(head) == 0 && errors.Is(err, io.EOF):
		return status.Errorf(status.InvalidArg, "nothing to be decompressed")
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
	_, err := f.in.ReadByte()
	if err == nil {
		return status.Errorf(status.InvalidArg, "failed to decompress the request: data follows the compressed body")
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
