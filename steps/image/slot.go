package image

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// outputs are the output tensors of a batch, and its boxes.
type outputs struct {
	image    []byte
	geometry []float32
	boxes    []float32
	size, n  int // bytes of an image, images per row
}

// slot is the part of the outputs that belongs to one row.
type slot struct {
	image    []byte
	geometry []float32
	boxes    []float32
}

// outputs allocates the outputs.
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

// full adds the batch dimension to a shape, where there is one.
func (s *step) full(shape tensor.Shape, rows int) tensor.Shape {
	if s.batched {
		return shape.Prepend(int64(rows))
	}
	return shape
}

// countBoxes returns how many boxes each image has.
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

// row returns the slot of row i.
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

// clear zeroes the slot of a failed row.
func (s slot) clear() {
	clear(s.image)
	clear(s.geometry)
}

// crops makes an output image of each box. A decoded image is converted to packed samples once,
// so that boxes that overlap do not convert their pixels again.
func (s *step) crops(w *worker, out slot) {
	if s.files {
		w.unpack()
	}
	size := s.layout.bytes()
	for i := 0; 4*i < len(out.boxes); i++ {
		v, dst := out.boxes[4*i:][:4], out.image[i*size:][:size]
		p, ok := clip(v[0], v[1], v[2], v[3], w.resizer.Src.W, w.resizer.Src.H)
		if !ok {
			s.layout.clear(dst)
			continue
		}
		f := s.frame(p)
		w.resize(&s.options, &f, dst)
	}
}

// unpack converts the whole image to the samples of the output's colour space.
func (w *worker) unpack() {
	src := &w.resizer.Src
	n := src.W * src.Channels()
	w.copied = raster.Sized(w.copied, n*src.H)
	for y := range src.H {
		src.Row(w.copied[y*n:][:n], y)
	}
	w.given = raster.Pixels{Pix: w.copied, W: src.W, H: src.H, Channels: src.Channels()}
	src.Set(&w.given, src.Space())
}
