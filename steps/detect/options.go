package detect

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/steps"
)

// auto is the value of a parameter that depends on the format.
const auto = "auto"

// options are the step's parameters.
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
	stride  float32
	anchors []float32 // width and height of each, in pixels
}

func parse(s *steps.Settings) (*options, error) {
	p := s.Params
	o := &options{format: p["format"], nms: p["nms"], activation: p["activation"], rows: p["output"] == "rows"}
	if err := o.numbers(s); err != nil {
		return nil, err
	}
	if err := o.flags(s); err != nil {
		return nil, err
	}
	detr := o.format == formatDETR
	o.boxes = map[string]boxFormat{"xyxy": xyxy, "xywh": xywh, "cxcywh": cxcywh}[p["box_format"]]
	if o.format != formatBoxes {
		if o.boxes != xyxy {
			return nil, fmt.Errorf("parameter 'box_format' of model '%s' has no meaning with format '%s'", s.Model, o.format)
		}
		o.boxes = cxcywh
	}
	o.normalized = p["coordinates"] == "normalized" || p["coordinates"] == auto && detr
	if o.nms == auto {
		o.nms = either(detr, "none", "hard")
	}
	switch {
	case o.activation == auto:
		o.activation = either(detr, "softmax", "none")
	case o.format != formatBoxes && !detr:
		return nil, fmt.Errorf("parameter 'activation' of model '%s' has no meaning with format '%s'", s.Model, o.format)
	}
	if o.format == formatV5Raw {
		if o.normalized {
			return nil, fmt.Errorf("parameter 'coordinates' of model '%s' is 'normalized', expected pixels with format '%s'", s.Model, o.format)
		}
		return o, o.heads(s)
	}
	return o, nil
}

func either(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// numbers reads the numeric parameters.
func (o *options) numbers(s *steps.Settings) error {
	for key, n := range map[string]*int{"width": &o.width, "height": &o.height, "max_candidates": &o.maxCandidates, "max_detections": &o.maxDetections} {
		lowest := 0
		if strings.HasPrefix(key, "max_") {
			lowest = 1
		}
		v, err := s.Int(key, lowest)
		if err != nil {
			return err
		}
		if v > mostBoxes {
			return fmt.Errorf("parameter '%s' of model '%s' is %d, expected at most %d", key, s.Model, v, mostBoxes)
		}
		*n = v
	}
	for key, f := range map[string]*float32{"score_threshold": &o.score, "iou_threshold": &o.iou, "sigma": &o.sigma, "soft_threshold": &o.soft} {
		v, err := s.Float(key)
		if err != nil {
			return err
		}
		*f = float32(v)
	}
	if !(o.sigma > 0) {
		return fmt.Errorf("parameter 'sigma' of model '%s' is '%s', expected a number above 0", s.Model, s.Params["sigma"])
	}
	o.logit = lowestLogit(float64(o.score))
	return nil
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

func (o *options) flags(s *steps.Settings) error {
	for key, b := range map[string]*bool{"geometry": &o.geometry, "multi_label": &o.multi, "class_agnostic": &o.agnostic} {
		v, err := s.Bool(key)
		if err != nil {
			return err
		}
		*b = v
	}
	switch normalized := s.Params["coordinates"] == "normalized" || s.Params["coordinates"] == auto && o.format == formatDETR; {
	case o.width == 0 != (o.height == 0):
		return fmt.Errorf("parameters 'width' and 'height' of model '%s' are %d and %d, expected both or none", s.Model, o.width, o.height)
	case normalized && o.geometry && o.width == 0:
		return fmt.Errorf("model '%s' needs parameters 'width' and 'height' for boxes that are parts of the model's input", s.Model)
	}
	return nil
}

// heads reads anchors and strides.
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
		o.levels = append(o.levels, level{strides[i], anchors})
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
