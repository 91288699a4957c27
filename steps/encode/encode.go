// Package encode holds the step encode_image, which encodes image tensors as files.
package encode

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"math"
	"slices"

	"github.com/HugoSmits86/nativewebp"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/pool"
	"github.com/tutti-server/tutti/steps"
)

// NewFactory declares the step encode_image.
//
// Input image is UINT8 or FP32, [H,W,C] or [C,H,W], where C is 1 for gray, 3 for rgb and 4 for rgba. FP32 samples are
// multiplied by scale, rounded to the nearest integer and clamped to 0 to 255. Output file is BYTES [1]: a JPEG with
// 4:2:0 chroma, a PNG or a lossless WebP. A sample that is not finite fails its own request with an invalid-argument
// error; an empty image or one beyond the limits fails the batch.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "encode_image",
		Doc:  "Encodes an image tensor of any size as a JPEG, PNG or WebP file. WebP is always lossless.",
		Params: []steps.Param{
			{Key: "format", Doc: "Format of the file.", Default: "jpeg", Values: []string{"jpeg", "png", "webp"}},
			{Key: "quality", Doc: "Quality of JPEG, from 1 to 100.", Default: "75"},
			{Key: "color", Doc: "Colour space of the channels; JPEG does not support rgba.", Default: "rgb", Values: []string{"rgb", "gray", "rgba"}},
			{Key: "layout", Doc: "Order of the input's dimensions.", Default: "nhwc", Values: []string{"nchw", "nhwc"}},
			{Key: "dtype", Doc: "Type of the input.", Default: "uint8", Values: []string{"uint8", "fp32"}},
			{Key: "scale", Doc: "Factor on FP32 samples, which are then rounded and clamped to 0 to 255.", Default: "255"},
			{Key: "max_pixels", Doc: "Largest image accepted, width times height.", Default: "67108864"},
		},
		Examples: []steps.Example{{
			Config:  steps.ExampleConfig("", "encode_image", "format", "png", "color", "gray"),
			Request: `{"inputs":[{"name":"image","datatype":"UINT8","shape":[1,2,1],"data":[0,255]}],"outputs":[{"name":"file","parameters":{"binary_data":true}}]}`,
		}},
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	dims := tensor.Of(-1, -1, int64(o.channels))
	if o.planes {
		dims = tensor.Of(int64(o.channels), -1, -1)
	}
	dtype := tensor.Uint8
	if o.float {
		dtype = tensor.FP32
	}
	return &config.Signature{
		Inputs:  []config.Port{{Name: "image", DType: dtype, Dims: dims}},
		Outputs: []config.Port{{Name: "file", DType: tensor.Bytes, Dims: tensor.Of(1)}},
	}, nil
}

type options struct {
	format    string
	quality   int
	channels  int
	planes    bool // NCHW: channels first
	float     bool
	scale     float32
	maxPixels int64
}

func parse(s *steps.Settings) (*options, error) {
	o := &options{format: s.Params["format"], planes: s.Params["layout"] == "nchw", float: s.Params["dtype"] == "fp32"}
	o.channels = map[string]int{"gray": 1, "rgb": 3, "rgba": 4}[s.Params["color"]]
	if o.channels == 4 && o.format == "jpeg" {
		return nil, fmt.Errorf("parameter 'color' of model '%s' is 'rgba', expected rgb or gray with format jpeg, which has no alpha", s.Model)
	}
	p := steps.Reader{Settings: s}
	scale, err := s.Float("scale")
	o.quality, o.scale, o.maxPixels = p.Int("quality", 1, 100), float32(scale), int64(p.Int("max_pixels", 1, math.MaxInt))
	switch {
	case p.Err != nil || err != nil:
		return nil, cmp.Or(p.Err, err)
	case o.quality != 75 && o.format != "jpeg":
		return nil, fmt.Errorf("parameter 'quality' of model '%s' is %d, expected none with format %s, which is lossless", s.Model, o.quality, o.format)
	case scale != 255 && !o.float:
		return nil, fmt.Errorf("parameter 'scale' of model '%s' is '%s', expected none with dtype uint8", s.Model, s.Params["scale"])
	}
	return o, nil
}

// maxSides are the longest sides that the formats can hold, in pixels.
var maxSides = map[string]int64{"jpeg": 65535, "webp": 16384, "png": 1<<31 - 1}

type step struct {
	options
	batched bool
	workers pool.Of[worker]
}

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
			b.Fail(row, steps.InputError(b, "image", row, err))
		}
		wk.files = tensor.AppendBytes(wk.files, wk.out.Bytes())
	}
	return steps.Write(b, 0, tensor.Bytes, steps.Shape(b, s.batched, 1), wk.files)
}

