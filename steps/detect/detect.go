// Package detect holds the step detect, which converts the raw outputs of a detector to a list of
// boxes: it decodes them, drops boxes of low scores, suppresses boxes that overlap a better
// one, and maps the rest to pixels of the image.
//
// For example, YOLO v8 has 84 numbers for each of 8400 boxes of an input of 640 x 640 pixels:
// centre, size and 80 class scores. The step returns those above score_threshold after
// suppression, as left, top, right and bottom in pixels of the original image.
//
// A NaN score is ignored. A box is dropped if a coordinate or its best score is NaN or infinite.
// A box whose right edge is left of its left edge has no area and overlaps nothing.
package detect

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const (
	outBoxes = iota
	outScores
	outClasses
	outCount
	outLabels
)

const (
	formatBoxes  = "boxes"
	formatV5     = "yolov5"
	formatV5Raw  = "yolov5_raw"
	formatV8     = "yolov8"
	formatDETR   = "detr"
	geometryName = "geometry"
	geometrySize = 6
)

// NewFactory declares the step detect.
//
// The inputs are FP32 and depend on the format:
//
//	boxes       boxes [N,4] and scores [N,C]
//	yolov5      predictions [N,5+C]: centre x, centre y, width, height, objectness and classes
//	yolov8      predictions [4+C,N]: the same transposed and without objectness
//	yolov5_raw  level_0, level_1, ... [A,H,W,5+C]: the heads of the network before decoding
//	detr        logits [N,C+1], the last class of which is "no object", and boxes [N,4]: centre
//	            and size as fractions of the image
//
// With geometry there is one more input of that name, FP32 [6], the output of decode_resize.
//
// Outputs are boxes FP32 [M,4] (left, top, right and bottom), scores FP32 [M] in descending
// order, classes INT32 [M], count INT32 [1], the number of boxes, and with labels_file labels
// BYTES [M]. Elements after the last box are 0, class -1 and an empty label.
//
// Hard suppression and the intersection over union are torchvision's; soft suppression
// is N. Bodla et al., "Soft-NMS: improving object detection with one line of code", 2017.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "detect",
		Doc: "Converts the outputs of a detector (YOLO v5 and v8, DETR, or plain boxes and scores) to a list of boxes by descending score: " +
			"decodes, drops boxes of low scores, suppresses those that overlap a better one, and, with the geometry of " +
			"decode_resize, maps them to pixels of the original image. Boxes are cut off at the edges of the image; a box outside of it " +
			"or with a number that is not finite is dropped. Elements after the last box have class -1.",
		Params: []steps.Param{
			{Key: "format", Doc: "Format of the model's outputs.", Default: formatBoxes, Values: []string{formatBoxes, formatV5, formatV5Raw, formatV8, formatDETR}},
			{Key: "box_format", Doc: "For boxes: left, top, right, bottom (xyxy), left, top, width, height (xywh) or centre, width, height (cxcywh).", Default: "xyxy", Values: []string{"xyxy", "xywh", "cxcywh"}},
			{Key: "coordinates", Doc: "Whether boxes are in pixels of the model's input or fractions of it; auto is normalized for detr, else pixels.", Default: auto, Values: []string{auto, "pixels", "normalized"}},
			{Key: "activation", Doc: "For boxes and detr: the function that converts scores to probabilities. softmax treats the last class as 'no object'; auto is softmax for detr, else none.", Default: auto, Values: []string{auto, "none", "sigmoid", "softmax"}},
			{Key: "anchors", Doc: "For yolov5_raw: widths and heights of the anchors, semicolons between levels.", Default: "10,13,16,30,33,23;30,61,62,45,59,119;116,90,156,198,373,326"},
			{Key: "strides", Doc: "For yolov5_raw: pixels per cell, for each level.", Default: "8,16,32"},
			{Key: "width", Doc: "Width of the model's input in pixels; 0 if it is not needed.", Default: "0"},
			{Key: "height", Doc: "Height of the model's input in pixels; 0 if it is not needed.", Default: "0"},
			{Key: "geometry", Doc: "Adds the input geometry; boxes are then in pixels of the original image.", Default: "false", Values: []string{"true", "false"}},
			{Key: "score_threshold", Doc: "Boxes must score more than this.", Default: "0.25"},
			{Key: "multi_label", Doc: "Whether a box is returned for every class above the threshold, or for its best class only.", Default: "false", Values: []string{"true", "false"}},
			{Key: "nms", Doc: "Suppression of boxes that overlap a better one: drop them (hard), or lower their score by the overlap (linear) or its square (gaussian); auto is none for detr, else hard.", Default: auto, Values: []string{auto, "hard", "linear", "gaussian", "none"}},
			{Key: "class_agnostic", Doc: "Whether boxes of different classes suppress each other.", Default: "false", Values: []string{"true", "false"}},
			{Key: "iou_threshold", Doc: "Intersection over union above which boxes overlap (hard, linear).", Default: "0.45"},
			{Key: "sigma", Doc: "Divisor of the squared overlap (gaussian).", Default: "0.5"},
			{Key: "soft_threshold", Doc: "Boxes whose lowered score is below this are dropped (linear, gaussian).", Default: "0.001"},
			{Key: "max_candidates", Doc: "Most boxes before suppression; the best ones are taken.", Default: "30000"},
			{Key: "max_detections", Doc: "Most boxes that are returned.", Default: "100"},
			{Key: "output", Doc: "Whether outputs have max_detections elements (padded) or as many as the row of the batch with the most boxes (rows).", Default: "padded", Values: []string{"padded", "rows"}},
			{Key: "labels_file", Doc: "Text file with one label per line, in the version folder or the model folder; adds the output labels.", Sample: "labels.txt"},
		},
		Examples: []steps.Example{
			{
				Config: steps.ExampleConfig("", "detect", "max_detections", "3", "labels_file", "labels.txt"),
				Files:  map[string][]byte{"labels.txt": []byte("cat\ndog\n")},
				Request: `{"inputs": [
    {"name": "boxes", "datatype": "FP32", "shape": [3, 4], "data": [0,0,10,10, 1,0,11,10, 20,5,30,25]},
    {"name": "scores", "datatype": "FP32", "shape": [3, 2], "data": [0.9,0.1, 0.8,0, 0.2,0.6]}]}`,
			},
			{
				Config: steps.ExampleConfig("max_batch_size: 8", "detect", "format", "yolov8", "geometry", "true", "output", "rows"),
				Request: `{"inputs": [
    {"name": "predictions", "datatype": "FP32", "shape": [1, 6, 2], "data": [32,16, 24,40, 20,12, 16,8, 0.7,0.1, 0,0.2]},
    {"name": "geometry", "datatype": "FP32", "shape": [1, 6], "data": [0.5,0.5, 0,8, 128,96]}]}`,
			},
		},
		Signature: signature,
		New:       newStep,
	}
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	n := int64(o.maxDetections)
	if o.rows {
		n = -1
	}
	sig := &config.Signature{
		Inputs: o.inputs(),
		Outputs: []config.Port{
			outBoxes:   {Name: "boxes", DType: tensor.FP32, Dims: tensor.Of(n, 4)},
			outScores:  {Name: "scores", DType: tensor.FP32, Dims: tensor.Of(n)},
			outClasses: {Name: "classes", DType: tensor.Int32, Dims: tensor.Of(n)},
			outCount:   {Name: "count", DType: tensor.Int32, Dims: tensor.Of(1)},
		},
	}
	if s.Params["labels_file"] != "" {
		sig.Outputs = append(sig.Outputs, config.Port{Name: "labels", DType: tensor.Bytes, Dims: tensor.Of(n)})
	}
	return sig, nil
}

