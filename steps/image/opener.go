package image

import (
	"context"
	"runtime"

	"golang.org/x/sync/semaphore"

	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/decode"
	"github.com/tutti-server/tutti/steps/image/raster"
)

// Opener decodes image files to RGB as the step decode_resize does, for the steps in child
// packages. It is safe for concurrent use.
type Opener struct {
	decoding decode.Options
	pixels   *semaphore.Weighted
	workers  pool.Of[worker]
}

// OpenerParams declares the parameters that NewOpener reads.
func OpenerParams() []steps.Param { return decodingParams() }

// NewOpener returns an opener with a step's parameters.
func NewOpener(s *steps.Settings) (*Opener, error) {
	d, err := parseDecoding(s)
	if err != nil {
		return nil, err
	}
	return &Opener{decoding: d, pixels: newPixels(&d)}, nil
}

// newPixels returns the limit of pixels that are decoded at the same time: an image of the
// largest size accepted, or maxPixelsPerCore for every core if that is more.
func newPixels(o *decode.Options) *semaphore.Weighted {
	return semaphore.NewWeighted(max(o.MaxPixels, int64(runtime.GOMAXPROCS(0))*maxPixelsPerCore))
}

// Open decodes one file. It calls size with width and height, and then row for each row from the top, with three
// samples per pixel, borrowed. It waits while too many pixels are in progress, until ctx is done.
func (o *Opener) Open(ctx context.Context, data []byte, size func(w, h int), row func(y int, rgb []byte)) error {
	h, err := o.decoding.Check(data)
	if err != nil {
		return err
	}
	n := h.Pixels()
	if err := o.pixels.Acquire(ctx, n); err != nil {
		return err
	}
	defer o.pixels.Release(n)
	w := o.workers.Get()
	defer o.workers.Put(w)
	defer w.forget()
	width, height := h.Size()
	img, err := w.decoder.Decode(&o.decoding, data, h, width, height)
	if err != nil {
		return err
	}
	src := &w.resizer.Src
	src.Set(img, raster.RGB)
	size(src.W, src.H)
	w.copied = raster.Sized(w.copied, 3*src.W)
	for y := range src.H {
		src.Row(w.copied, y)
		row(y, w.copied)
	}
	return nil
}