// size returns height and width, which all rows share. It returns an error for sizes that the
// format or the limits do not allow.
func (s *step) size(shape tensor.Shape) (h, w int, err error) {
	at := shape.Rank() - 3
	if s.planes {
		at++
	}
	y, x := shape.Dim(at), shape.Dim(at+1)
	most := maxSides[s.format]
	switch {
	case y == 0 || x == 0:
		return 0, 0, status.Errorf(status.InvalidArg, "input 'image': expected an image, found %d x %d pixels", x, y)
	case y > most || x > most:
		return 0, 0, status.Errorf(status.InvalidArg, "input 'image': expected sides of at most %d pixels for %s, found %d x %d", most, s.format, x, y)
	case y*x > s.maxPixels:
		return 0, 0, status.Errorf(status.InvalidArg, "input 'image': expected at most %d pixels (max_pixels), found %d x %d = %d", s.maxPixels, x, y, x*y)
	}
	return int(y), int(x), nil
}

// one encodes the row whose samples start at element first.
func (s *step) one(wk *worker, in *tensor.Tensor, first, h, w int) error {
	n := h * w * s.channels
	if !s.float {
		return wk.encode(&s.options, in.Bytes()[first:][:n], h, w)
	}
	samples := tensor.Slice[float32](in)[first:][:n]
	wk.samples = slices.Grow(wk.samples[:0], n)[:n]
	if bad := quantise(wk.samples, samples, s.scale); bad >= 0 {
		return fmt.Errorf("expected finite numbers, found %v at element %d of the image", samples[bad], bad)
	}
	return wk.encode(&s.options, wk.samples, h, w)
}

// worker is the scratch memory of one batch in progress.
type worker struct {
	out     bytes.Buffer
	files   []byte
	samples []byte
	pix     []byte
}

// encode writes h x w pixels to wk.out as a file of the configured format. PNG and WebP
// are lossless: a decoder returns the same samples, those under transparent pixels too.
func (wk *worker) encode(o *options, samples []byte, h, w int) error {
	img := wk.image(o, samples, h, w)
	switch o.format {
	case "png":
		return png.Encode(&wk.out, img)
	case "webp":
		return nativewebp.Encode(&wk.out, img, nil)
	default:
		return jpeg.Encode(&wk.out, img, &jpeg.Options{Quality: o.quality})
	}
}

// image wraps the samples of h x w pixels as an image. Grey and packed RGBA samples are
// used in place, other layouts are copied to wk.pix as four bytes per pixel.
func (wk *worker) image(o *options, samples []byte, h, w int) image.Image {
	rect := image.Rect(0, 0, w, h)
	if o.channels == 1 {
		return &image.Gray{Pix: samples, Stride: w, Rect: rect}
	}
	pix := samples
	if o.planes || o.channels == 3 {
		wk.pix = slices.Grow(wk.pix[:0], 4*w*h)[:4*w*h]
		pix = wk.pix
		if o.planes {
			interleave(pix, samples, w*h)
		} else {
			widen(pix, samples)
		}
	}
	if o.channels == 4 {
		return &image.NRGBA{Pix: pix, Stride: 4 * w, Rect: rect}
	}
	return &image.RGBA{Pix: pix, Stride: 4 * w, Rect: rect}
}

// interleave packs planes of n samples into pixels of four bytes. Three planes give opaque pixels.
func interleave(dst, src []byte, n int) {
	for i := range n {
		p := dst[4*i : 4*i+4 : 4*i+4]
		p[0], p[1], p[2], p[3] = src[i], src[n+i], src[2*n+i], 255
		if len(src) > 3*n {
			p[3] = src[3*n+i]
		}
	}
}

// widen copies pixels of three bytes to opaque pixels of four bytes.
func widen(dst, src []byte) {
	for len(dst) >= 4 && len(src) >= 3 {
		dst[0], dst[1], dst[2], dst[3] = src[0], src[1], src[2], 255
		dst, src = dst[4:], src[3:]
	}
}

// quantise multiplies by scale, rounds to the nearest integer (ties to even) and clamps to 0 to 255. It returns the
// index of the first element that is not finite, or -1. For example, 0.5 at scale 255 gives 128.
func quantise(dst []byte, src []float32, scale float32) int {
	for i, v := range src {
		if v-v != 0 { // NaN or an infinity
			return i
		}
		dst[i] = byte(min(max(math.RoundToEven(float64(v*scale)), 0), 255))
	}
	return -1
}
