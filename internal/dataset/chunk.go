package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"iter"
	"reflect"
	"strconv"

	"github.com/tutti-server/tutti/core/status"
)

// Slice is a part of a file: bytes of a text, rows of another format.
type Slice struct {
	File   string `json:"file"`             // its key below the folder that the URI is in
	Size   int64  `json:"size"`             // of the whole file, in bytes
	Tag    string `json:"tag"`              // of the file: its ETag or generation, or its size and time
	Offset int64  `json:"offset,omitempty"` // of the first byte
	Length int64  `json:"length,omitempty"` // in bytes; 0 for all
	Line   int64  `json:"line,omitempty"`   // of the first byte, from 1
	Row    int64  `json:"row,omitempty"`    // the first row in the file
	Rows   int64  `json:"rows"`             // the number of rows
}

// Chunk is a list of consecutive rows of a dataset. Its JSON is small: a slice per file, so that only a chunk of a folder
// with a file per row is larger.
type Chunk struct {
	Number  int64   `json:"number"`    // from 0
	First   int64   `json:"first_row"` // in the dataset, from 0
	Rows    int64   `json:"rows"`
	Slices  []Slice `json:"slices"`
	Columns string  `json:"columns"` // identifies the selected columns
	Sum     string  `json:"sum"`     // 128 bits of the SHA-256 of the keys of its rows
}

// CutOptions bound chunks. With MinRows < MaxRows the content of the rows says where a chunk ends: rows that are inserted
// or removed change the chunks around them, and most others stay the same. With MinRows = MaxRows all chunks but the last
// have as many rows.
type CutOptions struct {
	MinRows  int64 // 0: a quarter of MaxRows
	MaxRows  int64 // 0: 1024
	MaxBytes int64 // of the rows as the model gets them, about; at least one row is in a chunk. 0: 64 MiB
	// Between is called between rows: it waits while the reader has to give way to others. Its error ends the sequence. Nil: nothing waits.
	Between func(ctx context.Context) error
	// From is a chunk that was cut with the same options: the sequence begins with it, and nothing in front of it is read, except
	// for a compressed file, which is read from its start. The sequence ends with ErrChanged if the dataset has another chunk there
	// now. Nil: the first row.
	From *Chunk

	_ struct{}
}

// cutter collects rows into chunks.
type cutter struct {
	o     CutOptions
	mask  uint64
	chunk Chunk
	bytes int64
	keys  []byte
}

func newCutter(o CutOptions, columns string) *cutter {
	if o.MaxRows <= 0 {
		o.MaxRows = 1024
	}
	if o.MinRows <= 0 {
		o.MinRows = max(o.MaxRows/4, 1)
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 20
	}
	o.MinRows = min(o.MinRows, o.MaxRows)
	c := &cutter{o: o, chunk: Chunk{Columns: columns}}
	if o.From != nil {
		c.chunk.Number, c.chunk.First = o.From.Number, o.From.First
	}
	// One key in mask+1 ends a chunk: about four chances between the bounds.
	for c.mask = 1; c.mask < uint64(o.MaxRows-o.MinRows)/4; c.mask = c.mask<<1 | 1 {
	}
	return c
}

// add appends a row. It returns the chunk that ends in front of the row, or nil.
func (c *cutter) add(src *source, rec *record, key Key, n int64, byOffset bool) (ended *Chunk) {
	if c.chunk.Rows > 0 && c.bytes+n > c.o.MaxBytes {
		ended = c.end()
	}
	c.extend(src, rec, byOffset)
	c.chunk.Rows++
	c.bytes += n
	c.keys = append(c.keys, key[:]...)
	return ended
}

// full reports whether the chunk ends behind the row with this key.
func (c *cutter) full(key Key) bool {
	return c.chunk.Rows >= c.o.MaxRows || c.chunk.Rows >= c.o.MinRows && binary.LittleEndian.Uint64(key[:])&c.mask == 0
}

// extend puts a row into the last slice, or into a new one.
func (c *cutter) extend(src *source, rec *record, byOffset bool) {
	last := len(c.chunk.Slices) - 1
	if last < 0 || c.chunk.Slices[last].File != src.file.key {
		sl := Slice{File: src.file.key, Size: src.file.size, Tag: src.file.tag}
		if byOffset {
			sl.Offset, sl.Line = rec.start, rec.line
		} else {
			sl.Row = rec.row
		}
		c.chunk.Slices = append(c.chunk.Slices, sl)
	}
	sl := &c.chunk.Slices[len(c.chunk.Slices)-1]
	sl.Rows++
	if byOffset {
		sl.Length = rec.end - sl.Offset
	}
}

