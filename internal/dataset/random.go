package dataset

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
)

// The pages in which files of buckets are read at random, and how many of them are kept.
const (
	pageSize  = 1 << 20
	pagesKept = 16
)

// randomFile is a file that is read at random: parquet and npz have their directory at the end.
type randomFile struct {
	io.ReaderAt
	io.Closer
}

// random opens a file to be read at random.
func (s *source) random(ctx context.Context) (*randomFile, error) {
	if local, ok := s.store.(localStore); ok {
		body, err := local.open(ctx, s.file, 0, -1)
		if err != nil {
			return nil, err
		}
		f, ok := body.(*localFile)
		if !ok {
			return nil, errors.Join(os.ErrInvalid, body.Close())
		}
		return &randomFile{f.File, body}, nil
	}
	p := &pages{ctx: ctx, src: s}
	return &randomFile{p, io.NopCloser(nil)}, nil
}

// pages reads a file of a bucket by pages, of which the latest are kept. It is not safe for concurrent use.
type pages struct {
	ctx  context.Context //nolint:containedctx // io.ReaderAt has none
	src  *source
	list []page // the latest last
}

type page struct {
	off  int64
	data []byte
}

// ReadAt implements io.ReaderAt.
func (p *pages) ReadAt(b []byte, off int64) (n int, err error) {
	for n < len(b) {
		if off >= p.src.file.size {
			return n, io.EOF
		}
		data, err := p.page(off &^ (pageSize - 1))
		if err != nil {
			return n, err
		}
		got := copy(b[n:], data[off&(pageSize-1):])
		n += got
		off += int64(got)
	}
	return n, nil
}

func (p *pages) page(off int64) ([]byte, error) {
	for _, have := range slices.Backward(p.list) {
		if have.off == off {
			return have.data, nil
		}
	}
	data := make([]byte, min(pageSize, p.src.file.size-off))
	body, err := p.src.store.open(p.ctx, p.src.file, off, int64(len(data)))
	if err != nil {
		return nil, err
	}
	if _, err = io.ReadFull(body, data); err != nil {
		return nil, errors.Join(err, body.Close())
	}
	if len(p.list) == pagesKept {
		p.list = append(p.list[:0], p.list[1:]...)
	}
	p.list = append(p.list, page{off, data})
	return data, body.Close()
}
