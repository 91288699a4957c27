package fit

import (
	"context"
	"errors"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
	"github.com/tutti-server/tutti/steps/image/opencv"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// step is fit_image.
type step struct {
	options
	batched bool
	opener  *image.Opener
	workers pool.Of[worker]
}

var _ steps.Step = (*step)(nil)

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	opener, err := image.NewOpener(s)
	if err != nil {
		return nil, err
	}
	return &step{options: *o, batched: s.MaxBatch > 0, opener: opener}, nil
}

// worker is the scratch memory of one batch in progress, and the image that it works on.
type worker struct {
	resizer opencv.Resizer
	decoded []byte // an image of a file
	pix     []byte // the image: rows of w pixels of three samples
	w, h    int
	rest    []byte // the input after the image
	job     opencv.Job
	sink    sink
	group   group
}

// keep is the most bytes of a decoded image that a worker keeps for the next batch.
const keep = 16 << 20

// Line implements opencv.Source.
func (w *worker) Line(y int) []byte { return w.pix[3*y*w.w:][:3*w.w] }

// group is a range of rows that share output tensors: a request, or the whole batch if all images have one size.
type group struct {
	first, rows int
	out         []tensor.Tensor // of a request among several; nil for Batch.Out
	frame       frame
	image       []byte
	geometry    []float32
}

// Run resizes the image of each row.
//
// hot: once the scratch has grown, only the outputs are allocated, and a slice for each request where their sizes may differ.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.done(w)
	w.rest = b.In[0].Bytes()
	if len(b.Requests) == 1 || !s.files && !s.widths {
		w.group = group{rows: b.Rows}
		return s.fill(ctx, w, b, &w.group)
	}
	for i := range b.Requests {
		q := &b.Requests[i]
		w.group = group{first: q.First, rows: q.Rows, out: make([]tensor.Tensor, len(b.Out))}
		g := &w.group
		if err := s.fill(ctx, w, b, g); err != nil {
			tensor.ReleaseAll(g.out)
			return err
		}
		if q.Err != nil {
			tensor.ReleaseAll(g.out)
			continue
		}
		q.Out = g.out
	}
	return nil
}

// done keeps the scratch memory unless it is large, without references to the request.
func (s *step) done(w *worker) {
	if cap(w.decoded) > keep {
		w.decoded = nil
	}
	w.pix, w.rest, w.sink, w.job, w.group = nil, nil, sink{}, opencv.Job{}, group{}
	s.workers.Put(w)
}

// fill resizes the rows of a group. Its outputs are allocated when the size of the first image is known.
func (s *step) fill(ctx context.Context, w *worker, b *backends.Batch, g *group) error {
	for row := g.first; row < g.first+g.rows; row++ {
		f, err := s.load(ctx, w, b, row)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && g.image != nil && f != g.frame {
			err = steps.InputError(b, imageName, row,
				fmt.Errorf("expected images that get the same size in one request, found %d x %d and %d x %d", g.frame.outW, g.frame.outH, f.outW, f.outH))
		}
		if err != nil {
			b.Fail(row, err)
			g.blank(row)
			continue
		}
		if g.image == nil {
			if err := s.alloc(b, g, f, row); err != nil {
				return err
			}
		}
		s.write(w, g, row)
	}
	if g.image == nil { // no row, or none that is an image
		return s.alloc(b, g, frame{outH: s.height}, g.first+g.rows)
	}
	return nil
}

// load sets the image of a row and returns its frame.
func (s *step) load(ctx context.Context, w *worker, b *backends.Batch, row int) (f frame, err error) {
	if s.files {
		err = s.open(ctx, w)
	} else {
		err = s.pixels(w, &b.In[0])
	}
	width := 0
	if s.widths && err == nil {
		if width = int(tensor.Slice[int32](&b.In[1])[row]); width < 1 || width > maxSide {
			return f, steps.InputError(b, widthName, row, fmt.Errorf("expected 1 to %d, found %d", maxSide, width))
		}
	}
	if err == nil {
		f, err = s.frame(w.w, w.h, width)
	}
	if err != nil {
		err = steps.InputError(b, imageName, row, err)
	}
	return f, err
}

