package dataset

import (
	"bytes"
	"io"
)

// The sizes of blocks that lines are read in, and the longest line, in bytes.
const (
	blockSize = 256 << 10
	maxLine   = 256 << 20
)

// lineReader splits a file into lines. Lines may be kept, unless reuse is set.
type lineReader struct {
	src        io.Reader
	buf        []byte
	start, end int   // of the bytes of buf that are not consumed
	off        int64 // of buf[start] in the file
	reuse      bool
	eof        bool
}

// next returns the next line without its '\n', and its offset; io.EOF behind the last. tooLong marks a line of which only
// the begin is returned.
func (r *lineReader) next() (line []byte, off int64, tooLong bool, err error) {
	for scanned := 0; ; {
		if i := bytes.IndexByte(r.buf[r.start+scanned:r.end], '\n'); i >= 0 {
			return r.consume(scanned+i, 1)
		}
		if scanned = r.end - r.start; r.eof {
			if scanned == 0 {
				return nil, r.off, false, io.EOF
			}
			return r.consume(scanned, 0)
		}
		if scanned > maxLine {
			return r.discard()
		}
		if err := r.fill(); err != nil {
			return nil, r.off, false, err
		}
	}
}

// consume returns the next n bytes, and skips more behind them.
func (r *lineReader) consume(n, more int) ([]byte, int64, bool, error) {
	line, off := r.buf[r.start:r.start+n:r.start+n], r.off
	r.start += n + more
	r.off += int64(n + more)
	return line, off, false, nil
}

// discard reads to the end of a line that is too long.
func (r *lineReader) discard() ([]byte, int64, bool, error) {
	off, begin := r.off, bytes.Clone(r.buf[r.start:r.start+1024])
	for {
		i := bytes.IndexByte(r.buf[r.start:r.end], '\n')
		if i >= 0 || r.eof {
			if i < 0 {
				i = r.end - r.start - 1
			}
			r.start += i + 1
			r.off += int64(i + 1)
			return begin, off, true, nil
		}
		r.off += int64(r.end - r.start)
		r.start = r.end
		if err := r.fill(); err != nil {
			return nil, off, false, err
		}
	}
}

// fill reads more bytes. Bytes that lines may still use are not overwritten.
func (r *lineReader) fill() error {
	if r.end == len(r.buf) {
		have := r.buf[r.start:r.end]
		switch {
		case r.reuse && len(r.buf) > 0 && len(have) <= len(r.buf)/2:
			copy(r.buf, have)
		default:
			r.buf = make([]byte, max(blockSize, 2*len(have)))
			copy(r.buf, have)
		}
		r.start, r.end = 0, len(have)
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	if err == io.EOF {
		r.eof = true
		return nil
	}
	return err
}
