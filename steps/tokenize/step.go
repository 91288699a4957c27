package tokenize

import (
	"context"
	"iter"
	"unicode/utf8"

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
	if len(chunks) == 1 {
		s.encodeChunk(ctx, j, chunks[0])
	} else {
		s.encodeParallel(ctx, j, chunks)
	}
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

// encodeParallel encodes the chunks: the last one in this goroutine, the others in goroutines while the step has fewer than GOMAXPROCS.
// It is a separate function so that small batches do not allocate its closures.
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
		shape := columnDims(column, longest)
		if s.batched || s.windows > 0 {
			shape = shape.Prepend(int64(count))
		}
		t, err := tensor.New(b.Allocator, tensor.Int64, shape)
		if err != nil {
			return err
		}
		out[port].Release()
		out[port] = t
		dst, fill, width := tensor.Slice[int64](&t), s.padValue(column), 1 // numbers of a token
		if column == columnOffsets {
			width = 2
		}
		for p, i := range windows(chunks, first, end) {
			if column == columnSamples {
				dst[0], dst = int64(int(p.rows[i])-first), dst[1:]
				continue
			}
			if column == columnCount {
				dst[0], dst = int64(p.counts[i]), dst[1:]
				continue
			}
			writeRow(dst[:longest*width], p.columns[column][p.ends[i]*width:p.ends[i+1]*width], fill, s.tok.PadsLeft())
			dst = dst[longest*width:]
		}
	}
	return nil
}

// The columns: the values of a row in each output.
const (
	columnIDs = iota
	columnMask
	columnTypes
	columnSpecial
	columnOffsets
	columnWords
	columnSequences
	columns
	// columnSamples is the row of its request that a window belongs to, columnCount the number of tokens of its text. They have one value
	// per window.
	columnSamples
	columnCount
)

// columnDims returns the dims of a window of so many tokens in a column.
func columnDims(column, tokens int) tensor.Shape {
	switch column {
	case columnSamples, columnCount:
		return tensor.Of(1)
	case columnOffsets:
		return tensor.Of(int64(tokens), 2)
	default:
		return tensor.Of(int64(tokens))
	}
}

// padValue returns the value that pads rows to the longest.
func (s *step) padValue(column int) int64 {
	switch column {
	case columnIDs:
		return int64(s.tok.PadID())
	case columnTypes:
		return int64(s.tok.PadTypeID())
	case columnSpecial:
		return 1
	case columnWords, columnSequences:
		return tokenizer.None
	default:
		return 0
	}
}

// chunk is a range of a batch's rows that one goroutine encodes.
type chunk struct {
	enc      tokenizer.Encoding
	from, to int
	columns  [columns][]int32 // the values of the rows, one row after the other
	ends     []int            // 0, then the number of tokens up to the end of each window, which is a row where there are no more
	rows     []int32          // the row of each window
	counts   []int32          // the number of tokens of the text of each window
	failed   []failure
	chars    [2][]int32 // the code point number of each byte of the row's texts
}

// failure is a row that cannot be encoded.
type failure struct {
	row int
	err error
}

func (p *chunk) reset(from int) {
	for i := range p.columns {
		p.columns[i] = p.columns[i][:0]
	}
	p.from, p.to, p.ends, p.rows, p.counts, p.failed = from, from, append(p.ends[:0], 0), p.rows[:0], p.counts[:0], p.failed[:0]
}

// encodeChunk encodes the rows of p. A row that cannot be encoded stays empty.
func (s *step) encodeChunk(ctx context.Context, j *job, p *chunk) {
	p.enc.TrackOffsets, p.enc.KeepOverflow, p.enc.MaxWindows = s.tracked, s.windows > 0, s.windows
	for row := p.from; row < p.to && ctx.Err() == nil; row++ {
		var pair []byte
		if len(j.pairs) > 0 {
			pair = j.pairs[row]
		}
		if err := s.encode(p, row, j.texts[row], pair, len(j.pairs) > 0); err != nil {
			p.failed = append(p.failed, failure{row, err})
			if s.windows == 0 {
				p.endWindow(row, 0)
			}
		}
	}
}

