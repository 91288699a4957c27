package image

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"

	"tutti/backends"
	"tutti/core/status"
	"tutti/core/tensor"
	"tutti/steps"
)

// step is decode_resize.
type step struct {
	options
	batched bool
	workers sync.Pool
	pixels  *semaphore.Weighted // those of all images in progress
}

// atOnce is how many pixels every core may have in progress: a few hundred
// kilobytes that unpack to half a gigabyte must not do so on all cores at once.
const atOnce = 4 << 20

var _ steps.Step = (*step)(nil)

// worker is the scratch of one image in progress.
type worker struct {
	decoder
	resizer
}

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	return &step{
		options: *o,
		batched: s.MaxBatch > 0,
		workers: sync.Pool{New: func() any { return new(worker) }},
		pixels:  semaphore.NewWeighted(max(o.decoding.maxPixels, int64(runtime.GOMAXPROCS(0))*atOnce)),
	}, nil
}

// Run processes each row into its slot of the output.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	shape := s.shape()
	if s.batched {
		shape = shape.Prepend(int64(b.Rows))
	}
	out, err := b.Alloc(0, s.dtype(), shape)
	if err != nil {
		return err
	}
	w, _ := s.workers.Get().(*worker)
	defer s.workers.Put(w)
	dst, rest := out.Bytes(), b.In[0].Bytes()
	n := s.width * s.height * s.channels() * s.layout.size()
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		var data []byte
		var ok bool
		if data, rest, ok = tensor.NextBytes(rest); !ok {
			return status.Errorf(status.InvalidArg, "input '%s': expected %d files, found %d", inputName, b.Rows, row)
		}
		if err := s.one(ctx, w, dst[row*n:][:n], data); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			clear(dst[row*n:][:n]) // The memory is another request's of before.
			b.Fail(row, refuse(b, row, err))
		}
	}
	return nil
}

// one processes one file; it waits while too many pixels are in progress.
func (s *step) one(ctx context.Context, w *worker, dst, data []byte) error {
	h, err := s.decoding.check(data)
	if err != nil {
		return err
	}
	pixels := int64(h.width) * int64(h.height)
	if err := s.pixels.Acquire(ctx, pixels); err != nil {
		return err
	}
	defer s.pixels.Release(pixels)
	pic, err := w.decode(&s.decoding, data, h, s.width, s.height)
	if err != nil {
		return err
	}
	w.src.set(pic, s.gray)
	w.run(s.width, s.height)
	w.forget()
	s.layout.write(dst, w.out, w.ch)
	return nil
}

// refuse names the input, and the row where its request has several.
func refuse(b *backends.Batch, row int, err error) error {
	place := ""
	for i := range b.Reqs {
		if r := &b.Reqs[i]; r.Rows > 1 && row >= r.First && row < r.First+r.Rows {
			place = fmt.Sprintf(" row %d", row-r.First)
		}
	}
	return status.Errorf(status.InvalidArg, "input '%s'%s: %w", inputName, place, err)
}
