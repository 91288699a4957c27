package detect

import (
	"fmt"

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

// The formats.
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
// Inputs by format, all FP32: boxes takes boxes [N,4] and scores [N,C]; yolov5 takes
// predictions [N,5+C], rows of centre x, centre y, width, height, objectness and
// classes; yolov8 takes predictions [4+C,N], the same transposed and without
// objectness; yolov5_raw takes level_0, level_1, ... [A,H,W,5+C], the network's heads
// before they are decoded; detr takes logits [N,C+1], whose last class is "no object",
// and boxes [N,4], centre and size as parts of the picture. With geometry, one more
// input has that name: FP32 [6], as the step decode_resize gives it.
//
// Outputs are boxes FP32 [M,4], left, top, right and bottom; scores FP32 [M], falling;
// classes INT32 [M]; count INT32 [1], how many of them there are; and with labels_file
// labels BYTES [M]. What follows the last box is 0, class -1 and an empty label.
//
// Hard suppression and the intersection over union are torchvision's; soft suppression
// is N. Bodla et al., "Soft-NMS: improving object detection with one line of code", 2017.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "detect",
		Doc: "Makes what a detector puts out (YOLO v5 and v8, DETR, or plain boxes and scores) a list of boxes by falling score: " +
			"decodes, drops boxes of low scores, suppresses those that overlap a better one, and with the geometry that " +
			"decode_resize gives takes them to pixels of the original picture. Boxes are cut off at the picture's edges; one with " +
			"nothing inside, or with a number that is not finite, is left out. What follows the last box has class -1.",
		Params: []steps.Param{
			{Key: "format", Doc: "What the model puts out.", Default: formatBoxes, Values: []string{formatBoxes, formatV5, formatV5Raw, formatV8, formatDETR}},
			{Key: "box_format", Doc: "For boxes: left, top, right, bottom (xyxy), left, top, width, height (xywh) or centre, width, height (cxcywh).", Default: "xyxy", Values: []string{"xyxy", "xywh", "cxcywh"}},
			{Key: "coordinates", Doc: "Whether boxes are in pixels of the model's input or parts of it; auto is normalized for detr, else pixels.", Default: auto, Values: []string{auto, "pixels", "normalized"}},
			{Key: "activation", Doc: "For boxes and detr: what makes probabilities of scores. softmax takes the last class for 'no object'; auto is softmax for detr, else none.", Default: auto, Values: []string{auto, "none", "sigmoid", "softmax"}},
			{Key: "anchors", Doc: "For yolov5_raw: widths and heights of the anchors, semicolons between levels.", Default: "10,13,16,30,33,23;30,61,62,45,59,119;116,90,156,198,373,326"},
			{Key: "strides", Doc: "For yolov5_raw: pixels to a cell, for each level.", Default: "8,16,32"},
			{Key: "width", Doc: "Width of the model's input in pixels; 0 if that is not needed.", Default: "0"},
			{Key: "height", Doc: "Height of the model's input in pixels; 0 if that is not needed.", Default: "0"},
			{Key: "geometry", Doc: "Whether there is an input geometry, and boxes are given in pixels of the original picture.", Default: "false", Values: []string{"true", "false"}},
			{Key: "score_threshold", Doc: "Boxes must score more than this.", Default: "0.25"},
			{Key: "multi_label", Doc: "Whether a box counts for every class that scores enough, or for its best only.", Default: "false", Values: []string{"true", "false"}},
			{Key: "nms", Doc: "How boxes that overlap a better one are suppressed: dropped (hard), or their score lowered by the overlap (linear) or its square (gaussian); auto is none for detr, else hard.", Default: auto, Values: []string{auto, "hard", "linear", "gaussian", "none"}},
			{Key: "class_agnostic", Doc: "Whether boxes of different classes suppress each other.", Default: "false", Values: []string{"true", "false"}},
			{Key: "iou_threshold", Doc: "Intersection over union above which boxes overlap (hard, linear).", Default: "0.45"},
			{Key: "sigma", Doc: "Divides the squared overlap (gaussian).", Default: "0.5"},
			{Key: "soft_threshold", Doc: "Boxes whose lowered score is below this are dropped (linear, gaussian).", Default: "0.001"},
			{Key: "max_candidates", Doc: "Most boxes that suppression starts with, the best ones.", Default: "30000"},
			{Key: "max_detections", Doc: "Most boxes that are given.", Default: "100"},
			{Key: "output", Doc: "Whether outputs have max_detections places (padded) or as many as the fullest row of the batch (rows).", Default: "padded", Values: []string{"padded", "rows"}},
			{Key: "labels_file", Doc: "Text file with one label per line, in the version folder or the model folder; adds the output labels.", Sample: "labels.txt"},
		},
		Examples:  examples(),
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
		for i := range o.levels {
			add(fmt.Sprint("level_", i), -1, -1, -1, -1)
		}
	default:
		add("predictions", -1, -1)
	}
	if o.geometry {
		add(geometryName, geometrySize)
	}
	return in
}
