package transport

import (
	"compress/gzip"
	"compress/zlib"
	"io"
	"sync"
)

// compressLevel is the fastest level. Other levels take several times as long and hardly make tensors smaller.
const compressLevel = 1

// compressor is a writer that compresses.
type compressor interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// compressors holds the unused compressors by coding. Each has hundreds of KiB of buffers.
var compressors = [numCodings]sync.Pool{
	Deflate: {New: func() any { return levelled(zlib.NewWriterLevel(io.Discard, compressLevel)) }},
	Gzip:    {New: func() any { return levelled(gzip.NewWriterLevel(io.Discard, compressLevel)) }},
}

// levelled drops the error of an invalid level.
func levelled[T compressor](w T, _ error) compressor { return w }

// Compress calls write with a writer that compresses to w.
func Compress(w io.Writer, c Coding, write func(io.Writer) error) error {
	z := compressors[c].Get().(compressor) //nolint:errcheck,forcetypeassert // the pools hold nothing else
	z.Reset(w)
	err := write(z)
	if err == nil {
		err = z.Close()
	}
	z.Reset(io.Discard)
	compressors[c].Put(z)
	return err
}
