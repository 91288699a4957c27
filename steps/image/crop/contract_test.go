package crop_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/image/crop"
	"github.com/tutti-server/tutti/steps/steptest"
)

func i32(dims []int64, v ...int32) steptest.Value {
	out := steptest.Value{DType: tensor.Int32, Dims: dims}
	for _, x := range v {
		out.Data = binary.LittleEndian.AppendUint32(out.Data, uint32(x))
	}
	return out
}

// crops returns the outputs CROPS and SHAPES of one row.
func crops(shapes []int32, elements ...string) []steptest.Value {
	n := int64(len(elements))
	return []steptest.Value{steptest.Text([]int64{1, n}, elements...), i32([]int64{1, n, 3}, shapes...)}
}

// two is an image of a row of two pixels.
var two = steptest.U8([]int64{1, 1, 2, 3}, []byte("abcdef")...)

// TestContract runs the suite that every step passes.
func TestContract(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	boxes := func(count int32, v ...float32) []steptest.Value {
		return []steptest.Value{two, steptest.F32([]int64{1, int64(len(v) / 4), 4}, v...), i32([]int64{1, 1}, count)}
	}
	quad := func(v ...float32) []steptest.Value {
		return []steptest.Value{two, steptest.F32([]int64{1, int64(len(v) / 8), 4, 2}, v...)}
	}
	steptest.Run(
		t, crop.NewFactory(),
		steptest.Case{
			Name: "xyxy", MaxBatch: 16, Params: map[string]string{"boxes": "xyxy", "max_boxes": "3", "max_pixels": "4"},
			Requests: []steptest.Request{
				{Inputs: boxes(2, 0, 0, 1, 1, 0.5, -9, 9, 0.5), Want: crops([]int32{1, 1, 3, 1, 2, 3}, "abc", "abcdef")},
				{Inputs: boxes(2, 5, 5, 9, 9, 1, 0, 0, 0), Want: crops([]int32{1, 1, 3, 1, 1, 3}, "def", "def")}, // outside, empty
				{Inputs: boxes(1, 0, 0, 1, 1, nan, 0, 1, 1), Want: crops([]int32{1, 1, 3}, "abc")},
				{Inputs: boxes(0, 0, 0, 1, 1), Want: crops(nil)},
				{Inputs: boxes(2, 0, 0, 1, 1, nan, 0, 1, 1), WantErr: "input 'BOXES': box 1: expected finite numbers"},
				{Inputs: boxes(1, -inf, 0, 1, 1), WantErr: "box 0: expected finite numbers"},
				{Inputs: boxes(3, 0, 0, 1, 1), WantErr: "input 'COUNT': expected 0 to 1, the boxes of a row, found 3"},
				{Inputs: boxes(-1, 0, 0, 1, 1), WantErr: "input 'COUNT': expected 0 to 1, the boxes of a row, found -1"},
				{Inputs: boxes(4, make([]float32, 16)...), WantErr: "input 'BOXES': expected at most 3 boxes (max_boxes), found 4"},
				{Inputs: boxes(3, 0, 0, 2, 1, 0, 0, 2, 1, 0, 0, 2, 1), WantErr: "box 2: expected crops of at most 4 pixels together (max_pixels)"},
			},
		},
		steptest.Case{
			Name: "padded", MaxBatch: 4, Params: map[string]string{"boxes": "xyxy", "line_height": "48"},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{
					steptest.U8([]int64{2, 1, 1, 3}, []byte("abcdef")...),
					steptest.F32([]int64{2, 2, 4}, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 1), i32([]int64{2, 1}, 1, 2),
				},
				Want: []steptest.Value{
					steptest.Text([]int64{2, 2}, "abc", "", "def", "def"),
					i32([]int64{2, 2, 3}, 1, 1, 3, 0, 0, 0, 1, 1, 3, 1, 1, 3), i32([]int64{2, 2, 1}, 320, 0, 320, 320),
				},
			}},
		},
		steptest.Case{
			Name: "quads", MaxBatch: 16, Params: map[string]string{"count": "false", "turn": "2", "max_pixels": "100"},
			Requests: []steptest.Request{
				{Inputs: quad(0, 0, 2, 0, 2, 1, 0, 1), Want: crops([]int32{1, 2, 3}, "abcdef")},
				{Inputs: quad(2, 0, 2, 1, 0, 1, 0, 0), Want: crops([]int32{1, 2, 3}, "defdef")}, // the upper left corner is at the right
				{Inputs: quad(0, 0, 0, 0, 0, 0, 0, 0)},
				{Inputs: quad(0, 0, 2, 0, 2, 1, 0, nan), WantErr: "input 'BOXES': box 0: expected finite numbers"},
				{Inputs: quad(0, 0, 50, 0, 50, 3, 0, 3), WantErr: "box 0: expected crops of at most 100 pixels together"},
				{Inputs: quad(0, 0, 1e30, 0, 1e30, 1, 0, 1), WantErr: "box 0: expected sides in pixels of an image, found larger ones"},
			},
		},
		steptest.Case{
			Name: "large", Params: map[string]string{"count": "false", "max_pixels": "1"},
			Requests: []steptest.Request{{
				Inputs:  []steptest.Value{steptest.U8([]int64{1, 2, 3}, make([]byte, 6)...), steptest.F32([]int64{0, 4, 2})},
				WantErr: "input 'IMAGE': expected from 1 to 1 pixels (max_pixels), found 2 x 1",
			}},
		},
		steptest.Case{Name: "turn", Params: map[string]string{"turn": "0"}, WantNewErr: "parameter 'turn' of model 'tested' is '0', expected none, or with boxes quads a number above 0"},
		steptest.Case{Name: "turn xyxy", Params: map[string]string{"turn": "2", "boxes": "xyxy"}, WantNewErr: "expected none, or with boxes quads"},
		steptest.Case{Name: "boxes", Params: map[string]string{"boxes": "cxcywh"}, WantNewErr: "expected one of quads, xyxy"},
		steptest.Case{Name: "height", Params: map[string]string{"line_height": "-1"}, WantNewErr: "parameter 'line_height'"},
	)
}
