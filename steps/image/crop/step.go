package crop

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image/warp"
)

// step is crop_boxes.
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

// cut is one crop: a quadrilateral of the image, and the size of the output.
type cut struct {
	corners [4]warp.Point
	x, y    int // the upper left pixel of an axis-aligned crop
	w, h    int // of the crop before it is turned
	turned  bool
	width   int32 // to which a reader pads the line
}

// shape returns height and width of the output.
func (c *cut) shape() (h, w int) {
	if c.turned {
		return c.w, c.h
	}
	return c.h, c.w
}

// worker is the scratch memory of one batch in progress.
type worker struct {
	cuts  []cut
	ends  []int // end of each row in cuts
	order []int
	spare []byte // a crop before it is turned
}

// keep is the most bytes of spare that a worker keeps for the next batch.
const keep = 16 << 20

// Run cuts the boxes of each row: it computes the sizes of all crops, allocates the outputs, and fills them.
//
// hot: once the scratch has grown, only the outputs are allocated.
func (s *step) Run(ctx context.Context, b *backends.Batch) error {
	w := s.workers.Get()
	defer s.done(w)
	in := b.In[inImage].Shape
	img := warp.Image{H: int(in.Dim(in.Rank() - 3)), W: int(in.Dim(in.Rank() - 2))}
	w.cuts, w.ends = w.cuts[:0], w.ends[:0]
	for row := range b.Rows {
		first := len(w.cuts)
		if err := s.measure(w, b, row, &img); err != nil {
			w.cuts = w.cuts[:first]
			b.Fail(row, err)
		}
		s.widths(w, w.cuts[first:])
		w.ends = append(w.ends, len(w.cuts))
	}
	return s.write(ctx, w, b, &img)
}

// done keeps the scratch memory unless it is large.
func (s *step) done(w *worker) {
	if cap(w.spare) > keep {
		w.spare = nil
	}
	s.workers.Put(w)
}

// measure appends the crops of a row.
func (s *step) measure(w *worker, b *backends.Batch, row int, img *warp.Image) error {
	if img.W < 1 || img.H < 1 || img.W > s.maxPixels/img.H {
		return steps.InputError(b, imageName, row, fmt.Errorf("expected from 1 to %d pixels (max_pixels), found %d x %d", s.maxPixels, img.W, img.H))
	}
	size, shape := 8, b.In[inBoxes].Shape
	if s.xyxy {
		size = 4
	}
	have := int(shape.Elements()) / size / b.Rows
	n := have
	if s.count {
		n = int(tensor.Slice[int32](&b.In[inCount])[row])
		if n < 0 || n > have {
			return steps.InputError(b, countName, row, fmt.Errorf("expected 0 to %d, the boxes of a row, found %d", have, n))
		}
	}
	if n > s.maxBoxes {
		return steps.InputError(b, boxesName, row, fmt.Errorf("expected at most %d boxes (max_boxes), found %d", s.maxBoxes, n))
	}
	left := s.maxPixels
	boxes := tensor.Slice[float32](&b.In[inBoxes])[row*have*size:][:n*size]
	for i := range n {
		c, err := s.cut(boxes[i*size:][:size], img)
		if err == nil && c.w > left/c.h {
			err = fmt.Errorf("expected crops of at most %d pixels together (max_pixels)", s.maxPixels)
		}
		if err != nil {
			return steps.InputError(b, boxesName, row, fmt.Errorf("box %d: %w", i, err))
		}
		left -= c.w * c.h
		w.cuts = append(w.cuts, c)
	}
	return nil
}

// widths sets the widths of a row's crops: the crops are sorted by their ratio of width to height and divided into
// groups, each of which has the width of its widest crop.
func (s *step) widths(w *worker, cuts []cut) {
	if s.lineHeight == 0 {
		return
	}
	ratio := func(i int) float64 {
		h, w := cuts[i].shape()
		return float64(w) / float64(h)
	}
	w.order = w.order[:0]
	for i := range cuts {
		w.order = append(w.order, i)
	}
	slices.SortStableFunc(w.order, func(a, b int) int { return cmp.Compare(ratio(a), ratio(b)) })
	for group := range slices.Chunk(w.order, s.lineGroup) {
		most := max(float64(s.lineWidth)/float64(s.lineHeight), ratio(group[len(group)-1]))
		for _, i := range group {
			cuts[i].width = int32(float64(s.lineHeight) * most)
		}
	}
}

// write allocates the outputs and cuts the crops into them.
func (s *step) write(ctx context.Context, w *worker, b *backends.Batch, img *warp.Image) error {
	n, start, bytes := 0, 0, 0
	for _, end := range w.ends {
		n, start = max(n, end-start), end
	}
	for i := range w.cuts {
		bytes += 3 * w.cuts[i].w * w.cuts[i].h
	}
	out, err := b.AllocBytes(outCrops, steps.Shape(b, s.batched, int64(n)), bytes+lengthSize*n*b.Rows)
	if err != nil {
		return err
	}
	o := steps.Outputs{Batch: b}
	shapes := steps.Alloc[int32](&o, outShapes, tensor.Int32, steps.Shape(b, s.batched, int64(n), 3))
	var widths []int32
	if s.lineHeight > 0 {
		widths = steps.Alloc[int32](&o, outWidths, tensor.Int32, steps.Shape(b, s.batched, int64(n), 1))
	}
	if o.Err != nil {
		return o.Err
	}
	clear(shapes)
	clear(widths)
	pixels, dst, start := b.In[inImage].Bytes(), out.Bytes(), 0
	for row, end := range w.ends {
		img.Pix = pixels[row*3*img.W*img.H:][:3*img.W*img.H]
		for i := range n {
			if start+i >= end {
				element(&dst, 0)
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			c, at := &w.cuts[start+i], row*n+i
			h, wide := c.shape()
			shapes[3*at], shapes[3*at+1], shapes[3*at+2] = int32(h), int32(wide), 3
			if widths != nil {
				widths[at] = c.width
			}
			s.fill(w, element(&dst, 3*h*wide), img, c)
		}
		start = end
	}
	return nil
}

// lengthSize is the bytes of the length in front of a BYTES element.
const lengthSize = 4

// element removes one element of n bytes from the front of dst and returns its memory, after it has written its length.
func element(dst *[]byte, n int) []byte {
	binary.LittleEndian.PutUint32(*dst, uint32(n))
	e := (*dst)[lengthSize:][:n:n]
	*dst = (*dst)[lengthSize+n:]
	return e
}