// end returns the chunk and begins the next.
func (c *cutter) end() *Chunk {
	ended := c.chunk
	sum := sha256.Sum256(c.keys)
	ended.Sum = hexOf(sum[:16])
	c.chunk = Chunk{Number: ended.Number + 1, First: ended.First + ended.Rows, Columns: ended.Columns}
	c.bytes, c.keys = 0, c.keys[:0]
	return &ended
}

// Cut reads the dataset once and cuts it into chunks, which are in the order of the rows. Memory is flat in the number of
// rows. A row that cannot be read counts, and is reported by Read. The sequence ends behind the first error. CutOptions.From
// continues a sequence that was interrupted.
func (s *Set) Cut(ctx context.Context, o CutOptions) iter.Seq2[*Chunk, error] {
	return func(yield func(*Chunk, error) bool) {
		sel, err := s.selected(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		c, h := newCutter(o, sel.id()), newHasher()
		at := Slice{}
		if o.From != nil {
			if at, yield = o.From.Slices[0], s.sameFirst(o.From, yield); o.From.Columns != sel.id() {
				yield(nil, status.Errorf(status.InvalidArg, "chunk %d was cut with other columns than are read", o.From.Number))
				return
			}
		}
		for src, err := range s.sources(ctx) {
			if err == nil && at.File != "" {
				if src.file.key != at.File {
					continue
				}
				if src.file.size != at.Size || src.file.tag != at.Tag {
					err = changedError(src.store.name(at.File), at.Tag, src.file.tag)
				}
			}
			if err == nil {
				var more bool
				more, err = s.cutFile(ctx, src, &Slice{Offset: at.Offset, Line: at.Line, Row: at.Row}, sel, c, h, yield)
				if at = (Slice{}); err == nil && !more {
					return
				}
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
		switch {
		case at.File != "":
			yield(nil, changedError(s.place.store.name(at.File), at.Tag, "gone"))
		case c.chunk.Rows > 0:
			yield(c.end(), nil)
		}
	}
}

// sameFirst returns a yield that ends the sequence if its first chunk is not the expected one.
func (s *Set) sameFirst(want *Chunk, yield func(*Chunk, error) bool) func(*Chunk, error) bool {
	first := true
	return func(c *Chunk, err error) bool {
		if err == nil && first && !reflect.DeepEqual(c, want) {
			yield(nil, status.Errorf(status.InvalidArg, "the content of rows %d to %d of dataset '%s' %w", want.First, want.First+want.Rows-1, s.uri, ErrChanged))
			return false
		}
		first = false
		return yield(c, err)
	}
}

// cutFile cuts the rows of a file from a place on.
func (s *Set) cutFile(ctx context.Context, src *source, from *Slice, sel *selection, c *cutter, h *hasher, yield func(*Chunk, error) bool) (more bool, err error) {
	more = true
	var stopped error
	err = s.scan(ctx, src, from, sel, true, func(rec *record) bool {
		if ctx.Err() != nil {
			return false
		}
		if c.o.Between != nil {
			if stopped = c.o.Between(ctx); stopped != nil {
				return false
			}
		}
		key, n := rec.identify(sel, h)
		if ended := c.add(src, rec, key, n, s.format.byOffset() && !compressed(src.file.key)); ended != nil {
			more = yield(ended, nil)
		}
		if more && c.full(key) {
			more = yield(c.end(), nil)
		}
		return more
	})
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = status.ErrCancelled
	default:
		err = stopped
	}
	return more, err
}

// identify returns the key of a row and about its size in bytes.
func (r *record) identify(sel *selection, h *hasher) (key Key, n int64) {
	if r.err != nil {
		return h.broken(r.raw), int64(len(r.raw))
	}
	for i := range r.cells {
		n += int64(len(r.cells[i].Data))
	}
	return h.row(sel.names, sel.order, r.cells), n
}

// Row is one row of a dataset. It may be kept.
type Row struct {
	Number int64 // in the dataset, from 0
	// File and Line are its place. Line is from 1, in formats without lines the number of the row in the file, from 0, and
	// -1 for a file that is one row.
	File string
	Line int64
	// Cells are in the order of the selected columns.
	Cells []Cell
	Key   Key
	// Err says why the row cannot be read. It has the code InvalidArg, and no place.
	Err error
}

// Place returns the file and the line of the row. For example, "b.jsonl:17".
func (r *Row) Place() string {
	if r.Line < 0 {
		return r.File
	}
	return r.File + ":" + strconv.FormatInt(r.Line, 10)
}

// rowsAtATime is the number of rows that are allocated together.
const rowsAtATime = 128

// Read streams the rows of a chunk; it reads no others. A row that cannot be read has an Err, and the sequence goes on. It
// ends behind the first error: ErrChanged for a file that is not as it was cut, Unavailable for what may pass.
func (s *Set) Read(ctx context.Context, c *Chunk) iter.Seq2[*Row, error] {
	return func(yield func(*Row, error) bool) {
		sel, err := s.selected(ctx)
		if err == nil && c.Columns != sel.id() {
			err = status.Errorf(status.InvalidArg, "chunk %d was cut with other columns than are read", c.Number)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		r := chunkReader{s: s, sel: sel, hash: newHasher(), sum: newHasher(), next: c.First, yield: yield}
		for i := range c.Slices {
			if err := r.slice(ctx, &c.Slices[i]); err != nil {
				yield(nil, err)
				return
			}
			if r.stopped {
				return
			}
		}
		if got := hexOf(r.sum.sum.Sum(nil)[:16]); got != c.Sum {
			yield(nil, status.Errorf(status.InvalidArg, "the content of rows %d to %d of dataset '%s' %w", c.First, c.First+c.Rows-1, s.uri, ErrChanged))
		}
	}
}

// chunkReader reads the slices of a chunk.
type chunkReader struct {
	s         *Set
	sel       *selection
	hash, sum *hasher
	next      int64
	yield     func(*Row, error) bool
	stopped   bool
	free      []Row
}

func (r *chunkReader) slice(ctx context.Context, sl *Slice) error {
	src := &source{r.s.place.store, file{sl.File, sl.Size, sl.Tag}, r.s.place.prefix}
	rows := int64(0)
	err := r.s.scan(ctx, src, sl, r.sel, false, func(rec *record) bool {
		if ctx.Err() != nil {
			return false
		}
		rows++
		r.stopped = !r.yield(r.row(src, rec), nil)
		return !r.stopped
	})
	switch {
	case r.stopped:
		return nil
	case err != nil:
		return err
	case ctx.Err() != nil:
		return status.ErrCancelled
	case rows != sl.Rows:
		return changedError(src.store.name(sl.File), strconv.FormatInt(sl.Rows, 10)+" rows", strconv.FormatInt(rows, 10)+" rows")
	}
	return nil
}

// row makes a row that may be kept.
func (r *chunkReader) row(src *source, rec *record) *Row {
	if len(r.free) == 0 {
		r.free = make([]Row, rowsAtATime)
	}
	row := &r.free[0]
	r.free = r.free[1:]
	key, _ := rec.identify(r.sel, r.hash)
	r.sum.sum.Write(key[:])
	*row = Row{Number: r.next, File: src.label(), Line: rec.line, Cells: rec.cells, Key: key, Err: rec.err}
	r.next++
	return row
}

// scan reads a slice, and names the file in errors.
func (s *Set) scan(ctx context.Context, src *source, sl *Slice, sel *selection, reuse bool, yield func(*record) bool) error {
	n, skip, part := sl.Row, int64(0), sl
	if s.format.byOffset() && compressed(src.file.key) { // read from the begin, in rows
		n, skip, part = 0, sl.Row, &Slice{}
	}
	err := s.format.scan(ctx, src, part, sel, reuse, func(rec *record) bool {
		rec.row = n
		if n++; rec.row < skip {
			return true
		}
		return yield(rec) && (part == sl || sl.Rows == 0 || n < sl.Row+sl.Rows)
	})
	if err != nil && ctx.Err() == nil {
		return failed(src, err)
	}
	return err
}

// Head returns the first n rows, fewer if there are not as many. It is for checks before a job starts.
func (s *Set) Head(ctx context.Context, n int) ([]*Row, error) {
	sel, err := s.selected(ctx)
	if err != nil {
		return nil, err
	}
	var rows []*Row
	r := chunkReader{s: s, sel: sel, hash: newHasher(), sum: newHasher()}
	for src, err := range s.sources(ctx) {
		if err == nil && len(rows) < n {
			err = s.scan(ctx, src, &Slice{}, sel, false, func(rec *record) bool {
				rows = append(rows, r.row(src, rec))
				return len(rows) < n
			})
		}
		if err != nil {
			return nil, err
		}
		if len(rows) >= n {
			break
		}
	}
	return rows, nil
}
