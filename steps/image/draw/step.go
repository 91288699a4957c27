package draw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/jpeg"
	"image/png"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
)

// step is draw_boxes.
type step struct {
	options
	batched bool
	labels  steps.Labels
	opener  *image.Opener
	workers pool.Of[worker]
}

var _ steps.Step = (*step)(nil)

// worker is the scratch memory of one batch in progress.
type worker struct {
	canvas
	out   bytes.Buffer
	files []byte
}

// keep is the most bytes of a canvas that a worker keeps for the next batch.
const keep = 16 << 20

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	labels, err := s.Labels("labels_file")
	if err != nil {
		return nil, err
	}
	opener, err := image.NewOpener(s)
	if err != nil {
		return nil, err
	}
	return &step{
		options: *o, batched: s.MaxBatch > 0, labels: labels, opener: opener,
	}, nil
}

// found has the boxes of one row.
type found struct {
	boxes, scores []float32
	classes       []int32
}

// Run draws the boxes of each row.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.done(w)
	w.files = w.files[:0]
	n, err := s.boxes(b)
	if err != nil {
		return err
	}
	boxes, scores, classes := tensor.Slice[float32](&b.In[inBoxes]), tensor.Slice[float32](&b.In[inScores]), tensor.Slice[int32](&b.In[inClasses])
	src, out, err := s.source(b)
	if err != nil {
		return err
	}
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.load(ctx, w, &src, row)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.out.Reset()
		if err == nil {
			w.draw(&s.options, s.labels, found{boxes[4*n*row:][:4*n], scores[n*row:][:n], classes[n*row:][:n]})
			err = s.store(w, out, row)
		}
		if err != nil {
			w.out.Reset()
			b.Fail(row, status.Errorf(status.InvalidArg, "input '%s': %w", imageName, err))
		}
		if s.encoded {
			w.files = tensor.AppendBytes(w.files, w.out.Bytes())
		}
	}
	return s.write(b, w)
}

// done keeps the scratch memory unless it is large.
func (s *step) done(w *worker) {
	if cap(w.img.Pix) > keep {
		w.img.Pix = nil
	}
	s.workers.Put(w)
}

// boxes returns the number of boxes of a row.
func (s *step) boxes(b *backends.Batch) (int, error) {
	last := func(port, back int) int {
		shape := b.In[port].Shape
		return int(shape.Dim(shape.Rank() - back))
	}
	n := last(inBoxes, 2)
	switch {
	case n > s.maxBoxes:
		return 0, status.Errorf(status.InvalidArg, "input 'boxes': expected at most %d (max_boxes), found %d", s.maxBoxes, n)
	case last(inScores, 1) != n || last(inClasses, 1) != n:
		return 0, status.Errorf(status.InvalidArg, "inputs 'scores' and 'classes': expected one for each of %d boxes, found %d and %d", n, last(inScores, 1), last(inClasses, 1))
	}
	return n, nil
}

// source is the input images.
type source struct {
	rest []byte
	w, h int // of an input of pixels
}

// source reads the input, and allocates the output where that is pixels.
func (s *step) source(b *backends.Batch) (source, []byte, error) {
	in := &b.In[inImage]
	src := source{rest: in.Bytes()}
	if s.files {
		return src, nil, nil
	}
	rank := in.Shape.Rank()
	src.h, src.w = int(in.Shape.Dim(rank-3)), int(in.Shape.Dim(rank-2))
	if src.w < 1 || src.h < 1 || int64(src.w)*int64(src.h) > int64(s.maxPixels) {
		return src, nil, status.Errorf(status.InvalidArg, "input '%s': expected from 1 to %d pixels (max_pixels), found %d x %d", imageName, s.maxPixels, src.w, src.h)
	}
	if s.encoded {
		return src, nil, nil
	}
	out, err := b.Alloc(0, tensor.Uint8, in.Shape)
	if err != nil {
		return src, nil, err
	}
	return src, out.Bytes(), nil
}

var errFew = errors.New("expected one file for each row")

// load copies the image of a row to the canvas.
func (s *step) load(ctx context.Context, w *worker, src *source, row int) error {
	if s.files {
		data, rest, ok := tensor.NextBytes(src.rest)
		if !ok {
			return errFew
		}
		src.rest = rest
		return s.opener.Open(ctx, data, w.size, w.row)
	}
	w.size(src.w, src.h)
	for y := range src.h {
		w.row(y, src.rest[3*src.w*(row*src.h+y):][:3*src.w])
	}
	return nil
}

// store encodes the canvas, or copies it to the output of pixels.
func (s *step) store(w *worker, out []byte, row int) error {
	switch {
	case s.png:
		return png.Encode(&w.out, &w.img)
	case s.encoded:
		return jpeg.Encode(&w.out, &w.img, &jpeg.Options{Quality: s.quality})
	}
	n := len(w.img.Pix) / 4 * 3
	narrow(out[row*n:][:n], w.img.Pix)
	return nil
}

// write copies the encoded files to the output.
func (s *step) write(b *backends.Batch, w *worker) error {
	if !s.encoded {
		return nil
	}
	shape := tensor.Of(1)
	if s.batched {
		shape = shape.Prepend(int64(b.Rows))
	}
	out, err := b.AllocBytes(0, shape, len(w.files))
	if err != nil {
		return fmt.Errorf("cannot allocate the images: %w", err)
	}
	copy(out.Bytes(), w.files)
	return nil
}
