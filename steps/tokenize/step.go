package tokenize

import (
	"context"
	"iter"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/tokenizer"
)

// step is the step "tokenize". It never changes after loading, but for the pool.
type step struct {
	tok      *tokenizer.Tokenizer
	columns  []int // the column of each output
	tracked  bool  // an output needs the offsets
	inBytes  bool  // offsets count bytes, not code points
	batched  bool
	maxBytes int  // of one text
	limit    int  // of tokens in a row; 0 for none, or where rows are truncated
	windows  int  // most windows of a text that is too long; 0 where it is cut
	more     bool // some optional output is declared
	helpers  *semaphore.Weighted
	most     int // the largest number of chunks of a batch
	scratch  pool.Of[job]
}

// job is the memory of one batch: its texts, and its rows in chunks that are encoded in parallel.
type job struct {
	texts, pairs [][]byte
	chunks       []*chunk
	bytes        int
}

// chunkBytes is the size of text that is worth a goroutine: about 100 us of work, against a few to start it.
const chunkBytes = 16 << 10

// Run encodes one text, or pair of texts, per row.
//
// hot: no allocation once the pooled memory has grown, except for the goroutines of a large batch.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	j := s.scratch.Get()
	defer s.recycle(j)
	if err := j.read(b); err != nil {
		return err
	}
	chunks := j.divide(min(s.most, 1+j.bytes/chunkBytes))
	s.encodeAll(ctx, j, chunks)
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, p := range chunks {
		for _, f := range p.failed {
			b.Fail(f.row, f.err)
		}
	}
	if s.windows > 0 {
		return s.writeWindows(b, chunks)
	}
	return s.write(b, b.Out, chunks, 0, b.Rows)
}

// read finds the texts of the rows.
func (j *job) read(b *backends.Batch) error {
	j.texts, j.pairs, j.bytes = j.texts[:0], j.pairs[:0], 0
	ins := [...]*[][]byte{portText: &j.texts, portPair: &j.pairs}
	for port, list := range ins {
		if port == portPair && !b.In[portPair].Present() {
			break
		}
		rest := b.In[port].Bytes()
		for row := range b.Rows {
			text, after, ok := tensor.NextBytes(rest)
			if !ok {
				return status.Errorf(status.InvalidArg, "input '%s' ends before row %d of %d", inputNames[port], row, b.Rows)
			}
			*list, rest, j.bytes = append(*list, text), after, j.bytes+len(text)
		}
	}
	return nil
}

// divide cuts the rows into at most n chunks of about the same number of bytes.
func (j *job) divide(n int) []*chunk {
	n = max(1, min(n, len(j.texts)))
	for len(j.chunks) < n {
		j.chunks = append(j.chunks, new(chunk))
	}
	row, done := 0, 0
	for i, p := range j.chunks[:n] {
		p.reset(row)
		for p.to = row; p.to < len(j.texts) && (i == n-1 || done < j.bytes*(i+1)/n); p.to++ {
			if done += len(j.texts[p.to]); len(j.pairs) > 0 {
				done += len(j.pairs[p.to])
			}
		}
		row = p.to
	}
	return j.chunks[:n]
}

// encodeAll encodes the chunks: the last one in this goroutine, the others in goroutines while the step has fewer than GOMAXPROCS.
func (s *step) encodeAll(ctx context.Context, j *job, chunks []*chunk) {
	if len(chunks) == 1 {
		s.encodeChunk(ctx, j, chunks[0])
		return
	}
	s.encodeParallel(ctx, j, chunks)
}

// encodeParallel is a separate function so that small batches do not allocate its closures.
func (s *step) encodeParallel(ctx context.Context, j *job, chunks []*chunk) {
	var group recovery.Group
	defer group.Wait()
	for _, p := range chunks[:len(chunks)-1] {
		if !s.helpers.TryAcquire(1) {
			s.encodeChunk(ctx, j, p)
			continue
		}
		group.Go(func() {
			defer s.helpers.Release(1)
			s.encodeChunk(ctx, j, p)
		})
	}
	s.encodeChunk(ctx, j, chunks[len(chunks)-1])
}

// The largest memory that the pool keeps: for a text in bytes, and for the values of the rows.
const (
	maxPooledBytes  = 1 << 18
	maxPooledValues = 1 << 20
)

// recycle returns the memory of a usual batch to the pool, without references to its texts.
func (s *step) recycle(j *job) {
	for _, p := range j.chunks {
		if p.enc.TextMemory() > maxPooledBytes || cap(p.columns[columnIDs]) > maxPooledValues {
			return
		}
		p.enc.Release()
	}
	clear(j.texts)
	clear(j.pairs)
	s.scratch.Put(j)
}

// writeRow writes the values of a row and its padding.
func writeRow(row []int64, values []int32, fill int64, left bool) {
	more := row[len(values):]
	if left {
		more, row = row[:len(more)], row[len(more):]
	}
	for i, v := range values {
		row[i] = int64(v)
	}
	for i := range more {
		more[i] = fill
	}
}

// windows iterates over the windows of the rows from first to below end: their chunks and numbers in them.
func windows(chunks []*chunk, first, end int) iter.Seq2[*chunk, int] {
	return func(yield func(*chunk, int) bool) {
		for _, p := range chunks {
			for i, row := range p.rows {
				if int(row) >= first && int(row) < end && !yield(p, i) {
					return
				}
			}
		}
	}
}

// writeWindows allocates the outputs of each request: a row per window, so that a request can have more rows than texts.
func (s *step) writeWindows(b *backends.Batch, chunks []*chunk) error {
	for i := range b.Requests {
		q := &b.Requests[i]
		if q.Err == nil {
			if !s.batched { // there is one request, and the outputs have no rows
				return s.write(b, b.Out, chunks, 0, q.Rows)
			}
			out := make([]tensor.Tensor, len(s.columns))
			if err := s.write(b, out, chunks, q.First, q.First+q.Rows); err != nil {
				tensor.ReleaseAll(out)
				return err
			}
			q.Out = out
		}
	}
	return nil
}

// write allocates and fills the outputs of the windows of the rows from first to below end.
func (s *step) write(b *backends.Batch, out []tensor.Tensor, chunks []*chunk, first, end int) error {
	count, longest := 0, 0
	for p, i := range windows(chunks, first, end) {
		count, longest = count+1, max(longest, p.ends[i+1]-p.ends[i])
	}
	for port, column := range s.columns {
		t, err := tensor.New(b.Allocator, tensor.Int64, s.shape(column, count, longest))
		if err != nil {
			return err
		}
		out[port].Release()
		out[port] = t
		dst, fill, width := tensor.Slice[int64](&t), s.padValue(column), columnWidth(column)
		for p, i := range windows(chunks, first, end) {
			if column == columnSamples {
				dst[0], dst = int64(int(p.rows[i])-first), dst[1:]
				continue
			}
			writeRow(dst[:longest*width], p.columns[column][p.ends[i]*width:p.ends[i+1]*width], fill, s.tok.PadsLeft())
			dst = dst[longest*width:]
		}
	}
	return nil
}

// shape returns the shape of count windows in a column.
func (s *step) shape(column, count, longest int) tensor.Shape {
	shape := tensor.Of(int64(longest))
	switch {
	case column == columnSamples:
		shape = tensor.Of(1)
	case columnWidth(column) > 1:
		shape = tensor.Of(int64(longest), int64(columnWidth(column)))
	}
	if s.batched || s.windows > 0 {
		return shape.Prepend(int64(count))
	}
	return shape
}
