// Package crop holds the step crop_boxes, which cuts boxes out of an image as images of their own sizes.
package crop

import (
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

const (
	inImage = iota
	inBoxes
	inCount
)

const (
	outCrops = iota
	outShapes
	outWidths
)

const (
	imageName = "IMAGE"
	boxesName = "BOXES"
	countName = "COUNT"
	quads     = "quads"
	xyxy      = "xyxy"
)

// NewFactory declares the step crop_boxes.
//
// Inputs are IMAGE, UINT8 [H,W,3], BOXES, FP32 [N,4,2] (the corners of each box, clockwise from the upper left one, in
// pixels) or with boxes xyxy [N,4] (left, top, right and bottom), and, with count, COUNT, INT32 [1], the number of boxes
// that are used.
//
// Output CROPS is BYTES [M]: the samples of each crop, UINT8 [h,w,3]. SHAPES is INT32 [M,3]: height, width and 3. With
// line_height WIDTHS is INT32 [M,1]. M is the largest number of boxes of a row of the batch; the elements of other rows
// after their last crop are empty, with shapes and widths of 0.
func NewFactory() steps.Factory {
	return steps.Factory{
		Name: "crop_boxes",
		Doc: "Cuts boxes out of an image as images of their own sizes, for a fan-out: output CROPS has the UINT8 samples of each crop as one " +
			"element, SHAPES its height, width and channels. A box is four corners, clockwise from the upper left one, whose content is straightened " +
			"(cv2.warpPerspective with INTER_CUBIC and BORDER_REPLICATE, the same bits as OpenCV 5.0), or left, top, right and bottom, which are rounded outwards and cut " +
			"off at the edges of the image. A crop has at least one pixel. A box with a number that is not finite fails the request.",
		Params: []steps.Param{
			{Key: "boxes", Doc: "Form of a box: four corners (quads), or left, top, right and bottom (xyxy).", Default: quads, Values: []string{quads, xyxy}},
			{Key: "count", Doc: "Adds the input COUNT, the number of boxes that are used; without it, all are.", Default: "true", Values: []string{"true", "false"}},
			{Key: "turn", Doc: "Crops whose height is at least this many times their width are turned by 90 degrees counter-clockwise; none turns none.", Default: "none"},
			{Key: "line_height", Doc: "Height of a text recogniser's input; a number above 0 adds the output WIDTHS, the width to which a reader that batches " +
				"the crops of one image pads each crop at this height.", Default: "0"},
			{Key: "line_group", Doc: "For WIDTHS: crops of a batch of that reader. Crops are sorted by the ratio of width to height; each group has the width of its widest crop.", Default: "6"},
			{Key: "line_width", Doc: "For WIDTHS: smallest width.", Default: "320"},
			{Key: "max_boxes", Doc: "Most boxes of one image.", Default: "1000"},
			{Key: "max_pixels", Doc: "Most pixels of all crops of one image together, and of the image.", Default: "67108864"},
		},
		Examples: []steps.Example{
			{
				Config: steps.ExampleConfig("", "crop_boxes", "boxes", xyxy, "count", "false"),
				Request: `{"inputs": [
    {"name": "IMAGE", "datatype": "UINT8", "shape": [1, 4, 3], "data": [65,65,65, 66,66,66, 67,67,67, 68,68,68]},
    {"name": "BOXES", "datatype": "FP32", "shape": [2, 4], "data": [0,0,2,1, 2.5,-3,9,0.7]}]}`,
			},
			{
				Config: steps.ExampleConfig("max_batch_size: 8", "crop_boxes", "turn", "1.5", "line_height", "48"),
				Request: `{"inputs": [
    {"name": "IMAGE", "datatype": "UINT8", "shape": [1, 2, 2, 3], "data": [65,65,65, 66,66,66, 67,67,67, 68,68,68]},
    {"name": "BOXES", "datatype": "FP32", "shape": [1, 2, 4, 2], "data": [0,0, 1,0, 1,2, 0,2, 0,0, 0,0, 0,0, 0,0]},
    {"name": "COUNT", "datatype": "INT32", "shape": [1, 1], "data": [1]}]}`,
			},
		},
		Signature: signature,
		New:       newStep,
	}
}

// options are the step's parameters.
type options struct {
	xyxy, count bool
	turn        float64 // 0 for none
	lineHeight  int     // 0 without WIDTHS
	lineGroup   int
	lineWidth   int
	maxBoxes    int
	maxPixels   int
}

// mostPixels bounds max_pixels, so that the sizes of crops fit in an int.
const mostPixels = 1 << 30

func parse(s *steps.Settings) (*options, error) {
	r := steps.Reader{Settings: s}
	o := &options{
		xyxy: s.Params["boxes"] == xyxy, count: s.Params["count"] == "true",
		lineHeight: r.Int("line_height", 0, 1<<14), lineGroup: r.Int("line_group", 1, 1<<20), lineWidth: r.Int("line_width", 1, 1<<20),
		maxBoxes: r.Int("max_boxes", 1, 1<<20), maxPixels: r.Int("max_pixels", 1, mostPixels),
	}
	if r.Err != nil || s.Params["turn"] == "none" {
		return o, r.Err
	}
	var err error
	if o.turn, err = s.Float("turn"); err != nil || o.turn <= 0 || o.xyxy {
		return nil, s.Wrong("turn", "none, or with boxes quads a number above 0")
	}
	return o, nil
}

func signature(s *steps.Settings) (*config.Signature, error) {
	o, err := parse(s)
	if err != nil {
		return nil, err
	}
	boxes := tensor.Of(-1, 4, 2)
	if o.xyxy {
		boxes = tensor.Of(-1, 4)
	}
	sig := &config.Signature{
		Inputs: []config.Port{
			inImage: {Name: imageName, DType: tensor.Uint8, Dims: tensor.Of(-1, -1, 3)},
			inBoxes: {Name: boxesName, DType: tensor.FP32, Dims: boxes},
		},
		Outputs: []config.Port{
			outCrops:  {Name: "CROPS", DType: tensor.Bytes, Dims: tensor.Of(-1)},
			outShapes: {Name: "SHAPES", DType: tensor.Int32, Dims: tensor.Of(-1, 3)},
		},
	}
	if o.count {
		sig.Inputs = append(sig.Inputs, config.Port{Name: countName, DType: tensor.Int32, Dims: tensor.Of(1)})
	}
	if o.lineHeight > 0 {
		sig.Outputs = append(sig.Outputs, config.Port{Name: "WIDTHS", DType: tensor.Int32, Dims: tensor.Of(-1, 1)})
	}
	return sig, nil
}
