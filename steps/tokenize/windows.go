package tokenize

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

// windows goes through the windows of all rows of a batch, which lie in lots one after the other.
type windows struct {
	lots  []*lot
	lot   int
	next  int // In the lot.
	start int // The values of the lot before the next window.
}

// row is the row of the batch that the next window is of; ok is false behind the last one.
func (w *windows) row() (row int, ok bool) {
	for w.lot < len(w.lots) {
		if p := w.lots[w.lot]; w.next < len(p.rows) {
			return int(p.rows[w.next]), true
		}
		w.lot, w.next, w.start = w.lot+1, 0, 0
	}
	return 0, false
}

// tokens is how many tokens the next window has.
func (w *windows) tokens() int { return w.lots[w.lot].ends[w.next] - w.start }

// values are those of the next window in a column.
func (w *windows) values(column int) []int32 {
	p, width := w.lots[w.lot], columnWidth(column)
	return p.columns[column][w.start*width : p.ends[w.next]*width]
}

// step goes on to the window after the next one.
func (w *windows) step() { w.start, w.next = w.lots[w.lot].ends[w.next], w.next+1 }

// extent goes through the windows of rows below to: their number, and the tokens of the longest.
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

// writeWindows gives each request the windows of its texts as rows of its own, whose number is not that of the texts.
func (s *step) writeWindows(b *backends.Batch, lots []*lot) error {
	at := windows{lots: lots}
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

// windowOutputs makes the outputs of the next count windows. Rows are counted from first.
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
	fill, width := s.filling(column), longest*columnWidth(column)
	for i := range count {
		row, _ := at.row()
		if column == columnSamples {
			dst[i] = int64(row - first)
		} else {
			putRow(dst[i*width:][:width], at.values(column), fill, s.tok.PadsLeft())
		}
		at.step()
	}
}
