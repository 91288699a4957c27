package classify_test

import (
	"testing"

	"github.com/tutti-server/tutti/steps/classify"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestContract runs the suite that every step passes.
func TestContract(t *testing.T) {
	t.Parallel()
	two, four := []int64{1, 2}, []int64{2, 2}
	steptest.Run(
		t, classify.NewFactory(),
		steptest.Case{
			Name: "labels", MaxBatch: 4, Params: map[string]string{"k": "2", "softmax": "false", "labels_file": "names.txt"},
			Files: map[string][]byte{"names.txt": []byte("a\nb\nc\n")},
			Requests: []steptest.Request{
				{
					Inputs: []steptest.Value{steptest.F32([]int64{1, 3}, 1, 3, 2)},
					Want:   []steptest.Value{steptest.F32(two, 3, 2), steptest.I32(two, 1, 2), steptest.Text(two, "b", "c")},
				},
				{
					Inputs: []steptest.Value{steptest.F32([]int64{2, 3}, nan, 0, 0, 9, -9, 0)},
					Want:   []steptest.Value{steptest.F32(four, 0, 0, 9, 0), steptest.I32(four, 1, 2, 0, 2), steptest.Text(four, "b", "c", "a", "c")},
				},
			},
		},
		steptest.Case{
			Name: "unbatched", Params: map[string]string{"k": "1"},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{steptest.F32([]int64{2}, 0, 0)},
				Want:   []steptest.Value{steptest.F32([]int64{1}, 0.5), steptest.I32([]int64{1}, 0)},
			}},
		},
		steptest.Case{Name: "bad k", Params: map[string]string{"k": "none"}, WantNewErr: "parameter 'k'"},
	)
}
