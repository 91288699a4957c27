//go:build cgo

package kernels

import (
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/compute"
	"github.com/tutti-server/tutti/core/tensor/cuda"
)

// Space implements compute.Kernels.
func (k *Set) Space(s tensor.Stream, dst, src *tensor.Tensor, ycc bool) error {
	var a cuda.Args
	n, from := width(src)
	_, ch := width(dst)
	buffer(buffer(&a, src), dst).Long(int64(n)).Int(from).Int(ch).Int(flag(ycc))
	return k.each(s, "to_space", n, &a)
}

// weights are those of one axis, at the device.
type weights struct{ first, count, values *tensor.Buffer }

// newWeights computes the weights of an axis.
func (k *Set) newWeights(s tensor.Stream, t *temps, x *compute.Axis, f compute.Filter) (w weights, err error) {
	var a cuda.Args
	for _, b := range []struct {
		to **tensor.Buffer
		n  int
	}{{&w.first, x.N}, {&w.count, x.N}, {&w.values, x.N * x.Size}} {
		if *b.to, err = t.alloc(4 * b.n); err != nil {
			return w, err
		}
	}
	a.Buffer(w.first, 0).Buffer(w.count, 0).Buffer(w.values, 0).Int(int(f)).Long(int64(x.In)).Long(int64(x.From)).Long(int64(x.N)).Long(int64(x.Size))
	return w, k.each(s, "resize_weights", x.N, a.Double(x.Scale).Double(x.Support).Double(x.Inverse))
}

// temps are buffers that are released behind the work of a stream.
type temps struct {
	from tensor.Allocator
	list [8]*tensor.Buffer
	n    int
}

func (t *temps) alloc(n int) (*tensor.Buffer, error) {
	b, err := t.from.Alloc(n)
	if err == nil {
		t.list[t.n] = b
		t.n++
	}
	return b, err
}

func (t *temps) release(s tensor.Stream) {
	if t.n == 0 {
		return
	}
	e := s.Record()
	for _, b := range t.list[:t.n] {
		b.UsedUntil(e)
		b.Release()
	}
}

// Resize implements compute.Kernels. It computes only the rows, or with ColumnsFirst the columns, between the passes that the second
// pass reads.
func (k *Set) Resize(s tensor.Stream, r *compute.Resize) error {
	t := temps{from: r.Alloc}
	defer t.release(s)
	x, err := k.newWeights(s, &t, &r.X, r.Filter)
	if err != nil {
		return err
	}
	y, err := k.newWeights(s, &t, &r.Y, r.Filter)
	if err != nil {
		return err
	}
	ch, pitch := r.Channels, r.Width*r.Channels
	if r.ColumnsFirst {
		wide := (r.X.High - r.X.Low) * ch
		mid, err := t.alloc(r.Images * r.Y.N * wide)
		if err != nil {
			return err
		}
		if err := k.down(s, r, y, r.Src, r.SrcOff, mid, 0, shape{r.Height, r.Top, pitch, (r.Left + r.X.Low) * ch, wide}); err != nil {
			return err
		}
		return k.along(s, r, x, mid, 0, r.Dst, r.DstOff, r.Y.N, shape{r.Y.N, 0, wide, -r.X.Low, 0})
	}
	rows := r.Y.High - r.Y.Low
	mid, err := t.alloc(r.Images * rows * r.X.N * ch)
	if err != nil {
		return err
	}
	if err := k.along(s, r, x, r.Src, r.SrcOff, mid, 0, rows, shape{r.Height, r.Top + r.Y.Low, pitch, r.Left, 0}); err != nil {
		return err
	}
	return k.down(s, r, y, mid, 0, r.Dst, r.DstOff, shape{rows, -r.Y.Low, r.X.N * ch, 0, r.X.N * ch})
}

// shape is where a pass reads: images of height rows of pitch samples, from row top and from sample or pixel left on, wide samples.
type shape struct{ height, top, pitch, left, wide int }

// along launches resize_x for rows rows of each image.
func (k *Set) along(s tensor.Stream, r *compute.Resize, w weights, src *tensor.Buffer, srcOff int, dst *tensor.Buffer, dstOff, rows int, p shape) error {
	var a cuda.Args
	n := r.Images * rows * r.X.N * r.Channels
	a.Buffer(src, srcOff).Buffer(dst, dstOff).Buffer(w.first, 0).Buffer(w.count, 0).Buffer(w.values, 0).Long(int64(r.X.Size)).Long(int64(n))
	a.Long(int64(rows)).Long(int64(p.height)).Long(int64(p.top)).Long(int64(p.pitch)).Long(int64(p.left)).Long(int64(r.X.N)).Int(r.Channels)
	return k.each(s, "resize_x", n, &a)
}

// down launches resize_y.
func (k *Set) down(s tensor.Stream, r *compute.Resize, w weights, src *tensor.Buffer, srcOff int, dst *tensor.Buffer, dstOff int, p shape) error {
	var a cuda.Args
	n := r.Images * r.Y.N * p.wide
	a.Buffer(src, srcOff).Buffer(dst, dstOff).Buffer(w.first, 0).Buffer(w.count, 0).Buffer(w.values, 0).Long(int64(r.Y.Size)).Long(int64(n))
	a.Long(int64(p.height)).Long(int64(p.top)).Long(int64(p.pitch)).Long(int64(p.left)).Long(int64(p.wide)).Long(int64(r.Y.N))
	return k.each(s, "resize_y", n, &a)
}

// Place implements compute.Kernels.
func (k *Set) Place(s tensor.Stream, p *compute.Place) error {
	var a cuda.Args
	n := p.Images * p.Width * p.Height * p.Channels
	var order, blank uint32
	for c := range 3 {
		order |= uint32(p.Order[c]) << (8 * c)
		blank |= uint32(p.Blank[c]) << (8 * c)
	}
	a.Buffer(p.Src, p.SrcOff).Buffer(p.Dst, p.DstOff).Buffer(p.Table, 0).Long(int64(n)).Long(int64(p.SrcW)).Long(int64(p.SrcH)).Long(int64(p.X)).Long(int64(p.Y))
	a.Long(int64(p.Width)).Long(int64(p.Height)).Int(p.Channels).Int(int(order)).Int(int(blank)).Int(flag(p.Planes)).Int(p.Size)
	return k.each(s, "place", n, &a)
}
