package grpcapi

import (
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // registers its own gzip, before this package does

	"github.com/tutti-server/tutti/core/infer"
)

// Compression is the level of response compression, one of package gzip; 0 for none.
type Compression int

var compressions = map[string]Compression{
	"none": gzip.NoCompression, "low": gzip.BestSpeed, "medium": gzip.DefaultCompression, "high": gzip.BestCompression,
}

// ParseCompression parses a level: none, low, medium or high.
func ParseCompression(s string) (Compression, error) {
	c, ok := compressions[s]
	if !ok {
		return 0, fmt.Errorf("invalid compression level '%s', expected none, low, medium or high", s)
	}
	return c, nil
}

// The compressions' names on the wire. Deflate is the zlib format, as clients send it.
const (
	gzipName    = "gzip"
	deflateName = "deflate"
)

// compressed has what grpc's table of compressions needs of a server. The table is the process's, so it is of the last server that
// was made.
type compressed struct {
	level    atomic.Int64
	inFlight atomic.Pointer[infer.InFlight]
}

var compression = register()

func register() *compressed {
	c := &compressed{}
	c.level.Store(gzip.DefaultCompression)
	encoding.RegisterCompressor(&compressor{
		name: gzipName, of: c,
		newWriter: func(w io.Writer, level int) (packer, error) { return gzip.NewWriterLevel(w, level) },
		newReader: func(r io.Reader) (io.ReadCloser, error) { return gzip.NewReader(r) },
		reset:     func(z io.ReadCloser, r io.Reader) error { return z.(*gzip.Reader).Reset(r) }, //nolint:errcheck,forcetypeassert // made above
	})
	encoding.RegisterCompressor(&compressor{
		name: deflateName, of: c,
		newWriter: func(w io.Writer, level int) (packer, error) { return zlib.NewWriterLevel(w, level) },
		newReader: zlib.NewReader,
		reset:     func(z io.ReadCloser, r io.Reader) error { return z.(zlib.Resetter).Reset(r, nil) }, //nolint:errcheck,forcetypeassert // made above
	})
	return c
}

// use sets the level of responses, if there is one, and the counter of requests.
func (c *compressed) use(level Compression, f *infer.InFlight) {
	if level != gzip.NoCompression {
		c.level.Store(int64(level))
	}
	c.inFlight.Store(f)
}

// compressor is one compression of the table. It counts what it decompresses: a message of 1 MB may become 1 GB, and a call counts it
// only when it is complete.
type compressor struct {
	name      string
	of        *compressed
	newWriter func(w io.Writer, level int) (packer, error)
	newReader func(r io.Reader) (io.ReadCloser, error)
	reset     func(z io.ReadCloser, r io.Reader) error
	packers   sync.Pool
	readers   sync.Pool
}

// packer compresses.
type packer interface {
	io.WriteCloser
	Reset(w io.Writer)
}

// pooledPacker returns to its pool when it is closed.
type pooledPacker struct {
	packer
	level int64
	pool  *sync.Pool
}

// Close ends the message.
func (p *pooledPacker) Close() error {
	defer p.pool.Put(p)
	return p.packer.Close()
}

// Name returns the name on the wire.
func (c *compressor) Name() string { return c.name }

// Compress returns a writer that compresses into w.
func (c *compressor) Compress(w io.Writer) (io.WriteCloser, error) {
	level := c.of.level.Load()
	if p, ok := c.packers.Get().(*pooledPacker); ok && p.level == level {
		p.Reset(w)
		return p, nil
	}
	p, err := c.newWriter(w, int(level))
	if err != nil {
		return nil, err
	}
	return &pooledPacker{p, level, &c.packers}, nil
}

// Decompress returns a reader of the message in r.
func (c *compressor) Decompress(r io.Reader) (io.Reader, error) {
	u, ok := c.readers.Get().(*unpacker)
	var err error
	if ok {
		err = c.reset(u.from, r)
	} else {
		u = &unpacker{pool: &c.readers}
		u.from, err = c.newReader(r)
	}
	if err != nil {
		return nil, err
	}
	u.read, u.charge = 0, c.of.inFlight.Load().Charge()
	return u, nil
}

// countStep is the number of decompressed bytes that are charged at once.
const countStep = 64 << 10

// unpacker decompresses a message. It charges what it has read until it is closed, and fails where there is no room. The first countStep
// bytes are not charged.
type unpacker struct {
	from   io.ReadCloser
	read   int64
	charge infer.Charge
	pool   *sync.Pool
}

// Read implements io.Reader.
func (u *unpacker) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	u.read += int64(n)
	if more := u.read - u.charge.Bytes(); more >= countStep {
		if full := u.charge.Acquire(more); full != nil {
			return 0, full
		}
	}
	return n, err
}

// Close ends the message.
func (u *unpacker) Close() error {
	u.charge.Release()
	defer u.pool.Put(u)
	return u.from.Close()
}
