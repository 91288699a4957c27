package starter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
)

// The names of the tensors between the steps of an ensemble.
const (
	inImage, inText        = "IMAGE", "TEXT"
	tPixels, tGeometry     = "pixels", "geometry"
	tScores, tIDs, tMask   = "model_scores", "ids", "mask"
	tTypes, tHidden, tRows = "types", "hidden", "rows"
)

// The sizes of images for models that accept any.
const (
	usualSide    = 224
	detectorSide = 640
)

// setSize completes the size of the image.
func (b *builder) setSize() {
	in := &b.image
	if in.h > 0 && in.w > 0 {
		return
	}
	h, w, from := b.sizeHint()
	if h <= 0 || w <= 0 {
		h, w, from = usualSide, usualSide, "is a guess"
		if b.kind == Detect {
			h, w = detectorSide, detectorSide
		}
	}
	if in.h <= 0 {
		in.h = h
	}
	if in.w <= 0 {
		in.w = w
	}
	b.note("The model accepts images of any size; %d x %d %s: change width and height of %s.", in.w, in.h, from, b.r.ModelName("decode"))
}

// sizeHint returns the size that the files beside the model or its metadata say, or 0, and where it is from.
func (b *builder) sizeHint() (h, w int64, from string) {
	from = "comes from the files beside it"
	if p := b.hints.images; p != nil {
		if on(p.Crop, false) {
			h, w = sideOf(p.CropSize)
		}
		if h == 0 {
			h, w = sideOf(p.Size)
		}
	}
	if h == 0 {
		h, w = sideOf(b.hints.config.Size)
	}
	var list []int64
	if h == 0 && json.Unmarshal([]byte(b.m.Meta["imgsz"]), &list) == nil && len(list) == 2 {
		return list[0], list[1], "comes from its metadata"
	}
	return h, w, from
}

func on(b *bool, otherwise bool) bool {
	if b == nil {
		return otherwise
	}
	return *b
}

// sideOf reads a size of Hugging Face: a number, or an object.
func sideOf(raw json.RawMessage) (h, w int64) {
	var n int64
	if json.Unmarshal(raw, &n) == nil {
		return n, n
	}
	var list []int64
	if json.Unmarshal(raw, &list) == nil && len(list) == 2 {
		return list[0], list[1]
	}
	var o struct {
		Height int64 `json:"height"`
		Width  int64 `json:"width"`
		Short  int64 `json:"shortest_edge"`
	}
	if json.Unmarshal(raw, &o) != nil {
		return 0, 0
	}
	if o.Height > 0 && o.Width > 0 {
		return o.Height, o.Width
	}
	return o.Short, o.Short
}

// decode adds the step that decodes and resizes an image, and a cast where the model's type needs one. It returns the name of the tensor.
func (b *builder) decode(params [][2]string, geometry bool) string {
	in := &b.image
	dtype, cast := "fp32", tensor.Invalid
	switch in.port.DType {
	case tensor.FP16:
		dtype = "fp16"
	case tensor.Uint8:
		dtype = "uint8"
	case tensor.FP64, tensor.BF16:
		cast = in.port.DType
	}
	all := [][2]string{{"width", str(in.w)}, {"height", str(in.h)}}
	if in.c == 1 {
		all = append(all, [2]string{"color", "gray"})
	}
	if in.nhwc {
		all = append(all, [2]string{"layout", "nhwc"})
	}
	if dtype != "fp32" {
		all = append(all, [2]string{"dtype", dtype})
	}
	all = append(all, params...)
	out := [][2]string{{"image", tPixels}}
	if geometry {
		all = append(all, [2]string{"geometry", "true"})
		out = append(out, [2]string{"geometry", tGeometry})
	}
	b.steps = append(b.steps, stage{
		name:   "decode",
		config: native("One image file in, the pixels that the model expects out.", "decode_resize", b.batch.steps, nil, nil, all),
		in:     [][2]string{{inImage, inImage}}, out: out,
	})
	if cast != tensor.Invalid {
		return b.cast("decode_cast", tPixels, tensor.FP32, cast, in.port.Shape[1:])
	}
	return tPixels
}

// cast adds a step that converts a tensor to another type, and returns the name of the result.
func (b *builder) cast(name, from string, have, want tensor.DType, dims []int64) string {
	to := from + "_" + strings.ToLower(want.String())
	b.steps = append(b.steps, stage{
		name: name,
		config: native("The same numbers as "+want.String()+".", "tensor", b.batch.steps,
			[]port{{name: "INPUT", dtype: have, dims: dims}}, []port{{name: "OUTPUT", dtype: want, dims: dims}},
			[][2]string{{"op", "cast"}, {"dtype", want.String()}}),
		in: [][2]string{{"INPUT", from}}, out: [][2]string{{"OUTPUT", to}},
	})
	return to
}

// asFP32 adds a cast if an output of the model has another type.
func (b *builder) asFP32(p Port, name string, dims []int64) string {
	if p.DType == tensor.FP32 {
		return name
	}
	return b.cast("cast", name, p.DType, tensor.FP32, dims)
}