func (o *options) inputs() []config.Port {
	var in []config.Port
	add := func(name string, dims ...int64) {
		in = append(in, config.Port{Name: name, DType: tensor.FP32, Dims: tensor.Of(dims...)})
	}
	switch o.format {
	case formatBoxes:
		add("boxes", -1, 4)
		add("scores", -1, -1)
	case formatDETR:
		add("logits", -1, -1)
		add("boxes", -1, 4)
	case formatV5Raw:
		for _, l := range o.levels {
			add(l.name, -1, -1, -1, -1)
		}
	default:
		add("predictions", -1, -1)
	}
	if o.geometry {
		add(geometryName, geometrySize)
	}
	return in
}

// auto is the value of a parameter that depends on the format.
const auto = "auto"

type options struct {
	format                       string
	boxes                        boxFormat
	normalized                   bool
	activation                   string
	levels                       []level
	width, height                int
	geometry                     bool
	score                        float32
	logit                        float32 // a little below the number whose sigmoid is score
	multi                        bool
	nms                          string
	agnostic                     bool
	iou, sigma, soft             float32
	maxCandidates, maxDetections int
	rows                         bool
}

// boxFormat is the meaning of the four numbers of a box.
type boxFormat uint8

const (
	xyxy boxFormat = iota
	xywh
	cxcywh
)

