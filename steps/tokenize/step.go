package tokenize

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/tokenizer"
	"github.com/tutti-server/tutti/steps"
)

// step is the step "tokenize".
type step struct {
	tok      *tokenizer.Tokenizer
	columns  []int // what each output has of a row
	tracked  bool  // an output needs the offsets
	inBytes  bool  // offsets count bytes, not code points
	batched  bool
	maxBytes int  // of one text
	limit    int  // of tokens in a row; 0 for none, or where rows are truncated
	windows  int  // most windows of a text that is too long; 0 where it is cut
	more     bool // there are more outputs than those that are always there
	helpers  *semaphore.Weighted
	most     int // lots of a batch
	scratch  pool.Of[job]
}

var _ steps.Step = (*step)(nil)

// job is one batch at work: its texts, and its rows in lots that are encoded side by side.
type job struct {
	texts, pairs [][]byte
	lots         []*lot
	bytes        int
}

// lotBytes is how much text is worth a lot of its own: some 100 us of work, against a few to hand it over.
const lotBytes = 16 << 10

// Run encodes one text, or pair of texts, per row.
//
// hot: no allocation once the pooled memory has grown, except to hand lots of a large batch over.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	j := s.scratch.Get()
	defer s.recycle(j)
	if err := j.read(b); err != nil {
		return err
	}
	lots := j.divide(min(s.most, 1+j.bytes/lotBytes))
	s.encodeAll(ctx, j, lots)
	if err := ctx.Err(); err != nil {
		return err
	}
	longest := 0
	for _, p := range lots {
		longest = max(longest, p.longest)
		for _, f := range p.failed {
			b.Fail(f.row, f.err)
		}
	}
	if s.windows > 0 {
		return s.writeWindows(b, lots)
	}
	for port := range s.columns {
		if err := s.write(b, lots, port, longest); err != nil {
			return err
		}
	}
	return nil
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
				return status.Errorf(status.InvalidArg, "input '%s' ends before row %d of %d", inputName(port), row, b.Rows)
			}
			*list, rest, j.bytes = append(*list, text), after, j.bytes+len(text)
		}
	}
	return nil
}

// divide makes at most n lots of the rows, of about the same number of bytes.
func (j *job) divide(n int) []*lot {
	n = max(1, min(n, len(j.texts)))
	for len(j.lots) < n {
		j.lots = append(j.lots, new(lot))
	}
	row, done := 0, 0
	for i, p := range j.lots[:n] {
		p.reset(row)
		for p.to = row; p.to < len(j.texts) && (i == n-1 || done < j.bytes*(i+1)/n); p.to++ {
			if done += len(j.texts[p.to]); len(j.pairs) > 0 {
				done += len(j.pairs[p.to])
			}
		}
		row = p.to
	}
	return j.lots[:n]
}

// encodeAll encodes the lots: the last one here, the others where processors are free of other batches' lots.
func (s *step) encodeAll(ctx context.Context, j *job, lots []*lot) {
	if len(lots) == 1 {
		s.encodeLot(ctx, j, lots[0])
		return
	}
	s.encodeSpread(ctx, j, lots)
}

// encodeSpread stands alone so that its closures cost a small batch nothing.
func (s *step) encodeSpread(ctx context.Context, j *job, lots []*lot) {
	var group recovery.Group
	defer group.Wait()
	for _, p := range lots[:len(lots)-1] {
		if !s.helpers.TryAcquire(1) {
			s.encodeLot(ctx, j, p)
			continue
		}
		group.Go(func() {
			defer s.helpers.Release(1)
			s.encodeLot(ctx, j, p)
		})
	}
	s.encodeLot(ctx, j, lots[len(lots)-1])
}

// keepBytes is the largest text whose memory is kept for the next batch, and keepValues the most values of its rows.
const (
	keepBytes  = 1 << 18
	keepValues = 1 << 20
)

// recycle keeps the memory of usual batches, and no reference to their texts.
func (s *step) recycle(j *job) {
	for _, p := range j.lots {
		if p.enc.TextMemory() > keepBytes || cap(p.columns[columnIDs]) > keepValues {
			return
		}
		p.enc.Release()
	}
	clear(j.texts)
	clear(j.pairs)
	s.scratch.Put(j)
}

// write makes an output of its column.
func (s *step) write(b *backends.Batch, lots []*lot, port, longest int) error {
	column := s.columns[port]
	width, shape := columnWidth(column), tensor.Of(int64(longest))
	if width > 1 {
		shape = tensor.Of(int64(longest), int64(width))
	}
	if s.batched {
		shape = shape.Prepend(int64(b.Rows))
	}
	t, err := b.Alloc(port, tensor.Int64, shape)
	if err != nil {
		return err
	}
	out, fill := tensor.Slice[int64](t), s.filling(column)
	for _, p := range lots {
		start := 0
		for _, end := range p.ends {
			row := out[:longest*width]
			out = out[longest*width:]
			putRow(row, p.columns[column][start*width:end*width], fill, s.tok.PadsLeft())
			start = end
		}
	}
	return nil
}

// putRow writes the values of a row and what fills it up.
func putRow(row []int64, values []int32, fill int64, left bool) {
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
