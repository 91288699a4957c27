package httpapi

import (
	"io"
	"reflect"

	"github.com/tutti-server/tutti/core/status"
)

// maxChunks bounds the non-empty chunks of a body.
const maxChunks = 1 << 16

// errChunks refuses a body in too many pieces, and ends its connection.
var errChunks = status.Errorf(status.InvalidArg,
	"Chunked request body exceeds maximum of %d non-empty chunks. Send fewer or larger HTTP chunks.", maxChunks)

// chunks is a body that came in chunks, and counts them.
//
// net/http takes the chunks apart and tells nobody where they end, so this looks at
// the number of bytes its chunk reader has left, and asks for no more than those. A
// release of Go that keeps them elsewhere loses the count, which a test would show;
// the bodies would still be read as they are, under net/http's own bounds.
type chunks struct {
	io.ReadCloser
	left  reflect.Value // what the chunk at hand has left; invalid when it cannot be found
	count int
}

func newChunks(b io.ReadCloser) *chunks {
	return &chunks{ReadCloser: b, left: chunkLeft(reflect.ValueOf(b))}
}

// chunkLeft finds the count of bytes in net/http's body v, which is itself a field
// of another reader when the client asked to be told to go on.
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

// Read reads from one chunk.
func (c *chunks) Read(p []byte) (int, error) {
	switch {
	case !c.left.IsValid():
		return c.ReadCloser.Read(p)
	case c.count > maxChunks:
		return 0, errChunks
	}
	if c.left.Uint() == 0 {
		// Reading nothing reads the next chunk's head.
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

// begun counts the chunk whose head has been read, if one has been.
func (c *chunks) begun() error {
	if c.left.Uint() == 0 {
		return nil
	}
	if c.count++; c.count > maxChunks {
		return errChunks
	}
	return nil
}
