package exec

import (
	"slices"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// windows are the positions of a stream that a window may need, in order. A position is an index of a tensor's first dimension, behind the
// batch dimension if there is one. For example, an audio stream that comes in pieces of 1,600 samples has 1,600 positions in each item.
type windows struct {
	items []cells
	skip  int // positions of the first item that no window needs any more
	have  int // positions in items, without skip
	seen  int // of these, how many were in a window
	// held counts the bytes of the items; nil where the request bounds them.
	held *atomic.Int64
}

// cells is one item: per port a tensor, absent when it was left out, and where its positions are.
type cells struct {
	in        []tensor.Tensor
	ends      [][]int // per port of BYTES: where each position of each row ends
	positions int
	rows      int // 1 without a batch dimension
}

func (w *windows) reset() {
	for i := range w.items {
		w.release(&w.items[i])
	}
	*w = windows{held: w.held}
}

// release releases the tensors of an item.
func (w *windows) release(c *cells) {
	if w.held != nil {
		w.held.Add(-bytesOf(c.in))
	}
	tensor.ReleaseAll(c.in)
}

func bytesOf(list []tensor.Tensor) (n int64) {
	for i := range list {
		n += int64(list[i].Len)
	}
	return n
}

// empty reports whether there are no positions that no window has had.
func (w *windows) empty() bool { return w.have <= w.seen }

// takeWindow returns the next window, nil while its positions are not all there.
func (b *begun) takeWindow(o *operator, alloc tensor.Allocator) ([]tensor.Tensor, error) {
	s, w, how := &o.sides[0], &o.window, b.windows.Operation.Window
	for w.have < how.Size {
		item, there := s.early[s.next]
		if !there {
			break
		}
		delete(s.early, s.next)
		s.next++
		if err := b.addItem(w, item); err != nil {
			tensor.ReleaseAll(item)
			return nil, err
		}
	}
	switch {
	case w.have >= how.Size:
		out, err := b.cutWindow(w, how.Size, how.Size, alloc)
		w.advance(how.Size, how.Stride)
		return out, err
	case !s.over() || w.empty():
		return nil, nil
	}
	defer w.reset()
	switch how.Tail {
	case config.TailDrop:
		return nil, nil
	case config.TailPad:
		return b.cutWindow(w, w.have, how.Size, alloc)
	default:
		return b.cutWindow(w, w.have, w.have, alloc)
	}
}

// positionsAt returns the dimension that has the positions: the first one behind the batch.
func (b *begun) positionsAt() int {
	if b.windows.Signature.MaxBatch > 0 {
		return 1
	}
	return 0
}

// addItem appends an item, whose tensors must have as many positions each.
func (b *begun) addItem(w *windows, in []tensor.Tensor) error {
	sig := b.windows.Signature
	c := cells{in: in, ends: make([][]int, len(in)), rows: 1}
	batched, first := b.positionsAt(), -1
	for port := range in {
		t := &in[port]
		if !t.Present() {
			continue
		}
		name := sig.Inputs[port].Name
		if t.Shape.Rank() <= batched {
			return status.Errorf(status.InvalidArg, "'%s' makes windows of the tensor '%s' of shape %s, which has no dimension of positions", b.windows.Name, name, t.Shape)
		}
		rows, positions := 1, int(t.Shape.Dim(batched))
		if batched > 0 {
			rows = int(t.Shape.Dim(0))
		}
		switch {
		case first < 0:
			first, c.positions, c.rows = port, positions, rows
		case positions != c.positions || rows != c.rows:
			return status.Errorf(status.InvalidArg, "'%s' makes windows of the tensors '%s' of shape %s and '%s' of shape %s, expected as many positions in both",
				b.windows.Name, sig.Inputs[first].Name, in[first].Shape, name, t.Shape)
		}
		if len(w.items) > 0 {
			if err := b.fits(w, port, t, batched); err != nil {
				return err
			}
		}
		if t.DType == tensor.Bytes {
			c.ends[port] = bytesEnds(t, batched+1)
		}
	}
	if first < 0 || c.positions*c.rows == 0 { // nothing in it
		tensor.ReleaseAll(in)
		return nil
	}
	if w.held != nil {
		w.held.Add(bytesOf(in))
	}
	w.items = append(w.items, c)
	w.have += c.positions
	return nil
}

// fits checks that a tensor has the shape of those before it, except for the positions.
func (b *begun) fits(w *windows, port int, t *tensor.Tensor, batched int) error {
	before := &w.items[len(w.items)-1].in[port]
	same := before.Present() && before.DType == t.DType && before.Shape.Rank() == t.Shape.Rank()
	for i := 0; same && i < t.Shape.Rank(); i++ {
		same = i == batched || before.Shape.Dim(i) == t.Shape.Dim(i)
	}
	if !same {
		return status.Errorf(status.InvalidArg, "'%s' makes windows of the tensor '%s' of type %s and shape %s after %s of shape %s, expected equal types, and shapes that differ in the number of positions only",
			b.windows.Name, b.windows.Signature.Inputs[port].Name, t.DType, t.Shape, before.DType, before.Shape)
	}
	return nil
}

// span returns the memory of positions from to to of a row.
func (c *cells) span(port, row, from, to int) []byte {
	data := c.in[port].Bytes()
	if ends := c.ends[port]; ends != nil {
		return data[ends[row*c.positions+from]:ends[row*c.positions+to]]
	}
	size := len(data) / (c.rows * c.positions)
	return data[(row*c.positions+from)*size : (row*c.positions+to)*size]
}

// cutWindow returns the first n positions, followed by zeros or empty strings up to size.
func (b *begun) cutWindow(w *windows, n, size int, alloc tensor.Allocator) ([]tensor.Tensor, error) {
	out := make([]tensor.Tensor, len(b.windows.Signature.Inputs))
	for port := range out {
		if !w.items[0].in[port].Present() {
			continue
		}
		var err error
		if out[port], err = b.cutTensor(w, port, n, size, alloc); err != nil {
			tensor.ReleaseAll(out)
			return nil, err
		}
	}
	return out, nil
}

func (b *begun) cutTensor(w *windows, port, n, size int, alloc tensor.Allocator) (tensor.Tensor, error) {
	like, rows := &w.items[0].in[port], w.items[0].rows
	dims := like.Shape.Dims()
	batched := b.positionsAt()
	shape := slices.Clone(dims)
	shape[batched] = int64(size)
	per := 1 // elements of a position
	for _, d := range dims[batched+1:] {
		per *= int(d)
	}
	length, padding := 0, per*like.DType.Size()
	if like.DType == tensor.Bytes {
		padding = per * 4 // each empty string is its length
	}
	for row := range rows {
		w.spans(port, row, n, func(data []byte) { length += len(data) })
	}
	t, err := tensor.NewBytes(alloc, tensor.Of(shape...), length+rows*(size-n)*padding)
	if err != nil {
		return t, err
	}
	t.DType = like.DType
	dst := t.Bytes()
	for row := range rows {
		w.spans(port, row, n, func(data []byte) { dst = dst[copy(dst, data):] })
		clear(dst[:(size-n)*padding])
		dst = dst[(size-n)*padding:]
	}
	return t, nil
}

// spans passes the memory of the first n positions of a row to f.
func (w *windows) spans(port, row, n int, f func([]byte)) {
	from := w.skip
	for i := 0; n > 0; i++ {
		c := &w.items[i]
		take := min(n, c.positions-from)
		f(c.span(port, row, from, from+take))
		n, from = n-take, 0
	}
}

// advance moves to the begin of the next window, and releases the items before it.
func (w *windows) advance(size, stride int) {
	w.seen = size - stride
	w.have -= stride
	w.skip += stride
	for len(w.items) > 0 && w.skip >= w.items[0].positions {
		w.skip -= w.items[0].positions
		w.release(&w.items[0])
		w.items = slices.Delete(w.items, 0, 1)
	}
}