// normalization returns the parameters of decode_resize that the files beside the model say, or a guess.
func (b *builder) normalization() [][2]string {
	in := &b.image
	decode := b.r.ModelName("decode")
	if p := b.hints.images; p != nil && in.port.DType != tensor.Uint8 {
		b.note("The preprocessing is that of preprocessor_config.json.")
		return p.params(in)
	}
	const check = "compare it with the code that the model was trained with"
	crop := [2]string{"fit", "short_side"}
	switch {
	case in.port.DType == tensor.Uint8:
		b.note("The preprocessing is a guess: the pixels are not normalised, because the input is UINT8; %s, and change %s/config.pbtxt.", check, decode)
		return nil
	case b.m.Meta["task"] == "classify": // Ultralytics
		return [][2]string{crop}
	case in.c == 1:
		b.note("The preprocessing is a guess: gray from 0 (black) to 1 (white); %s, and change %s/config.pbtxt.", check, decode)
		return nil
	case in.nhwc:
		b.note("The preprocessing is a guess: pixels from -1 to 1, as in most models of Keras (caffe-style ones want preset resnet50_keras); %s, and change %s/config.pbtxt.", check, decode)
		return [][2]string{{"scale", "1/127.5"}, {"mean", "1"}}
	default:
		b.note("The preprocessing is a guess: that of torchvision for ImageNet (resize, centre crop, mean and std); %s, and change %s/config.pbtxt.", check, decode)
		short := min(in.h, in.w) * 256 / usualSide
		return [][2]string{crop, {"short_side", str(short)}, {"mean", "0.485,0.456,0.406"}, {"std", "0.229,0.224,0.225"}, {"rounding", "each"}}
	}
}

// filters has the filters of Pillow by number.
var filters = map[int]string{0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "area", 5: "hamming"}

// params returns the parameters of decode_resize for a preprocessor_config.json.
func (p *processor) params(in *imageInput) [][2]string {
	var list [][2]string
	if on(p.Resize, true) && on(p.Crop, false) {
		short, _ := sideOf(p.Size)
		list = append(list, [2]string{"fit", "short_side"}, [2]string{"short_side", str(max(short, min(in.h, in.w)))})
	} else if p.CropPct > 0 && p.CropPct < 1 {
		list = append(list, [2]string{"fit", "short_side"}, [2]string{"short_side", str(int64(float64(min(in.h, in.w)) / p.CropPct))})
	}
	if f := filters[p.Filter]; p.Filter != 0 && f != "" && f != "bilinear" {
		list = append(list, [2]string{"resize", f})
	}
	if !on(p.Rescale, true) {
		list = append(list, [2]string{"scale", "1"})
	} else if p.Factor > 0 {
		if inverse := 1 / p.Factor; inverse < 254.99 || inverse > 255.01 {
			list = append(list, [2]string{"scale", float(p.Factor)})
		}
	}
	fits := func(values []float64) bool { return len(values) == 1 || len(values) == int(in.c) }
	if on(p.Normalize, true) && fits(p.Mean) && fits(p.Std) {
		list = append(list, [2]string{"mean", floats(p.Mean)}, [2]string{"std", floats(p.Std)}, [2]string{"rounding", "each"})
	}
	return list
}

func str(n int64) string { return strconv.FormatInt(n, 10) }

