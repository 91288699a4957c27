package tokenize

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

// windows iterates over the windows of all rows of a batch, chunk by chunk.
type windows struct {
	chunks []*chunk
	chunk  int
	next   int // In the chunk.
	start  int // The values of the chunk before the next window.
}

// row returns the row of the batch that the next window belongs to; ok is false after the last one.
func (w *windows) row() (row int, ok bool) {
	for w.chunk < len(w.chunks) {
		if p := w.chunks[w.chunk]; w.next < len(p.rows) {
			return int(p.rows[w.next]), true
		}
		w.chunk, w.next, w.start = w.chunk+1, 0, 0
	}
	return 0, false
}

// tokens returns the number of tokens in the next window.
func (w *windows) tokens() int { return w.chunks[w.chunk].ends[w.next] - w.start }

// values returns the values of the next window in a column.
func (w *windows) values(column int) []int32 {
	p, width := w.chunks[w.chunk], columnWidth(column)
	return p.columns[column][w.start*width : p.ends[w.next]*width]
}

// step skips the next window.
func (w *windows) step() { w.start, w.next = w.chunks[w.chunk].ends[w.next], w.next+1 }

// extent skips the windows of rows below to. It returns their number and the tokens of the longest.
func (w *windows) extent(to int) (count, longest int) {
	for {
		row, ok := w.row()
		if !ok || row >= to {
			return count, longest
		}
		count, longest = count+1, max(longest, w.tokens())
		w.step()
	}
}

// writeWindows allocates the outputs of each request: a row per window, so that a request can have more rows than texts.
func (s *step) writeWindows(b *backends.Batch, chunks []*chunk) error {
	at := windows{chunks: chunks}
	for i := range b.Requests {
		q := &b.Requests[i]
		end := at
		count, longest := end.extent(q.First + q.Rows)
		if q.Err == nil {
			out, err := s.windowOutputs(b.Allocator, at, count, longest, q.First)
			if err != nil {
				return err
			}
			if !s.batched { // There is one request, and the outputs have no rows.
				for port := range out {
					b.SetOutput(port, out[port])
				}
				return nil
			}
			q.Out = out
		}
		at = end
	}
	return nil
}

// windowOutputs allocates and fills the outputs of the next count windows. Samples are numbered from row first.
func (s *step) windowOutputs(a tensor.Allocator, at windows, count, longest, first int) ([]tensor.Tensor, error) {
	out := make([]tensor.Tensor, len(s.columns))
	for port, column := range s.columns {
		shape := tensor.Of(int64(count), int64(longest))
		switch {
		case column == columnSamples:
			shape = tensor.Of(int64(count), 1)
		case columnWidth(column) > 1:
			shape = tensor.Of(int64(count), int64(longest), int64(columnWidth(column)))
		}
		var err error
		if out[port], err = tensor.New(a, tensor.Int64, shape); err != nil {
			tensor.ReleaseAll(out)
			return nil, err
		}
		s.fillWindows(tensor.Slice[int64](&out[port]), at, column, count, longest, first)
	}
	return out, nil
}

func (s *step) fillWindows(dst []int64, at windows, column, count, longest, first int) {
	fill, width := s.padValue(column), longest*columnWidth(column)
	for i := range count {
		row, _ := at.row()
		if column == columnSamples {
			dst[i] = int64(row - first)
		} else {
			writeRow(dst[i*width:][:width], at.values(column), fill, s.tok.PadsLeft())
		}
		at.step()
	}
}