// open decodes the next file.
func (s *step) open(ctx context.Context, w *worker) error {
	data, rest, ok := tensor.NextBytes(w.rest)
	if w.rest = rest; !ok {
		return errors.New("expected one file for each row")
	}
	err := s.opener.Open(ctx, data, w.size, w.row)
	w.pix = w.decoded
	return err
}

// pixels takes the next image of the input.
func (s *step) pixels(w *worker, in *tensor.Tensor) error {
	at := in.Shape.Rank() - 3
	w.h, w.w = int(in.Shape.Dim(at)), int(in.Shape.Dim(at+1))
	w.pix, w.rest = w.rest[:3*w.w*w.h], w.rest[3*w.w*w.h:]
	if w.w < 1 || w.h < 1 || w.w > maxSide || w.h > maxSide || w.w > s.maxPixels/w.h {
		return fmt.Errorf("expected from 1 to %d pixels (max_pixels) and sides of at most %d, found %d x %d", s.maxPixels, maxSide, w.w, w.h)
	}
	return nil
}

func (w *worker) size(width, height int) {
	w.w, w.h = width, height
	w.decoded = raster.Sized(w.decoded, 3*width*height)
}

func (w *worker) row(y int, rgb []byte) { copy(w.decoded[3*y*w.w:], rgb) }

// alloc allocates the outputs of a group, and clears those of the rows below row, which failed.
func (s *step) alloc(b *backends.Batch, g *group, f frame, row int) error {
	g.frame = f
	dtype, shape := tensor.FP32, tensor.Of(3, int64(f.outH), int64(f.outW))
	if s.bytes {
		dtype, shape = tensor.Uint8, tensor.Of(int64(f.outH), int64(f.outW), 3)
	}
	out, err := s.tensor(b, g, 0, dtype, shape)
	if err != nil {
		return err
	}
	g.image = out.Bytes()
	if s.geometry {
		if out, err = s.tensor(b, g, 1, tensor.FP32, tensor.Of(geometrySize)); err != nil {
			return err
		}
		g.geometry = tensor.Slice[float32](out)
	}
	for i := g.first; i < row; i++ {
		g.blank(i)
	}
	return nil
}

// tensor allocates an output of a group; shape is that of a row.
func (s *step) tensor(b *backends.Batch, g *group, port int, dtype tensor.DType, shape tensor.Shape) (*tensor.Tensor, error) {
	if s.batched {
		shape = shape.Prepend(int64(g.rows))
	}
	if g.out == nil {
		return b.Alloc(port, dtype, shape)
	}
	t, err := tensor.New(b.Allocator, dtype, shape)
	g.out[port] = t
	return &g.out[port], err
}

// part returns the outputs of a row.
func (g *group) part(row int) (image []byte, geometry []float32) {
	i, n := row-g.first, len(g.image)/max(g.rows, 1)
	if g.geometry != nil {
		geometry = g.geometry[i*geometrySize:][:geometrySize]
	}
	return g.image[i*n:][:n], geometry
}

// blank clears the outputs of a row that failed; their memory may hold samples of earlier requests.
func (g *group) blank(row int) {
	if g.image != nil {
		image, geometry := g.part(row)
		clear(image)
		clear(geometry)
	}
}

// write resizes the image of a row into the outputs.
func (s *step) write(w *worker, g *group, row int) {
	f := &g.frame
	out, geometry := g.part(row)
	if f.outW > f.w || f.outH > f.h {
		s.pad(out, f)
	}
	w.sink = sink{o: &s.options, f: f, dst: out}
	w.job = opencv.Job{
		Sampling: opencv.Linear, Channels: 3, From: w, To: &w.sink,
		X: opencv.Span{In: w.w, Out: f.w, N: f.w}, Y: opencv.Span{In: w.h, Out: f.h, N: f.h},
	}
	w.resizer.Run(&w.job)
	if geometry != nil {
		g := [geometrySize]float32{float32(float64(f.w) / float64(w.w)), float32(float64(f.h) / float64(w.h)), 0, float32(f.top), float32(w.w), float32(w.h)}
		copy(geometry, g[:])
	}
}
