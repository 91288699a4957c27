package image

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// step is decode_resize, resize or crop_resize.
type step struct {
	options
	batched bool
	workers pool.Of[worker]
	pixels  *semaphore.Weighted // those of all images in progress
}

// atOnce is how many pixels every core may have in progress: a few hundred
// kilobytes that unpack to half a gigabyte must not do so on all cores at once.
const atOnce = 4 << 20

// keep is the most bytes of a copied picture that a worker keeps for the next one.
const keep = 16 << 20

var _ steps.Step = (*step)(nil)

// worker is the scratch of one image in progress.
type worker struct {
	decoder
	size   part    // Of the source, whole.
	frame  frame   // Where it goes.
	given  samples // The pixels of an input that is no file.
	held   int64   // Of step.pixels.
	copied []byte  // A decoded picture of which several crops are made.
	resizer
}

func newStep(k kind) func(*steps.Settings) (steps.Step, error) {
	return func(s *steps.Settings) (steps.Step, error) {
		o, err := k.parse(s)
		if err != nil {
			return nil, err
		}
		return &step{
			options: *o,
			batched: s.MaxBatch > 0,
			pixels:  semaphore.NewWeighted(max(o.decoding.maxPixels, int64(runtime.GOMAXPROCS(0))*atOnce)),
		}, nil
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
	in := inputs{rest: b.In[0].Bytes(), rows: b.Rows}
	if !s.files {
		w.given.shape(b.In[0].Shape, s.batched)
		in.size = w.given.w * w.given.h * w.given.ch
	}
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := in.next(row, s.files)
		if err != nil {
			return err
		}
		if err := s.one(ctx, w, data, o.row(row)); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			o.row(row).clear() // The memory is another request's of before.
			b.Fail(row, refuse(b, row, err))
		}
	}
	return nil
}

// inputs gives the pictures one after the other.
type inputs struct {
	rest []byte
	rows int
	size int // Of a picture that is no file.
}

func (in *inputs) next(row int, files bool) ([]byte, error) {
	if !files {
		return in.rest[row*in.size:][:in.size], nil
	}
	data, rest, ok := tensor.NextBytes(in.rest)
	if !ok {
		return nil, status.Errorf(status.InvalidArg, "input '%s': expected %d files, found %d", inputName, in.rows, row)
	}
	in.rest = rest
	return data, nil
}

// errEmptyCrop says that the parameter crop leaves nothing.
var errEmptyCrop = errors.New("the box of parameter 'crop' lies outside the picture")

// one processes one picture; it waits while too many pixels are in progress.
func (s *step) one(ctx context.Context, w *worker, data []byte, out slot) error {
	defer s.done(w)
	if err := s.load(ctx, w, data); err != nil {
		return err
	}
	if s.boxes > 0 {
		s.crops(w, out)
		return nil
	}
	if out.geometry != nil {
		g := w.frame.geometry(w.size.w, w.size.h)
		copy(out.geometry, g[:])
	}
	if w.size.w != w.src.w || w.size.h != w.src.h { // A JPEG decoded at a fraction of its size.
		w.frame.part = part{0, 0, w.src.w, w.src.h}
	}
	w.run(&s.options, &w.frame, out.image)
	return nil
}

// place works out where a picture of the given size goes, unless boxes say that.
func (s *step) place(w *worker, width, height int) error {
	w.size = part{0, 0, width, height}
	if s.boxes > 0 {
		return nil
	}
	p := w.size
	if c := s.crop; c.w > 0 {
		var ok bool
		if p, ok = clip(float32(c.x), float32(c.y), float32(c.x+c.w), float32(c.y+c.h), width, height); !ok {
			return fmt.Errorf("%w of %d x %d pixels", errEmptyCrop, width, height)
		}
	}
	w.frame = s.frame(p)
	return nil
}

// load points the worker's converter at a picture.
func (s *step) load(ctx context.Context, w *worker, data []byte) error {
	if !s.files {
		if err := w.given.check(s.decoding.maxPixels); err != nil {
			return err
		}
		w.given.pix = data
		w.src.set(&w.given, s.space)
		return s.place(w, w.given.w, w.given.h)
	}
	h, err := s.decoding.check(data)
	if err != nil {
		return err
	}
	width, height := h.size()
	if err := s.place(w, width, height); err != nil {
		return err
	}
	n := h.pixels()
	if err := s.pixels.Acquire(ctx, n); err != nil {
		return err
	}
	w.held = n
	pic, err := w.decode(&s.decoding, data, h, w.frame.w, w.frame.h)
	if err != nil {
		return err
	}
	w.src.set(pic, s.space)
	return nil
}

// done gives the pixels back.
func (s *step) done(w *worker) {
	s.pixels.Release(w.held)
	w.held = 0
	w.forget()
	if cap(w.copied) > keep {
		w.copied = nil
	}
}

// forget drops the request's memory: the scratch outlives the request.
func (w *worker) forget() {
	w.src.pic, w.given.pix = nil, nil
	w.decoder.forget()
}

// refuse names the input, and the row where its request has several.
func refuse(b *backends.Batch, row int, err error) error {
	place := ""
	for i := range b.Requests {
		if r := &b.Requests[i]; r.Rows > 1 && row >= r.First && row < r.First+r.Rows {
			place = fmt.Sprintf(" row %d", row-r.First)
		}
	}
	return status.Errorf(status.InvalidArg, "input '%s'%s: %w", inputName, place, err)
}
