package image

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// outputs are the tensors of a batch, and its boxes.
type outputs struct {
	image    []byte
	geometry []float32
	boxes    []float32
	size, n  int // Bytes of an image, images of a row.
}

// slot is one row of a batch.
type slot struct {
	image    []byte
	geometry []float32
	boxes    []float32
}

// outputs allocates what the step gives.
func (s *step) outputs(b *backends.Batch) (o outputs, err error) {
	shape := s.shape()
	o.n, o.size = 1, s.layout.bytes()
	if s.boxes > 0 {
		if o.n, err = s.countBoxes(b); err != nil {
			return o, err
		}
		o.boxes = tensor.Slice[float32](&b.In[1])
		shape = shape.Prepend(int64(o.n))
	}
	t, err := b.Alloc(0, s.layout.dtype, s.full(shape, b.Rows))
	if err != nil {
		return o, err
	}
	o.image = t.Bytes()
	if s.geometry {
		if t, err = b.Alloc(1, tensor.FP32, s.full(tensor.Of(geometrySize), b.Rows)); err != nil {
			return o, err
		}
		o.geometry = tensor.Slice[float32](t)
	}
	return o, nil
}

// full is a shape with the batch dimension, where there is one.
func (s *step) full(shape tensor.Shape, rows int) tensor.Shape {
	if s.batched {
		return shape.Prepend(int64(rows))
	}
	return shape
}

// countBoxes is how many boxes each picture has.
func (s *step) countBoxes(b *backends.Batch) (int, error) {
	at := 0
	if s.batched {
		at = 1
	}
	n := b.In[1].Shape.Dim(at)
	if n > int64(s.boxes) {
		return 0, status.Errorf(status.InvalidArg, "input '%s': expected at most %d boxes (max_boxes), found %d", boxesName, s.boxes, n)
	}
	return int(n), nil
}

// row is the place of a row.
func (o *outputs) row(i int) slot {
	s := slot{image: o.image[i*o.n*o.size:][:o.n*o.size]}
	if o.geometry != nil {
		s.geometry = o.geometry[i*geometrySize:][:geometrySize]
	}
	if o.boxes != nil {
		s.boxes = o.boxes[i*o.n*4:][:o.n*4]
	}
	return s
}

func (s slot) clear() {
	clear(s.image)
	clear(s.geometry)
}

// crops makes an image of each box. A decoded picture is brought to packed samples
// once, so that boxes that overlap do not convert their pixels again and again.
func (s *step) crops(w *worker, out slot) {
	if s.files {
		w.unpack(s.space)
	}
	size := s.layout.bytes()
	for i := 0; 4*i < len(out.boxes); i++ {
		v, dst := out.boxes[4*i:][:4], out.image[i*size:][:size]
		p, ok := clip(v[0], v[1], v[2], v[3], w.src.w, w.src.h)
		if !ok {
			s.layout.clear(dst)
			continue
		}
		f := s.frame(p)
		w.run(&s.options, &f, dst)
	}
}

// unpack converts the whole picture; the colour is then what the output has.
func (w *worker) unpack(to space) {
	ch := w.src.channels()
	n := w.src.w * ch
	w.copied = resized(w.copied, n*w.src.h)
	for y := range w.src.h {
		w.src.row(w.copied[y*n:][:n], y)
	}
	w.given = samples{pix: w.copied, w: w.src.w, h: w.src.h, ch: ch}
	w.src.set(&w.given, to)
	w.src.ycc = false // It is already.
}
