package image

import (
	"context"
	"runtime"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// Opener decodes picture files to RGB as the step decode_resize does, for the steps
// nested in this package. It is safe for concurrent use.
type Opener struct {
	decoding decoding
	pixels   *semaphore.Weighted
	workers  pool.Of[worker]
}

// OpenerParams declares the parameters that NewOpener reads.
func OpenerParams() []steps.Param { return decodingParams() }

// NewOpener makes an opener of a step's parameters.
func NewOpener(s *steps.Settings) (*Opener, error) {
	d, err := parseDecoding(s)
	if err != nil {
		return nil, err
	}
	return &Opener{
		decoding: d, pixels: semaphore.NewWeighted(max(d.maxPixels, int64(runtime.GOMAXPROCS(0))*atOnce)),
	}, nil
}

// Open decodes one file. It calls size with width and height once they are known, and
// then row with the samples of each row, three per pixel, borrowed. It waits while too
// many pixels are in progress.
func (o *Opener) Open(ctx context.Context, data []byte, size func(w, h int), row func(y int, rgb []byte)) error {
	h, err := o.decoding.check(data)
	if err != nil {
		return err
	}
	n := h.pixels()
	if err := o.pixels.Acquire(ctx, n); err != nil {
		return err
	}
	defer o.pixels.Release(n)
	w := o.workers.Get()
	defer o.workers.Put(w)
	defer w.forget()
	width, height := h.size()
	pic, err := w.decode(&o.decoding, data, h, width, height)
	if err != nil {
		return err
	}
	w.src.set(pic, rgb)
	size(w.src.w, w.src.h)
	w.copied = resized(w.copied, 3*w.src.w)
	for y := range w.src.h {
		w.src.row(w.copied, y)
		row(y, w.copied)
	}
	return nil
}
