package image

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/decode"
	"github.com/tutti-server/tutti/steps/image/raster"
	"github.com/tutti-server/tutti/steps/image/resize"
)

// step is decode_resize, resize or crop_resize.
type step struct {
	options
	batched bool
	workers pool.Of[worker]
	pixels  *semaphore.Weighted // of all images in progress
}

// maxPixelsPerCore is how many pixels every core may have in progress. A file of a few hundred
// kilobytes can unpack to half a gigabyte, which must not happen on all cores at once.
const maxPixelsPerCore = 4 << 20

// maxCopy is the most bytes of a copied image that a worker keeps for the next one.
const maxCopy = 16 << 20

var _ steps.Step = (*step)(nil)

// worker is the scratch memory of one image in progress.
type worker struct {
	decoder decode.Decoder
	resizer resize.Resizer
	job     resize.Job
	target  target
	size    resize.Rect   // the whole source
	frame   frame         // its place in the output
	given   raster.Packed // the pixels of an input that is not a file
	held    int64         // of step.pixels
	copied  []byte        // a decoded image of which several crops are made
}

func newStep(k kind) func(*steps.Settings) (steps.Step, error) {
	return func(s *steps.Settings) (steps.Step, error) {
		o, err := k.parse(s)
		if err != nil {
			return nil, err
		}
		return &step{options: *o, batched: s.MaxBatch > 0, pixels: newPixels(&o.decoding)}, nil
	}
}

// Run processes each row into its slot of the output.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.workers.Put(w)
	defer w.forget()
	o, err := s.outputs(b)
	if err != nil {
		return err
	}
	rest, size := b.In[0].Bytes(), 0
	if !s.files {
		shape, at, p := b.In[0].Shape, b.In[0].Shape.Rank()-3, &w.given
		p.H, p.W, p.Channels = int(shape.Dim(at)), int(shape.Dim(at+1)), int(shape.Dim(at+2))
		size = p.H * p.W * p.Channels
	}
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, ok := rest[:size], true
		if rest = rest[size:]; s.files {
			data, rest, ok = tensor.NextBytes(rest)
		}
		if !ok {
			return status.Errorf(status.InvalidArg, "input '%s': expected %d files, found %d", inputName, b.Rows, row)
		}
		if err := s.one(ctx, w, data, o.row(row)); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			out := o.row(row) // its memory may hold samples of an earlier request
			clear(out.image)
			clear(out.geometry)
			b.Fail(row, steps.InputError(b, inputName, row, err))
		}
	}
	return nil
}

// one processes one image. It waits while too many pixels are in progress.
func (s *step) one(ctx context.Context, w *worker, data []byte, out outputs) error {
	defer s.done(w)
	if err := s.load(ctx, w, data); err != nil {
		return err
	}
	if s.boxes > 0 {
		s.crops(w, out)
		return nil
	}
	if out.geometry != nil {
		g := w.frame.geometry(w.size.W, w.size.H)
		copy(out.geometry, g[:])
	}
	if src := &w.resizer.Src; w.size.W != src.W || w.size.H != src.H { // a JPEG decoded at a fraction of its size
		w.frame.part = resize.Rect{W: src.W, H: src.H}
	}
	w.resize(&s.options, &w.frame, out.image)
	return nil
}

// place sets the frame of an image of the given size, unless boxes have the frames.
func (s *step) place(w *worker, width, height int) error {
	w.size = resize.Rect{W: width, H: height}
	if s.boxes > 0 {
		return nil
	}
	p := w.size
	if c := s.crop; c.W > 0 {
		var ok bool
		if p, ok = clip(float32(c.X), float32(c.Y), float32(c.X+c.W), float32(c.Y+c.H), width, height); !ok {
			return fmt.Errorf("the box of parameter 'crop' lies outside the image of %d x %d pixels", width, height)
		}
	}
	w.frame = s.frame(p)
	return nil
}

// load decodes or wraps an image and points the resizer at it.
func (s *step) load(ctx context.Context, w *worker, data []byte) error {
	if !s.files {
		if err := checkPixels(&w.given, s.decoding.MaxPixels); err != nil {
			return err
		}
		w.given.Pix = data
		w.resizer.Src.Set(&w.given, s.space)
		return s.place(w, w.given.W, w.given.H)
	}
	h, err := s.decoding.Check(data)
	if err != nil {
		return err
	}
	width, height := h.Size()
	if err := s.place(w, width, height); err != nil {
		return err
	}
	n := h.Pixels()
	if err := s.pixels.Acquire(ctx, n); err != nil {
		return err
	}
	w.held = n
	img, err := w.decoder.Decode(&s.decoding, data, h, w.frame.w, w.frame.h)
	if err != nil {
		return err
	}
	w.resizer.Src.Set(img, s.space)
	return nil
}

