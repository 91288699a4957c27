package encode_test

import (
	"testing"

	"github.com/tutti-server/tutti/steps/encode"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestContract runs the suite that every step passes.
func TestContract(t *testing.T) {
	t.Parallel()
	two := []int64{1, 1, 2, 1}
	params := map[string]string{"color": "gray", "dtype": "fp32", "scale": "1"}
	steptest.Run(
		t, encode.NewFactory(),
		steptest.Case{
			Name: "batched", MaxBatch: 8, Params: params,
			Requests: []steptest.Request{
				{Inputs: []steptest.Value{steptest.F32(two, 1, 2)}},
				{Inputs: []steptest.Value{steptest.F32(two, 1, nan)}, WantErr: "input 'image': expected finite numbers"},
				{Inputs: []steptest.Value{steptest.F32([]int64{2, 1, 2, 1}, 1, 2, 3, nan)}, WantErr: "input 'image' row 1: expected finite numbers"},
				{Inputs: []steptest.Value{steptest.F32(two, -5, 300)}},
			},
		},
		steptest.Case{
			Name: "unbatched", Params: map[string]string{"format": "png"},
			Requests: []steptest.Request{{Inputs: []steptest.Value{steptest.U8([]int64{1, 1, 3}, 1, 2, 3)}}},
		},
		steptest.Case{Name: "bad quality", Params: map[string]string{"quality": "x"}, WantNewErr: "parameter 'quality'"},
	)
}
