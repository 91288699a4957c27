package detect_test

import (
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// FuzzDetect checks that for any numbers the boxes are finite, inside the image and in the order of
// their scores.
func FuzzDetect(f *testing.F) {
	for i := range 40 {
		f.Add([]byte("\x00\x00\x80\x3f\x00\x00\x80\x40\x00\x00\xc0\x7f\x00\x00\x80\x7f\xcd\xcc\xcc\x3e\x00\x00\x80\x3f"), uint8(i))
	}
	formats := []string{"boxes", "yolov5", "yolov8", "detr", "yolov5_raw"}
	kinds := []string{"hard", "linear", "gaussian", "none"}
	f.Fuzz(func(t *testing.T, data []byte, choice uint8) {
		format, kind, multi := formats[choice%5], kinds[choice/5%4], choice/20%2 == 1
		inputs, ok := inputsOf(format, data)
		if !ok {
			return
		}
		params := map[string]string{
			"format": format, "nms": kind, "width": "64", "height": "32", "max_detections": "5", "max_candidates": "9",
			"anchors": "3,4", "strides": "8", "output": "rows",
		}
		if multi {
			params["multi_label"] = "true"
		}
		step, err := newStep(t, params, 1)
		if err != nil {
			t.Fatal(err)
		}
		b := batch(t, tensortest.NewChecked(t, nil), inputs)
		if err := step.Run(t.Context(), b); err != nil || b.Requests[0].Err != nil {
			t.Fatal(err, b.Requests[0].Err)
		}
		boxes, scores := tensor.Slice[float32](&b.Out[0]), tensor.Slice[float32](&b.Out[1])
		n := len(scores)
		if int(tensor.Slice[int32](&b.Out[3])[0]) != n || n > 5 || !falls(scores) {
			t.Fatalf("scores %v", scores)
		}
		for i := range n {
			if c := boxes[4*i:][:4]; !(0 <= c[0] && c[0] < c[2] && c[2] <= 64 && 0 <= c[1] && c[1] < c[3] && c[3] <= 32) {
				t.Fatalf("box %v", c)
			}
		}
	})
}

func falls(scores []float32) bool {
	for i := 1; i < len(scores); i++ {
		if !(scores[i] <= scores[i-1]) {
			return false
		}
	}
	return true
}

// inputsOf returns one row of the inputs of a format, with two classes.
func inputsOf(format string, data []byte) ([]array, bool) {
	n := len(data) / 4 / 7
	if n == 0 || n > 64 {
		return nil, false
	}
	k := int64(n)
	switch format {
	case "boxes":
		return []array{{[]int64{1, k, 4}, data[:16*n]}, {[]int64{1, k, 3}, data[16*n:][:12*n]}}, true
	case "detr":
		return []array{{[]int64{1, k, 3}, data[16*n:][:12*n]}, {[]int64{1, k, 4}, data[:16*n]}}, true
	case "yolov5":
		return []array{{[]int64{1, k, 7}, data[:28*n]}}, true
	case "yolov8":
		return []array{{[]int64{1, 7, k}, data[:28*n]}}, true
	default:
		return []array{{[]int64{1, 1, 1, k, 7}, data[:28*n]}}, true
	}
}
