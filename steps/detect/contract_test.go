package detect_test

import (
	"math"
	"testing"

	"github.com/tutti-server/tutti/steps/detect"
	"github.com/tutti-server/tutti/steps/steptest"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// rows returns predictions of YOLO v5 with one class.
func rows(v ...float32) steptest.Value { return steptest.F32([]int64{1, int64(len(v) / 6), 6}, v...) }

// outputs returns the outputs of one row with two elements.
func outputs(boxes, scores []float32, classes []int32, count int32) []steptest.Value {
	n := int64(len(scores))
	return []steptest.Value{
		steptest.F32([]int64{1, n, 4}, boxes...), steptest.F32([]int64{1, n}, scores...),
		steptest.I32([]int64{1, n}, classes...), steptest.I32([]int64{1, 1}, count),
	}
}

// TestContract runs the suite that every step passes.
func TestContract(t *testing.T) {
	t.Parallel()
	params := map[string]string{"format": "yolov5", "geometry": "true", "max_detections": "2"}
	geometry := func(v ...float32) steptest.Value { return steptest.F32([]int64{1, 6}, v...) }
	straight := geometry(0.5, 0.5, 0, 4, 32, 24)
	none := outputs(make([]float32, 8), []float32{0, 0}, []int32{-1, -1}, 0)
	one := outputs([]float32{8, 0, 24, 16, 0, 0, 0, 0}, []float32{0.5, 0}, []int32{0, -1}, 1)
	with := func(g steptest.Value, v ...float32) []steptest.Value { return []steptest.Value{rows(v...), g} }
	steptest.Run(
		t, detect.NewFactory(),
		steptest.Case{Name: "batched", MaxBatch: 16, Params: params, Requests: []steptest.Request{
			{Inputs: with(straight, 8, 8, 8, 8, 0.5, 1, 8, 9, 8, 8, 0.5, 0.9), Want: one},
			{Inputs: with(straight, 8, 8, 8, 8, 0.5, nan, 8, 9, nan, 8, 0.5, 0.9), Want: none},
			{Inputs: with(straight, 8, 8, 8, 8, 0.5, inf, 8, 9, 3, 8, nan, 0.9), Want: none},
			{Inputs: with(straight, -9, 8, 8, 8, 0.5, 1, 8, inf, 3, 8, 1, 1), Want: none},  // outside
			{Inputs: with(straight, 8, 2, 8, 4, 0.5, 1, 8, 9, 8, 8, 0.2, 0.9), Want: none}, // in the padding
			{
				Inputs: with(straight, 0, 8, 8, 80, 0.5, 1, 0, 8, 8, 80, 0, 0.9),
				Want:   outputs([]float32{0, 0, 8, 24, 0, 0, 0, 0}, []float32{0.5, 0}, []int32{0, -1}, 1),
			},
			{Inputs: with(geometry(0, 1, 0, 0, 1, 1), make([]float32, 12)...), WantErr: "input 'geometry': expected scales above 0"},
			{Inputs: with(geometry(1, 1, nan, 0, 1, 1), make([]float32, 12)...), WantErr: "input 'geometry': expected scales above 0"},
			{Inputs: []steptest.Value{steptest.F32([]int64{1, 2, 5}, make([]float32, 10)...), straight}, WantErr: "expected at least 6 numbers for a box, found 5"},
		}},
		steptest.Case{
			Name: "rows", Params: map[string]string{"output": "rows", "labels_file": "l"}, Files: map[string][]byte{"l": []byte("a\nb\n")},
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{steptest.F32([]int64{2, 4}, 0, 0, 2, 2, 0, 0, 2, 2), steptest.F32([]int64{2, 2}, 0.5, 0, 0, 0.75)},
					Want: []steptest.Value{
						steptest.F32([]int64{2, 4}, 0, 0, 2, 2, 0, 0, 2, 2), steptest.F32([]int64{2}, 0.75, 0.5),
						steptest.I32([]int64{2}, 1, 0), steptest.I32([]int64{1}, 2), steptest.Text([]int64{2}, "b", "a"),
					},
				},
				{
					Inputs: []steptest.Value{steptest.F32([]int64{0, 4}), steptest.F32([]int64{0, 2})},
					Want:   []steptest.Value{steptest.F32([]int64{0, 4}), steptest.F32([]int64{0}), steptest.I32([]int64{0}), steptest.I32([]int64{1}, 0), steptest.Text([]int64{0})},
				},
				{
					Inputs:  []steptest.Value{steptest.F32([]int64{1, 4}, 0, 0, 2, 2), steptest.F32([]int64{1, 3}, 1, 1, 1)},
					WantErr: "expected at most 2 classes, one per line of labels_file, found 3",
				},
				{
					Inputs:  []steptest.Value{steptest.F32([]int64{1, 4}, 0, 0, 2, 2), steptest.F32([]int64{2, 1}, 1, 1)},
					WantErr: "input 'scores': expected 1 rows, one for each box, found 2",
				},
			},
		},
		steptest.Case{
			Name: "detr", MaxBatch: 4, Params: map[string]string{"format": "detr", "max_detections": "1"},
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{steptest.F32([]int64{1, 2, 3}, 0, 9, 0, nan, 9, 9), steptest.F32([]int64{1, 2, 4}, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1, 1)},
				},
				{
					Inputs:  []steptest.Value{steptest.F32([]int64{1, 1, 1}, 0), steptest.F32([]int64{1, 1, 4}, 0, 0, 0, 0)},
					WantErr: "input 'logits': expected at least 2 numbers for a box, found 1",
				},
			},
		},
		steptest.Case{
			Name: "raw", MaxBatch: 4, Params: map[string]string{"format": "yolov5_raw", "anchors": "4,4", "strides": "8", "max_detections": "1"},
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{steptest.F32([]int64{1, 1, 1, 1, 6}, 0, 0, 0, 0, 90, 90)},
					Want:   outputs([]float32{2, 2, 6, 6}, []float32{1}, []int32{0}, 1),
				},
				{
					Inputs:  []steptest.Value{steptest.F32([]int64{1, 2, 1, 1, 6}, make([]float32, 12)...)},
					WantErr: "input 'level_0': expected 1 anchors, found 2",
				},
			},
		},
	)
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		params map[string]string
		want   string
	}{
		"format":     {map[string]string{"format": "ssd"}, "expected one of boxes, yolov5"},
		"box format": {map[string]string{"format": "detr", "box_format": "xywh"}, "'box_format' of model 'tested' has no meaning with format 'detr'"},
		"activation": {map[string]string{"format": "yolov8", "activation": "sigmoid"}, "'activation' of model 'tested' has no meaning"},
		"levels":     {map[string]string{"format": "yolov5_raw", "strides": "8"}, "has 3 levels, expected one for each of 1 strides"},
		"pairs":      {map[string]string{"format": "yolov5_raw", "strides": "8", "anchors": "1,2,3"}, "expected pairs, found 3 numbers"},
		"anchor":     {map[string]string{"format": "yolov5_raw", "strides": "8", "anchors": "1,-2"}, "holds '-2', expected numbers above 0"},
		"raw parts":  {map[string]string{"format": "yolov5_raw", "coordinates": "normalized"}, "expected pixels"},
		"one side":   {map[string]string{"width": "5"}, "expected both or none"},
		"parts":      {map[string]string{"format": "detr", "geometry": "true"}, "needs parameters 'width' and 'height'"},
		"sigma":      {map[string]string{"sigma": "0"}, "expected a number above 0"},
		"threshold":  {map[string]string{"iou_threshold": "x"}, "parameter 'iou_threshold'"},
		"many":       {map[string]string{"max_detections": "2000000"}, "expected at most 1048576"},
	} {
		steptest.Run(t, detect.NewFactory(), steptest.Case{Name: name, Params: tc.params, WantNewErr: tc.want})
	}
}