func float(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func floats(list []float64) string {
	all := make([]string, len(list))
	for i, f := range list {
		all[i] = float(f)
	}
	return strings.Join(all, ",")
}

// buildClassifier adds decode_resize, the model and top_k.
func (b *builder) buildClassifier() error {
	b.setSize()
	pixels := b.decode(b.normalization(), false)
	b.model([][2]string{{b.image.port.Name, pixels}}, [][2]string{{b.find.out.Name, tScores}})
	b.topK()
	return b.imageEnsemble()
}

// mostClasses is the number of classes in a response.
const mostClasses = 5

// topK adds the step that turns scores into labels and probabilities.
func (b *builder) topK() {
	n := b.find.classes
	if n <= 0 {
		n = int64(max(1, len(b.hints.labels)))
	}
	k := min(n, mostClasses)
	params := [][2]string{{"k", str(k)}}
	switch last := b.m.Last[b.find.out.Name]; {
	case last == "Softmax", last == "Sigmoid":
		params = append(params, [2]string{"activation", "raw"})
		b.note("The model ends in %s, so its scores are probabilities already.", last)
	case b.hints.config.Problem == "multi_label_classification":
		params = append(params, [2]string{"activation", "sigmoid"})
		b.note("The labels exclude each other not (config.json), so each has a probability of its own (sigmoid).")
	case b.find.classes == 1:
		params = append(params, [2]string{"activation", "sigmoid"})
		b.note("The model has one score, which sigmoid turns into a probability.")
	case b.m.Format != formatONNX:
		b.note("The scores are taken as logits: if they are probabilities already, write activation: raw in %s/config.pbtxt.", b.r.ModelName("top_k"))
	}
	scores := b.asFP32(b.find.out, tScores, []int64{b.find.classes})
	s := stage{
		name: "top_k", in: [][2]string{{"scores", scores}}, out: [][2]string{{"values", "probabilities"}, {"indices", "indices"}},
	}
	row := b.batch.dims
	out := func(name string, d tensor.DType) {
		b.r.outputs = append(b.r.outputs, port{name: name, dtype: d, dims: row(k)})
	}
	if len(b.hints.labels) > 0 {
		params = append(params, [2]string{"labels_file", "labels.txt"})
		s.files = b.labelsFile()
		s.out = append(s.out, [2]string{"labels", "labels"})
		out("labels", tensor.Bytes)
	}
	out("indices", tensor.Int32)
	out("probabilities", tensor.FP32)
	s.config = native("Scores in, the likeliest classes with their probabilities out.", "top_k", b.batch.steps, nil, nil, params)
	b.steps = append(b.steps, s)
}

func (b *builder) labelsFile() []File {
	return []File{{Path: "labels.txt", Data: []byte(strings.Join(b.hints.labels, "\n") + "\n")}}
}

// buildImageEmbedding adds decode_resize, the model and normalize.
func (b *builder) buildImageEmbedding() error {
	b.setSize()
	pixels := b.decode(b.normalization(), false)
	b.model([][2]string{{b.image.port.Name, pixels}}, [][2]string{{b.find.out.Name, tRows}})
	b.normalize()
	return b.imageEnsemble()
}

// normalize adds the step that scales vectors to length 1.
func (b *builder) normalize() {
	p := b.find.out
	dims := []int64{p.Shape[1]}
	from := tRows
	if p.DType == tensor.FP64 {
		from = b.cast("cast", tRows, p.DType, tensor.FP32, dims)
		p.DType = tensor.FP32
	}
	b.steps = append(b.steps, stage{
		name: "normalize",
		config: native("Vectors of length 1, whose inner product is their similarity.", "normalize", b.batch.steps,
			[]port{{name: "embedding", dtype: p.DType, dims: dims}}, []port{{name: "embedding", dtype: tensor.FP32, dims: dims}}, nil),
		in: [][2]string{{"embedding", from}}, out: [][2]string{{"embedding", "embedding"}},
	})
	b.r.outputs = []port{{name: "embedding", dtype: tensor.FP32, dims: b.batch.dims(dims...)}}
}

// imageEnsemble adds the ensemble with the input IMAGE, and the sample request.
func (b *builder) imageEnsemble() error {
	content, err := sampleImage(b.image.w, b.image.h, b.image.c == 1)
	if err != nil {
		return fmt.Errorf("sample image: %w", err)
	}
	b.ensembleInputs = []port{{name: inImage, dtype: tensor.Bytes, dims: b.batch.dims(1)}}
	b.r.Sample = []Sample{elementSample(inImage, b.sampleRows(), content, "sample.png")}
	return nil
}

// sampleRows returns the number of rows of the sample request.
func (b *builder) sampleRows() int64 { return max(1, b.batch.rows) }

// elementSample returns an input of BYTES whose rows all have one element, content.
func elementSample(name string, rows int64, content []byte, file string) Sample {
	s := Sample{Name: name, DType: tensor.Bytes, Shape: []int64{rows, 1}, File: file, Content: content}
	for range rows {
		s.Data = tensor.AppendBytes(s.Data, content)
	}
	return s
}

// largestSample bounds the sides of the sample image.
const largestSample = 256

// sampleImage draws a PNG file with a disc and a square on a gradient. A small image has the size that the model expects.
func sampleImage(w, h int64, gray bool) ([]byte, error) {
	width, height := int(min(w, largestSample)), int(min(h, largestSample))
	var to interface {
		image.Image
		Set(x, y int, c color.Color)
	} = image.NewRGBA(image.Rect(0, 0, width, height))
	if gray {
		to = image.NewGray(image.Rect(0, 0, width, height))
	}
	for y := range height {
		for x := range width {
			to.Set(x, y, samplePixel(x, y, width, height))
		}
	}
	var out bytes.Buffer
	err := png.Encode(&out, to)
	return out.Bytes(), err
}

func samplePixel(x, y, width, height int) color.RGBA {
	dx, dy := 4*x-width, 4*y-height // from the centre of the disc, at a quarter of each side
	side := min(width, height)
	switch {
	case dx*dx+dy*dy < side*side/2:
		return color.RGBA{R: 230, G: 60, B: 40, A: 255}
	case x > width*5/8 && x < width*7/8 && y > height/2 && y < height*7/8:
		return color.RGBA{R: 40, G: 90, B: 220, A: 255}
	default:
		return color.RGBA{R: uint8(40 + 120*x/width), G: uint8(60 + 120*y/height), B: 90, A: 255} //nolint:gosec // at most 180
	}
}