// checkPixels returns an error for a tensor that is not an image or exceeds the limits.
func checkPixels(p *raster.Packed, maxPixels int64) error {
	switch {
	case p.Channels != 1 && p.Channels != 3 && p.Channels != 4:
		return fmt.Errorf("expected 1, 3 or 4 samples per pixel, found %d", p.Channels)
	case p.W < 1 || p.H < 1:
		return fmt.Errorf("impossible size %d x %d", p.W, p.H)
	case p.W > decode.MaxSide || p.H > decode.MaxSide:
		return fmt.Errorf("expected sides of at most %d pixels, found %d x %d", decode.MaxSide, p.W, p.H)
	case int64(p.W)*int64(p.H) > maxPixels:
		return fmt.Errorf("expected at most %d pixels (max_pixels), found %d x %d = %d", maxPixels, p.W, p.H, p.W*p.H)
	}
	return nil
}

// resize writes the frame's part of the image to dst, and fills what the frame leaves free.
func (w *worker) resize(o *options, f *frame, dst []byte) {
	t := &w.target
	*t = target{layout: &o.layout, dst: dst, x: max(f.x, 0), y: max(f.y, 0)}
	if !o.covers(f) {
		o.layout.clear(dst)
	}
	x, y := o.spans(f)
	w.job = resize.Job{Filter: o.filter, Sharp: o.sharp, Gap: o.gap, Part: f.part, To: t, X: x, Y: y}
	w.resizer.Run(&w.job)
}

// spans returns the axes of a frame: of the outputs of the resize, those that are in the output.
func (f *framing) spans(r *frame) (x, y resize.Span) {
	return resize.Span{In: r.part.W, Out: r.w, From: max(-r.x, 0), N: min(f.width, r.x+r.w) - max(r.x, 0)},
		resize.Span{In: r.part.H, Out: r.h, From: max(-r.y, 0), N: min(f.height, r.y+r.h) - max(r.y, 0)}
}

// done returns the pixels to the limit and drops what belongs to the request.
func (s *step) done(w *worker) {
	s.pixels.Release(w.held)
	w.held = 0
	w.forget()
	if cap(w.copied) > maxCopy {
		w.copied = nil
	}
}

// forget drops references to the request's memory, which the worker outlives.
func (w *worker) forget() {
	w.resizer.Src.Set(nil, raster.RGB)
	w.given.Pix, w.target.dst = nil, nil
	w.decoder.Forget()
}

// outputs are the output tensors of a batch or of a row, and its boxes.
type outputs struct {
	image    []byte
	geometry []float32
	boxes    []float32
	size, n  int // bytes of an image, images per row
}

// outputs allocates the outputs.
func (s *step) outputs(b *backends.Batch) (o outputs, err error) {
	shape := s.shape()
	o.n, o.size = 1, s.layout.bytes()
	if s.boxes > 0 {
		n := b.In[1].Shape.Dim(b.In[1].Shape.Rank() - 2)
		if n > int64(s.boxes) {
			return o, status.Errorf(status.InvalidArg, "input '%s': expected at most %d boxes (max_boxes), found %d", boxesName, s.boxes, n)
		}
		o.n = int(n)
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

// row returns the part of row i.
func (o *outputs) row(i int) outputs {
	s := outputs{image: o.image[i*o.n*o.size:][:o.n*o.size]}
	if o.geometry != nil {
		s.geometry = o.geometry[i*geometrySize:][:geometrySize]
	}
	if o.boxes != nil {
		s.boxes = o.boxes[i*o.n*4:][:o.n*4]
	}
	return s
}

// crops makes an output image of each box. A decoded image is converted to packed samples once,
// so that boxes that overlap do not convert their pixels again.
func (s *step) crops(w *worker, out outputs) {
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
	w.given = raster.Packed{Pix: w.copied, W: src.W, H: src.H, Channels: src.Channels()}
	src.Set(&w.given, src.Space())
}
