// Package ocr holds the steps of a text reader between its networks: text_boxes, ctc_decode and text_lines.
package ocr

import (
	"cmp"
	"context"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

const (
	inMap = iota
	inGeometry
)

const (
	outBoxes = iota
	outScores
	outCount
)

const (
	mapName      = "MAP"
	geometryName = "geometry"
	geometrySize = 6
	boxSize      = 8 // numbers of four corners
)

// NewBoxesFactory declares the step text_boxes.
//
// Inputs are MAP, FP32 [1,h,w], the probability that each pixel is text, and geometry, FP32 [6], whose elements 4 and 5 are
// the width and height of the image in pixels of which the boxes are. Outputs are BOXES, FP32 [M,4,2], the corners
// of each box, clockwise from the upper left one, SCORES, FP32 [M], and COUNT, INT32 [1], the number of boxes. M is the largest number
// of boxes of a row of the batch; the elements of other rows after their last box are 0.
func NewBoxesFactory() steps.Factory {
	return steps.Factory{
		Name: "text_boxes",
		Doc: "Finds the boxes of text in the probability map of a detector of differentiable binarization (DB), as PP-OCR's readers do: pixels above " +
			"a threshold, their contours, the rectangle of least area around each, the mean of the map in it, and the rectangle around the rectangle moved " +
			"outwards, in whole pixels of the image. The results are those of OpenCV 5.0 and pyclipper. Boxes are ordered from top to bottom, and from left to right where their upper left corners are less " +
			"than line_gap pixels apart in height. The input geometry is that of fit_image or decode_resize.",
		Params: []steps.Param{
			{Key: "threshold", Doc: "A pixel is text if the map is above this.", Default: "0.3"},
			{Key: "box_threshold", Doc: "Smallest score of a box, the mean of the map in it.", Default: "0.5"},
			{Key: "score", Doc: "Where the mean is taken: in the rectangle (fast) or in the contour (slow).", Default: "fast", Values: []string{"fast", "slow"}},
			{Key: "unclip_ratio", Doc: "The sides of a rectangle are moved outwards by its area times this, divided by its circumference.", Default: "1.6"},
			{Key: "dilate", Doc: "Whether each pixel of text also covers its neighbours to the right and below.", Default: "true", Values: []string{"true", "false"}},
			{Key: "min_size", Doc: "Smallest side of a rectangle in pixels of the map; after it is moved, 2 more.", Default: "3"},
			{Key: "min_side", Doc: "Boxes with a side of at most this many pixels of the image are dropped.", Default: "3"},
			{Key: "line_gap", Doc: "Boxes are on one line if their upper left corners are less than this many pixels apart in height.", Default: "10"},
			{Key: "max_candidates", Doc: "Most contours; others are ignored.", Default: "1000"},
			{Key: "max_pixels", Doc: "Largest map accepted, width times height.", Default: "16777216"},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("max_batch_size: 8", "text_boxes", "min_size", "1", "min_side", "1", "dilate", "false"),
			Request: `{"inputs": [
    {"name": "MAP", "datatype": "FP32", "shape": [1, 1, 5, 6], "data": [0,0,0,0,0,0, 0,0.9,0.9,0.8,0.9,0, 0,0.9,0.9,0.9,0.9,0, 0,0.9,0.9,0.9,0.9,0, 0,0,0,0,0,0]},
    {"name": "geometry", "datatype": "FP32", "shape": [1, 6], "data": [1,1, 0,0, 24,20]}]}`,
		}},
		Signature: boxesSignature,
		New:       newBoxes,
	}
}

func boxesSignature(s *steps.Settings) (*config.Signature, error) {
	if _, err := parseBoxes(s); err != nil {
		return nil, err
	}
	return &config.Signature{
		Inputs: []config.Port{
			inMap:      {Name: mapName, DType: tensor.FP32, Dims: tensor.Of(1, -1, -1)},
			inGeometry: {Name: geometryName, DType: tensor.FP32, Dims: tensor.Of(geometrySize)},
		},
		Outputs: []config.Port{
			outBoxes:  {Name: "BOXES", DType: tensor.FP32, Dims: tensor.Of(-1, 4, 2)},
			outScores: {Name: "SCORES", DType: tensor.FP32, Dims: tensor.Of(-1)},
			outCount:  {Name: "COUNT", DType: tensor.Int32, Dims: tensor.Of(1)},
		},
	}, nil
}

// boxOptions are the parameters of text_boxes.
type boxOptions struct {
	threshold                 float32
	boxThreshold, unclip      float64
	dilate, slow              bool
	minSize, minSide, lineGap float32
	maxCandidates, maxPixels  int
}

