package transport

import (
	"io"
	"reflect"

	"github.com/tutti-server/tutti/core/status"
)

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