// encode appends one row to p, or its windows.
func (s *step) encode(p *chunk, row int, text, pair []byte, paired bool) error {
	for port, t := range [...][]byte{portText: text, portPair: pair} {
		if len(t) > s.maxBytes {
			return status.Errorf(status.InvalidArg, "input '%s' has a text of %d bytes, expected at most %d (parameter '%s')",
				inputNames[port], len(t), s.maxBytes, "max_bytes")
		}
	}
	var err error
	if paired {
		err = s.tok.EncodePair(&p.enc, text, pair)
	} else {
		err = s.tok.Encode(&p.enc, text)
	}
	if err != nil {
		return status.Errorf(status.InvalidArg, "input 'TEXT': %v", err)
	}
	n := p.enc.Len()
	if s.limit > 0 && n > s.limit {
		return status.Errorf(status.InvalidArg, "input 'TEXT' has %d tokens, expected at most %d", n, s.limit)
	}
	chars := s.countChars(p, text, pair)
	s.addRow(p, &p.enc, chars)
	p.endWindow(row, p.enc.Total)
	for _, w := range p.enc.Overflow {
		s.addRow(p, w, chars)
		p.endWindow(row, p.enc.Total)
	}
	return nil
}

// addRow appends the values of one row, or window.
func (s *step) addRow(p *chunk, e *tokenizer.Encoding, chars [2][]int32) {
	p.add(columnIDs, e.IDs)
	p.add(columnMask, e.Attention)
	p.add(columnTypes, e.TypeIDs)
	if s.more {
		p.add(columnSpecial, e.Special)
		p.add(columnWords, e.Words)
		p.add(columnSequences, e.Sequences)
		s.addOffsets(p, e, chars)
	}
}

// endWindow ends a window of a row, whose text has so many tokens.
func (p *chunk) endWindow(row, tokens int) {
	p.ends, p.rows, p.counts = append(p.ends, len(p.columns[columnIDs])), append(p.rows, int32(row)), append(p.counts, int32(tokens))
}

func (p *chunk) add(column int, values []int32) {
	p.columns[column] = append(p.columns[column], values...)
}

// countChars numbers the code points of texts. The result is nil for texts whose offsets are bytes, or are ASCII.
func (s *step) countChars(p *chunk, text, pair []byte) (chars [2][]int32) {
	if !s.tracked || s.inBytes {
		return chars
	}
	for i, t := range [...][]byte{text, pair} {
		if !tokenizer.IsASCII(t) {
			p.chars[i] = appendChars(p.chars[i][:0], t)
			chars[i] = p.chars[i]
		}
	}
	return chars
}

// addOffsets appends the offsets, in code points where chars has them and in bytes otherwise.
func (s *step) addOffsets(p *chunk, e *tokenizer.Encoding, chars [2][]int32) {
	if !s.tracked {
		return
	}
	out := p.columns[columnOffsets]
	for i, at := range e.Offsets {
		if which := e.Sequences[i]; which != tokenizer.None && chars[which] != nil {
			at = tokenizer.Span{Start: charAt(chars[which], at.Start), End: charAt(chars[which], at.End)}
		}
		out = append(out, at.Start, at.End)
	}
	p.columns[columnOffsets] = out
}

// appendChars appends the number of code points before each byte of text, and before its end.
func appendChars(dst []int32, text []byte) []int32 {
	n := int32(-1)
	for _, c := range text {
		if utf8.RuneStart(c) {
			n++
		}
		dst = append(dst, n)
	}
	return append(dst, n+1)
}

// charAt returns the number of the code point at a byte. As in the reference, some tokens end after their text.
func charAt(chars []int32, at int32) int32 {
	if int(at) < len(chars) {
		return chars[at]
	}
	return at
}
