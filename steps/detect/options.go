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
