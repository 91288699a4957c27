package fit_test

import (
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/steps/image/fit"
	"github.com/tutti-server/tutti/steps/steptest"
)

// bmp is a BMP file of one pixel, 60, 60, 120 as red, green and blue.
const bmp = "BM\x1e\x00\x00\x00\x00\x00\x00\x00\x1a\x00\x00\x00\x0c\x00\x00\x00\x01\x00\x01\x00\x01\x00\x18\x00x<<\x00"

// TestContract runs the suite that every step passes.
func TestContract(t *testing.T) {
	t.Parallel()
	row := func(v ...byte) steptest.Value { return steptest.U8([]int64{1, 1, int64(len(v) / 3), 3}, v...) }
	wide := func(width int32, v ...byte) []steptest.Value {
		return []steptest.Value{row(v...), steptest.I32([]int64{1, 1}, width)}
	}
	plain := map[string]string{"scale": "1", "mean": "0", "std": "1", "fit": "height", "height": "1"}
	with := func(more ...string) map[string]string {
		m := map[string]string{}
		maps.Copy(m, plain)
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	steptest.Run(
		t, fit.NewFactory(),
		steptest.Case{
			Name: "widths", MaxBatch: 16, Params: with("widths", "true"),
			Requests: []steptest.Request{
				{Inputs: wide(3, 1, 2, 3, 4, 5, 6), Want: []steptest.Value{steptest.F32([]int64{1, 3, 1, 3}, 1, 4, 0, 2, 5, 0, 3, 6, 0)}},
				{Inputs: wide(2, 1, 2, 3, 4, 5, 6), Want: []steptest.Value{steptest.F32([]int64{1, 3, 1, 2}, 1, 4, 2, 5, 3, 6)}},
				{Inputs: wide(0, 1, 2, 3, 4, 5, 6), WantErr: "input 'WIDTH': expected 1 to 65535, found 0"},
				{
					Inputs:  []steptest.Value{steptest.U8([]int64{2, 1, 2, 3}, make([]byte, 12)...), steptest.I32([]int64{2, 1}, 2, 3)},
					WantErr: "input 'IMAGE' row 1: expected images that get the same size in one request, found 2 x 1 and 3 x 1",
				},
			},
		},
		steptest.Case{
			Name: "multiple", MaxBatch: 4, Params: with("width_multiple", "2", "max_width", "4", "color", "bgr"),
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{row(1, 2, 3)}, Want: []steptest.Value{steptest.F32([]int64{1, 3, 1, 2}, 3, 0, 2, 0, 1, 0)}},
			},
		},
		steptest.Case{
			Name: "files", MaxBatch: 8, Params: map[string]string{"input": "file", "min_side": "2", "dtype": "uint8", "color": "bgr", "geometry": "true"},
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{steptest.Text([]int64{1, 1}, bmp)},
					Want:   []steptest.Value{steptest.U8([]int64{1, 2, 2, 3}, []byte(strings.Repeat("x<<", 4))...), steptest.F32([]int64{1, 6}, 2, 2, 0, 0, 1, 1)},
				},
				{Inputs: []steptest.Value{steptest.Text([]int64{2, 1}, bmp, "no image")}, WantErr: "input 'IMAGE' row 1: expected JPEG"},
				{Inputs: []steptest.Value{steptest.Text([]int64{1, 1}, "")}, WantErr: "input 'IMAGE': expected JPEG"},
			},
		},
		steptest.Case{
			Name: "padded", Params: map[string]string{"pad_height": "2", "multiple": "1", "scale": "1", "mean": "1", "std": "2"},
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.U8([]int64{1, 1, 3}, 3, 5, 7)}, Want: []steptest.Value{steptest.F32([]int64{3, 3, 1}, -0.5, 1, -0.5, -0.5, 2, -0.5, -0.5, 3, -0.5)}},
				{Inputs: []steptest.Value{steptest.U8([]int64{1, 0, 3})}, WantErr: "input 'IMAGE': expected from 1 to 67108864 pixels (max_pixels) and sides of at most 65535, found 0 x 1"},
			},
		},
		steptest.Case{
			Name: "nothing left", Params: map[string]string{"multiple": "32"},
			Requests: []steptest.Request{{Inputs: []steptest.Value{steptest.U8([]int64{1, 1, 3}, 3, 5, 7)}, WantErr: "an image of 1 x 1 pixels would become 0 x 0, expected at least one pixel"}},
		},
		steptest.Case{
			Name: "large", Params: map[string]string{"min_side": "9000"},
			Requests: []steptest.Request{{Inputs: []steptest.Value{steptest.U8([]int64{1, 2, 3}, make([]byte, 6)...)}, WantErr: "would become 18000 x 9000, expected at most 16777216 pixels"}},
		},
		steptest.Case{Name: "side", Params: map[string]string{"min_side": "-1"}, WantNewErr: "parameter 'min_side'"},
		steptest.Case{Name: "ratio", Params: map[string]string{"pad_ratio": "-1"}, WantNewErr: "parameter 'pad_ratio' of model 'tested' is '-1', expected 0 or a number above 0"},
		steptest.Case{Name: "widths limits", Params: map[string]string{"widths": "true"}, WantNewErr: "expected false with fit limits"},
		steptest.Case{Name: "max width", Params: with("max_width", "3", "min_width", "4"), WantNewErr: "expected 0 or at least min_width, 4"},
		steptest.Case{Name: "std", Params: map[string]string{"std": "1,0,1"}, WantNewErr: "parameter 'std' of model 'tested' is '1,0,1', expected numbers other than 0"},
		steptest.Case{Name: "mean", Params: map[string]string{"mean": "1,2"}, WantNewErr: "expected 1 or 3 numbers separated by commas"},
		steptest.Case{Name: "scale", Params: map[string]string{"scale": "1/0"}, WantNewErr: "expected numbers separated by commas, for example 0.5 or 1/255"},
	)
}

// TestRotateContract runs the suite that every step passes.
func TestRotateContract(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	pixels := func(v ...byte) steptest.Value { return steptest.U8([]int64{1, 1, 2, 3}, v...) }
	with := func(a, b float32) []steptest.Value {
		return []steptest.Value{pixels(1, 2, 3, 4, 5, 6), steptest.F32([]int64{1, 2}, a, b)}
	}
	same, turned := []steptest.Value{pixels(1, 2, 3, 4, 5, 6)}, []steptest.Value{pixels(4, 5, 6, 1, 2, 3)}
	steptest.Run(
		t, fit.NewRotateFactory(),
		steptest.Case{Name: "batched", MaxBatch: 8, Requests: []steptest.Request{
			{Inputs: with(0.05, 0.95), Want: turned},
			{Inputs: with(0.1, 0.9), Want: same},
			{Inputs: with(0.95, 0.05), Want: same},
			{Inputs: with(2, 2), Want: same},
			{Inputs: with(nan, 2), Want: same},
		}},
		steptest.Case{Name: "angles", Params: map[string]string{"angles": "0,90"}, WantNewErr: "parameter 'angles' of model 'tested' is '0,90', expected 0 or 180 for each class"},
		steptest.Case{Name: "threshold", Params: map[string]string{"threshold": "x"}, WantNewErr: "parameter 'threshold'"},
	)
}
