// Package draw holds the step draw_boxes, which draws the boxes of a detector on an image.
package draw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/jpeg"
	"image/png"
	"slices"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/image"
	"github.com/tutti-server/tutti/steps/image/raster"
)

const (
	inImage = iota
	inBoxes
	inScores
	inClasses
)

const (
	imageName = "IMAGE"
	file      = "file"
	pixels    = "pixels"
	formatPNG = "png"
)

// NewFactory declares the step draw_boxes.
//
// Inputs are IMAGE, an image file (BYTES [1]) or UINT8 [H,W,3]; and, as the step detect gives them, boxes FP32 [N,4]
// (left, top, right and bottom in pixels of the image), scores FP32 [N] and classes INT32 [N], where a negative class
// marks an unused box. Output image is a PNG or JPEG file, BYTES [1], or UINT8 [H,W,3]. Boxes with a number that is not
// finite are not drawn, and lines outside the image are cut off. The letters are those of golang.org/x/image's
// basicfont, 7 x 13 pixels times text_scale.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "draw_boxes",
		Doc: "Draws a detector's boxes on an image, each in the colour of its class and with its label and score. The output is " +
			"a file or pixels. A box with a negative class or with a number that is not finite is not drawn.",
		Params: slices.Concat([]steps.Param{
			{Key: "input", Doc: "Whether the image is a file or UINT8 pixels in rows of RGB.", Default: file, Values: []string{file, pixels}},
			{Key: "output", Doc: "The output: a file, or UINT8 pixels, which require an input of pixels.", Default: formatPNG, Values: []string{formatPNG, "jpeg", pixels}},
			{Key: "quality", Doc: "Quality of JPEG, from 1 to 100.", Default: "90"},
			{Key: "thickness", Doc: "Thickness of the lines in pixels; 0 follows the size of the image.", Default: "0"},
			{Key: "text_scale", Doc: "Scale of the letters; 0 follows the size of the image.", Default: "0"},
			{Key: "max_boxes", Doc: "Most boxes of one image.", Default: "1000"},
			{Key: "labels_file", Doc: "Text file with one label per line; without it, classes are shown as numbers.", Sample: "labels.txt"},
		}, image.OpenerParams()),
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("", "draw_boxes", "input", "pixels", "output", "pixels", "thickness", "1"),
			Request: `{"inputs": [
    {"name": "IMAGE", "datatype": "UINT8", "shape": [3, 3, 3], "data": [0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0, 0,0,0]},
    {"name": "boxes", "datatype": "FP32", "shape": [1, 4], "data": [1, 1, 9, 9]},
    {"name": "scores", "datatype": "FP32", "shape": [1], "data": [0.9]},
    {"name": "classes", "datatype": "INT32", "shape": [1], "data": [0]}]}`,
		}},
		Signature: signature,
		New:       newStep,
	}
}

// options are the step's parameters.
type options struct {
	files, encoded  bool
	png             bool
	quality         int
	thickness, text int
	maxBoxes        int
	maxPixels       int
}

func parse(s *steps.Settings) (*options, error) {
	p := s.Params
	o := &options{files: p["input"] == file, encoded: p["output"] != pixels, png: p["output"] == formatPNG}
	for _, n := range []struct {
		key          string
		lowest, most int
		to           *int
	}{
		{"quality", 1, 100, &o.quality},
		{"thickness", 0, 1000, &o.thickness},
		{"text_scale", 0, 1000, &o.text},
		{"max_boxes", 1, 1 << 20, &o.maxBoxes},
		{"max_pixels", 1, 1 << 40, &o.maxPixels},
	} {
		v, err := s.Int(n.key, n.lowest)
		if err != nil {
			return nil, err
		}
		if v > n.most {
			return nil, fmt.Errorf("parameter '%s' of model '%s' is %d, expected at most %d", n.key, s.Model, v, n.most)
		}
		*n.to = v
	}
	if o.files && !o.encoded {
		return nil, fmt.Errorf("parameter 'output' of model '%s' is 'pixels', expected png or jpeg with input file, whose images differ in size", s.Model)
	}
	return o, nil
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	pixels := config.Port{Name: imageName, DType: tensor.Uint8, Dims: tensor.Of(-1, -1, 3)}
	named := config.Port{Name: "image", DType: tensor.Bytes, Dims: tensor.Of(1)}
	out := pixels
	if out.Name = named.Name; o.encoded {
		out = named
	}
	if o.files {
		pixels.DType, pixels.Dims = tensor.Bytes, tensor.Of(1)
	}
	return &config.Signature{
		Inputs: []config.Port{
			inImage:   pixels,
			inBoxes:   {Name: "boxes", DType: tensor.FP32, Dims: tensor.Of(-1, 4)},
			inScores:  {Name: "scores", DType: tensor.FP32, Dims: tensor.Of(-1)},
			inClasses: {Name: "classes", DType: tensor.Int32, Dims: tensor.Of(-1)},
		},
		Outputs: []config.Port{out},
	}, nil
}

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
	return &step{options: *o, batched: s.MaxBatch > 0, labels: labels, opener: opener}, nil
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

// load copies the image of a row to the canvas.
func (s *step) load(ctx context.Context, w *worker, src *source, row int) error {
	if s.files {
		data, rest, ok := tensor.NextBytes(src.rest)
		if !ok {
			return errors.New("expected one file for each row")
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
	raster.Pick(out[row*n:][:n], w.img.Pix, 4, 1, 2)
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
