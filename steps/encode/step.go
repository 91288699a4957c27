package encode

import (
	"bytes"
	"context"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// step is encode_image.
type step struct {
	options
	batched bool
	workers pool.Of[worker]
}

var _ steps.Step = (*step)(nil)

func newStep(s *steps.Settings) (steps.Step, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	return &step{options: *o, batched: s.MaxBatch > 0}, nil
}

// Run encodes each row.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	in := &b.In[0]
	h, w, err := s.size(in.Shape)
	if err != nil {
		return err
	}
	wk := s.workers.Get()
	defer s.workers.Put(wk)
	wk.files = wk.files[:0]
	n := h * w * s.channels
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		wk.out.Reset()
		if err := s.one(wk, in, row*n, h, w); err != nil {
			wk.out.Reset()
			b.Fail(row, steps.InputError(b, inputName, row, err))
		}
		wk.files = tensor.AppendBytes(wk.files, wk.out.Bytes())
	}
	shape := tensor.Of(1)
	if s.batched {
		shape = shape.Prepend(int64(b.Rows))
	}
	out, err := b.AllocBytes(0, shape, len(wk.files))
	if err != nil {
		return err
	}
	copy(out.Bytes(), wk.files)
	return nil
}

// size returns height and width, which all rows share. It returns an error for sizes that the
// format or the limits do not allow.
func (s *step) size(shape tensor.Shape) (h, w int, err error) {
	at := shape.Rank() - 3
	if s.planes {
		at++
	}
	y, x := shape.Dim(at), shape.Dim(at+1)
	most := s.maxSide()
	switch {
	case y == 0 || x == 0:
		return 0, 0, status.Errorf(status.InvalidArg, "input '%s': expected an image, found %d x %d pixels", inputName, x, y)
	case y > most || x > most:
		return 0, 0, status.Errorf(status.InvalidArg, "input '%s': expected sides of at most %d pixels for %s, found %d x %d", inputName, most, s.format, x, y)
	case y*x > s.maxPixels:
		return 0, 0, status.Errorf(status.InvalidArg, "input '%s': expected at most %d pixels (max_pixels), found %d x %d = %d", inputName, s.maxPixels, x, y, x*y)
	}
	return int(y), int(x), nil
}

// one encodes the row whose samples start at element first.
func (s *step) one(wk *worker, in *tensor.Tensor, first, h, w int) error {
	n := h * w * s.channels
	var samples []byte
	if s.float {
		wk.samples = sized(wk.samples, n)
		if bad := quantise(wk.samples, tensor.Slice[float32](in)[first:][:n], s.scale); bad >= 0 {
			return fmt.Errorf("expected finite numbers, found %v at element %d of the image", tensor.Slice[float32](in)[first+bad], bad)
		}
		samples = wk.samples
	} else {
		samples = in.Bytes()[first:][:n]
	}
	return wk.encode(&s.options, samples, h, w)
}

// worker is the scratch memory of one batch in progress.
type worker struct {
	out     bytes.Buffer
	files   []byte
	samples []byte
	pix     []byte
}
