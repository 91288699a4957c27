package starter

import (
	"errors"
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
)

// The formats of detectors: values of the parameter format of the step detect.
const (
	detectYOLOv8 = "yolov8" // [4+classes, boxes]
	detectYOLOv5 = "yolov5" // [boxes, 5+classes]
	detectDETR   = "detr"   // logits [boxes, classes+1] and boxes [boxes, 4]
	detectBoxes  = "boxes"  // scores [boxes, classes] and boxes [boxes, 4]
)

// fewestBoxes is the fewest boxes of a detector of the YOLO family for images of a usual size.
const fewestBoxes = 64

var errDetector = errors.New("expected outputs of YOLO v8 [batch,4+classes,boxes] or v5 [batch,boxes,5+classes], or two of boxes [batch,boxes,4] and scores [batch,boxes,classes]")

// findDetector finds the outputs of a detector.
func (b *builder) findDetector() error {
	if task := b.m.Meta["task"]; task != "" && task != "detect" && b.m.Meta["stride"] != "" {
		return fmt.Errorf("the model was exported for the task '%s'", task)
	}
	var three []Port
	for _, p := range b.m.Outputs {
		if len(p.Shape) == 3 && p.DType.IsFloat() && !contains(p.Name, "hidden", "embed", "feature", "token") {
			three = append(three, p)
		}
	}
	if len(three) == 2 {
		for i, boxes := range three {
			if scores := three[1-i]; boxes.Shape[2] == 4 && (scores.Shape[2] != 4 || contains(boxes.Name, "box")) {
				return b.findBoxes(boxes, scores)
			}
		}
	}
	if len(three) == 0 || len(b.m.Outputs) > 1 && len(b.m.Outputs[1].Shape) == 4 {
		return errDetector
	}
	return b.findYOLO(three[0])
}

// findBoxes sets the finding for a model with an output of boxes and one of scores.
func (b *builder) findBoxes(boxes, scores Port) error {
	b.find.out, b.find.boxes = scores, boxes
	b.find.format, b.find.classes = detectBoxes, scores.Shape[2]
	if contains(scores.Name, "logits") && contains(boxes.Name, "pred_boxes", "boxes") {
		b.find.format = detectDETR
		if b.find.classes > 0 {
			b.find.classes--
		}
	}
	return nil
}

// findYOLO sets the finding for a model with one output.
func (b *builder) findYOLO(p Port) error {
	first, last := p.Shape[1], p.Shape[2]
	b.find.out = p
	switch {
	case last == 6 && first > 0 && first <= 300:
		return fmt.Errorf("the output %s has the boxes of a model that suppresses overlapping ones itself, which the step detect does not read: "+
			"export it without (end2end=False, nms=False)", &p)
	case first >= 5 && (last == -1 && first < fewestBoxes*4 || last > first && last >= fewestBoxes):
		b.find.format, b.find.classes = detectYOLOv8, first-4
	case last >= 6 && (first == -1 && last < fewestBoxes*4 || first > last && first >= fewestBoxes):
		b.find.format, b.find.classes = detectYOLOv5, last-5
	default:
		return errDetector
	}
	return nil
}

// mostDetections is the number of boxes in a response.
const mostDetections = 100

// buildDetector adds decode_resize, the model and detect.
func (b *builder) buildDetector() error {
	b.setSize()
	var look [][2]string
	letterbox := [][2]string{{"fit", "letterbox"}, {"fill", "114"}}
	switch {
	case b.image.c == 1, b.image.port.DType == tensor.Uint8:
		look = letterbox
	case b.find.format == detectDETR || b.find.format == detectBoxes:
		look = b.normalization()
	default:
		look = letterbox
		if b.m.Meta["stride"] != "" { // Ultralytics
			look = append(look, [2]string{"resize", "cv_linear"}, [2]string{"rounding", "each"})
		}
	}
	pixels := b.decode(look, true)
	in, out := [][2]string{{b.image.port.Name, pixels}}, [][2]string{{b.find.out.Name, tScores}}
	dims := append([]int64{}, b.find.out.Shape[1:]...)
	name := map[string]string{detectDETR: "logits", detectBoxes: "scores"}[b.find.format]
	if name == "" {
		name = "predictions"
	}
	if b.find.boxes.Name != "" {
		out = append(out, [2]string{b.find.boxes.Name, "model_boxes"})
	}
	b.model(in, out)
	s := stage{name: "boxes", in: [][2]string{{name, b.asFP32(b.find.out, tScores, dims)}}}
	if p := b.find.boxes; p.Name != "" {
		boxes := "model_boxes"
		if p.DType != tensor.FP32 {
			boxes = b.cast("boxes_cast", boxes, p.DType, tensor.FP32, p.Shape[1:])
		}
		s.in = append(s.in, [2]string{"boxes", boxes})
	}
	s.in = append(s.in, [2]string{"geometry", tGeometry})
	b.boxes(&s)
	b.steps = append(b.steps, s)
	return b.imageEnsemble()
}

// boxes completes the step that turns the outputs of the model into boxes.
func (b *builder) boxes(s *stage) {
	b.note("The outputs are taken as those of format %s of the step detect: if the boxes are wrong, change format, coordinates or box_format in %s/config.pbtxt.",
		b.find.format, b.r.ModelName(s.name))
	params := [][2]string{{"format", b.find.format}, {"width", str(b.image.w)}, {"height", str(b.image.h)}, {"geometry", "true"}}
	if b.find.format == detectBoxes {
		params = append(params, [2]string{"box_format", "xyxy"}, [2]string{"coordinates", "pixels"})
	}
	params = append(params, [2]string{"score_threshold", "0.25"}, [2]string{"max_detections", str(mostDetections)})
	add := func(name string, d tensor.DType, row ...int64) {
		s.out = append(s.out, [2]string{name, name})
		b.r.outputs = append(b.r.outputs, port{name: name, dtype: d, dims: b.batch.dims(row...)})
	}
	add("boxes", tensor.FP32, mostDetections, 4)
	add("scores", tensor.FP32, mostDetections)
	add("classes", tensor.Int32, mostDetections)
	if len(b.hints.labels) > 0 {
		params = append(params, [2]string{"labels_file", "labels.txt"})
		s.files = b.labelsFile()
		add("labels", tensor.Bytes, mostDetections)
	}
	add("count", tensor.Int32, 1)
	s.config = native("The model's outputs in, boxes in pixels of the image out: left, top, right, bottom.", "detect", b.batch.steps, nil, nil, params)
}
