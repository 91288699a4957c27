package httpapi

import (
	"compress/gzip"
	"compress/zlib"
	"io"
	"sync"
)

// compressLevel is the quickest: tensors hardly become smaller at the others, which
// take several times as long.
const compressLevel = 1

// compressor is a writer that compresses.
type compressor interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// compressors keeps those that are not in use, by coding: each holds hundreds of KiB.
var compressors = [numCodings]sync.Pool{
	codingDeflate: {New: func() any { return levelled(zlib.NewWriterLevel(io.Discard, compressLevel)) }},
	codingGzip:    {New: func() any { return levelled(gzip.NewWriterLevel(io.Discard, compressLevel)) }},
}

// levelled drops the error of a level that does not exist.
func levelled[T compressor](w T, _ error) compressor { return w }

// squeeze writes an answer compressed, as it goes: its length is known only at the end.
func squeeze(w io.Writer, c coding, write func(io.Writer) error) error {
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