// level is one head of YOLO v5.
type level struct {
	name    string // of its input
	stride  float32
	anchors []float32 // width and height of each, in pixels
}

func parse(s *steps.Settings) (*options, error) {
	p, r := s.Params, steps.Reader{Settings: s}
	detr := p["format"] == formatDETR
	o := &options{
		format: p["format"], nms: p["nms"], activation: p["activation"], rows: p["output"] == "rows",
		boxes:      map[string]boxFormat{"xyxy": xyxy, "xywh": xywh, "cxcywh": cxcywh}[p["box_format"]],
		normalized: p["coordinates"] == "normalized" || p["coordinates"] == auto && detr,
		width:      r.Int("width", 0, mostBoxes), height: r.Int("height", 0, mostBoxes),
		maxCandidates: r.Int("max_candidates", 1, mostBoxes), maxDetections: r.Int("max_detections", 1, mostBoxes),
		score: r.Float("score_threshold"), iou: r.Float("iou_threshold"), sigma: r.Float("sigma"), soft: r.Float("soft_threshold"),
		geometry: p["geometry"] == "true", multi: p["multi_label"] == "true", agnostic: p["class_agnostic"] == "true",
	}
	o.logit = lowestLogit(float64(o.score))
	fits := o.format == formatBoxes
	switch {
	case r.Err != nil:
		return nil, r.Err
	case !(o.sigma > 0):
		return nil, fmt.Errorf("parameter 'sigma' of model '%s' is '%s', expected a number above 0", s.Model, p["sigma"])
	case o.width == 0 != (o.height == 0):
		return nil, fmt.Errorf("parameters 'width' and 'height' of model '%s' are %d and %d, expected both or none", s.Model, o.width, o.height)
	case o.normalized && o.geometry && o.width == 0:
		return nil, fmt.Errorf("model '%s' needs parameters 'width' and 'height' for boxes that are parts of the model's input", s.Model)
	case !fits && o.boxes != xyxy:
		return nil, fmt.Errorf("parameter 'box_format' of model '%s' has no meaning with format '%s'", s.Model, o.format)
	case !fits && !detr && o.activation != auto:
		return nil, fmt.Errorf("parameter 'activation' of model '%s' has no meaning with format '%s'", s.Model, o.format)
	case o.format == formatV5Raw && o.normalized:
		return nil, fmt.Errorf("parameter 'coordinates' of model '%s' is 'normalized', expected pixels with format '%s'", s.Model, o.format)
	case o.format == formatV5Raw:
		if err := o.heads(s); err != nil {
			return nil, err
		}
	}
	if !fits {
		o.boxes = cxcywh
	}
	if o.nms == auto {
		o.nms = either(detr, "none", "hard")
	}
	if o.activation == auto {
		o.activation = either(detr, "softmax", "none")
	}
	return o, nil
}

func either(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// mostBoxes is the largest number of boxes, and of pixels of a side.
const mostBoxes = 1 << 20

// lowestLogit returns a number a little below the one whose sigmoid is p.
func lowestLogit(p float64) float32 {
	switch {
	case p <= 0:
		return float32(math.Inf(-1))
	case p >= 1:
		return float32(math.Inf(1))
	}
	l := math.Log(p / (1 - p))
	return float32(l - 1e-3 - 1e-6*math.Abs(l))
}

func (o *options) heads(s *steps.Settings) error {
	strides, err := list(s, "strides", s.Params["strides"])
	if err != nil {
		return err
	}
	groups := strings.Split(s.Params["anchors"], ";")
	if len(groups) != len(strides) {
		return fmt.Errorf("parameter 'anchors' of model '%s' has %d levels, expected one for each of %d strides", s.Model, len(groups), len(strides))
	}
	for i, g := range groups {
		anchors, err := list(s, "anchors", g)
		if err != nil {
			return err
		}
		if len(anchors)%2 != 0 {
			return fmt.Errorf("parameter 'anchors' of model '%s', level %d: expected pairs, found %d numbers", s.Model, i, len(anchors))
		}
		o.levels = append(o.levels, level{fmt.Sprint("level_", i), strides[i], anchors})
	}
	return nil
}

// list reads positive numbers with commas between them.
func list(s *steps.Settings, key, text string) ([]float32, error) {
	var out []float32
	for f := range strings.SplitSeq(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(f), 32)
		if err != nil || !(v > 0 && v <= math.MaxFloat32) {
			return nil, fmt.Errorf("parameter '%s' of model '%s' holds '%s', expected numbers above 0", key, s.Model, f)
		}
		out = append(out, float32(v))
	}
	return out, nil
}