func parseBoxes(s *steps.Settings) (*boxOptions, error) {
	r := steps.Reader{Settings: s}
	o := &boxOptions{
		threshold: r.Float("threshold"),
		dilate:    s.Params["dilate"] == "true", slow: s.Params["score"] == "slow",
		minSize: r.Float("min_size"), minSide: r.Float("min_side"), lineGap: r.Float("line_gap"),
		maxCandidates: r.Int("max_candidates", 1, 1<<20), maxPixels: r.Int("max_pixels", 1, 1<<28),
	}
	var wide [2]error // with all digits
	o.boxThreshold, wide[0] = s.Float("box_threshold")
	o.unclip, wide[1] = s.Float("unclip_ratio")
	if err := cmp.Or(r.Err, wide[0], wide[1]); err != nil {
		return nil, err
	}
	if !(o.unclip > 0 && o.unclip <= maxUnclip) {
		return nil, fmt.Errorf("parameter 'unclip_ratio' of model '%s' is '%s', expected a number above 0, at most %d", s.Model, s.Params["unclip_ratio"], maxUnclip)
	}
	return o, nil
}

// maxUnclip bounds unclip_ratio, so that the corners of boxes fit in 32 bits.
const maxUnclip = 100

// boxStep is text_boxes.
type boxStep struct {
	boxOptions
	batched bool
	workers pool.Of[finder]
}

var _ steps.Step = (*boxStep)(nil)

func newBoxes(s *steps.Settings) (steps.Step, error) {
	o, err := parseBoxes(s)
	if err != nil {
		return nil, err
	}
	return &boxStep{boxOptions: *o, batched: s.MaxBatch > 0}, nil
}

// Run finds the boxes of each row.
//
// hot: once the scratch has grown, only the outputs are allocated.
func (s *boxStep) Run(ctx context.Context, b *backends.Batch) error {
	f := s.workers.Get()
	defer s.done(f)
	f.found, f.ends = f.found[:0], f.ends[:0]
	for row := range b.Rows {
		first := len(f.found)
		if err := s.one(ctx, f, b, row); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			f.found = f.found[:first]
			b.Fail(row, err)
		}
		f.ends = append(f.ends, len(f.found))
	}
	return s.write(f, b)
}

// keep is the largest map whose scratch memory a worker keeps for the next batch.
const keep = 1 << 22

// done keeps the scratch memory unless it is large, without references to the request.
func (s *boxStep) done(f *finder) {
	if f.values = nil; f.w > keep/max(f.h, 1) {
		*f = finder{}
	}
	s.workers.Put(f)
}

// one finds the boxes of a row.
func (s *boxStep) one(ctx context.Context, f *finder, b *backends.Batch, row int) error {
	shape, g := b.In[inMap].Shape, tensor.Slice[float32](&b.In[inGeometry])[row*geometrySize:][:geometrySize]
	f.h, f.w = int(shape.Dim(shape.Rank()-2)), int(shape.Dim(shape.Rank()-1))
	if f.w < 1 || f.h < 1 || f.w > s.maxPixels/f.h {
		return steps.InputError(b, mapName, row, fmt.Errorf("expected from 1 to %d pixels (max_pixels), found %d x %d", s.maxPixels, f.w, f.h))
	}
	for _, v := range g[4:] {
		if !(v >= 1 && v <= maxSide) {
			return steps.InputError(b, geometryName, row, fmt.Errorf("expected elements 4 and 5, the size of the image, from 1 to %d, found %v", maxSide, g[4:]))
		}
	}
	f.values = tensor.Slice[float32](&b.In[inMap])[row*f.w*f.h:][:f.w*f.h]
	f.imageW, f.imageH = g[4], g[5]
	return f.find(ctx, &s.boxOptions)
}

// maxSide is the largest side of an image, the limit of the decoders.
const maxSide = 65535

// write allocates and fills the outputs.
func (s *boxStep) write(f *finder, b *backends.Batch) error {
	n, start := 0, 0
	for _, end := range f.ends {
		n, start = max(n, end-start), end
	}
	o := steps.Outputs{Batch: b}
	boxes := steps.Alloc[float32](&o, outBoxes, tensor.FP32, steps.Shape(b, s.batched, int64(n), 4, 2))
	scores := steps.Alloc[float32](&o, outScores, tensor.FP32, steps.Shape(b, s.batched, int64(n)))
	counts := steps.Alloc[int32](&o, outCount, tensor.Int32, steps.Shape(b, s.batched, 1))
	if o.Err != nil {
		return o.Err
	}
	clear(boxes)
	clear(scores)
	start = 0
	for row, end := range f.ends {
		counts[row] = int32(end - start)
		for i, box := range f.found[start:end] {
			scores[row*n+i] = box.score
			for j, c := range box.corners {
				boxes[(row*n+i)*boxSize+2*j], boxes[(row*n+i)*boxSize+2*j+1] = c.X, c.Y
			}
		}
		start = end
	}
	return nil
}
