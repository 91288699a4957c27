package fit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// NewRotateFactory declares the step rotate_image.
//
// Inputs are IMAGE, UINT8 [h,w,3], and scores, FP32 [C], of the classes of a direction classifier. Output image has the
// shape of IMAGE.
func NewRotateFactory() steps.Factory {
	return steps.Factory{
		Name: "rotate_image",
		Doc: "Turns an image by 180 degrees if a direction classifier says so: if the best class, of equal ones the first, has the angle 180 and its score " +
			"is above the threshold. Other images stay as they are.",
		Params: []steps.Param{
			{Key: "angles", Doc: "Angle of each class, 0 or 180, separated by commas.", Default: "0,180"},
			{Key: "threshold", Doc: "The score must be above this.", Default: "0.9"},
		},
		Examples: []steps.Example{{
			Config: steps.ExampleConfig("", "rotate_image"),
			Request: `{"inputs": [
    {"name": "IMAGE", "datatype": "UINT8", "shape": [1, 2, 3], "data": [1,2,3, 4,5,6]},
    {"name": "scores", "datatype": "FP32", "shape": [2], "data": [0.05, 0.95]}]}`,
		}},
		Signature: rotateSignature,
		New:       newRotate,
	}
}

func rotateSignature(s *steps.Settings) (*config.Signature, error) {
	r, err := parseRotate(s)
	if err != nil {
		return nil, err
	}
	pixels := config.Port{Name: imageName, DType: tensor.Uint8, Dims: tensor.Of(-1, -1, 3)}
	out := pixels
	out.Name = outputName
	return &config.Signature{
		Inputs:  []config.Port{pixels, {Name: "scores", DType: tensor.FP32, Dims: tensor.Of(int64(len(r.turned)))}},
		Outputs: []config.Port{out},
	}, nil
}

// rotate is rotate_image.
type rotate struct {
	turned    []bool // by class
	threshold float32
}

var _ steps.Step = (*rotate)(nil)

func parseRotate(s *steps.Settings) (*rotate, error) {
	r := &rotate{}
	for field := range strings.SplitSeq(s.Params["angles"], ",") {
		angle := strings.TrimSpace(field)
		if angle != "0" && angle != "180" {
			return nil, s.Wrong("angles", "0 or 180 for each class, separated by commas")
		}
		r.turned = append(r.turned, angle == "180")
	}
	threshold, err := s.Float("threshold")
	r.threshold = float32(threshold)
	return r, err
}

func newRotate(s *steps.Settings) (steps.Step, error) { return parseRotate(s) }

// Run implements steps.Step.
//
// hot: only the output is allocated.
func (r *rotate) Run(ctx context.Context, b *backends.Batch) error {
	in := &b.In[0]
	out, err := b.Alloc(0, tensor.Uint8, in.Shape)
	if err != nil {
		return fmt.Errorf("cannot allocate the images: %w", err)
	}
	dst, src, scores := out.Bytes(), in.Bytes(), tensor.Slice[float32](&b.In[1])
	n := len(src) / max(b.Rows, 1)
	for row := range b.Rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		to, from := dst[row*n:][:n], src[row*n:][:n]
		if r.upsideDown(scores[row*len(r.turned):][:len(r.turned)]) {
			turn(to, from)
		} else {
			copy(to, from)
		}
	}
	return nil
}

// upsideDown reports whether the best class means that the image is turned.
func (r *rotate) upsideDown(scores []float32) bool {
	best := slices.Index(scores, slices.Max(scores)) // -1 with a NaN
	return best >= 0 && r.turned[best] && scores[best] > r.threshold
}

// turn writes pixels of three samples in reverse order.
func turn(dst, src []byte) {
	for len(src) >= 3 {
		p := src[len(src)-3:]
		dst[0], dst[1], dst[2] = p[0], p[1], p[2]
		dst, src = dst[3:], src[:len(src)-3]
	}
}
