package dataset

import (
	"errors"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/tutti-server/tutti/core/status"
)

// compressed reports whether a file can only be read from its begin.
func compressed(key string) bool { return plainName(key) != key }

// plainName returns the name without the ending of a compression.
func plainName(key string) string {
	switch ext := path.Ext(key); strings.ToLower(ext) {
	case ".gz", ".zst":
		return strings.TrimSuffix(key, ext)
	}
	return key
}

// decompressed is a compressed file.
type decompressed struct {
	io.Reader
	end  func()
	body io.Closer
}

func (d *decompressed) Close() error {
	d.end()
	return d.body.Close()
}

// Read makes what is no compressed data an error of the file.
func (d *decompressed) Read(b []byte) (n int, err error) {
	defer func() {
		if p := recover(); p != nil { // files may be broken in any way
			n, err = 0, status.Errorf(status.InvalidArg, "cannot be decompressed: %v", p)
		}
	}()
	n, err = d.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, new(*status.Error)) {
		err = status.Errorf(status.InvalidArg, "cannot be decompressed: %w", err)
	}
	return n, err
}

// decompress reads a file by the ending of its name.
func decompress(key string, body io.ReadCloser) (io.ReadCloser, error) {
	var err error
	switch {
	case !compressed(key):
		return body, nil
	case strings.EqualFold(path.Ext(key), ".gz"):
		var r *gzip.Reader
		if r, err = gzip.NewReader(body); err == nil {
			return &decompressed{r, func() { _ = r.Close() }, body}, nil
		}
	default:
		var r *zstd.Decoder
		// One goroutine, and a bound of what a file can ask for.
		if r, err = zstd.NewReader(body, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20)); err == nil {
			return &decompressed{r, r.Close, body}, nil
		}
	}
	if !errors.As(err, new(*status.Error)) {
		err = status.Errorf(status.InvalidArg, "cannot be decompressed: %w", err)
	}
	return nil, errors.Join(err, body.Close())
}
