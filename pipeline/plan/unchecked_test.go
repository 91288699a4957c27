package plan_test

import (
	"slices"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// ofText returns the configuration of a model.
func ofText(t *testing.T, name, text string) *modelconfig.ModelConfig {
	t.Helper()
	return parse(t, &txtar.File{Name: name + ".pbtxt", Data: []byte(text)})
}

// TestFree checks which ports get a runtime rule because an Unchecked output feeds them, and which rule, by the side that
// batches.
func TestFree(t *testing.T) {
	t.Parallel()
	const ports = ` input { name: "I" data_type: TYPE_FP32 dims: -1 } output { name: "O" data_type: TYPE_FP32 dims: -1 }`
	const free = ` parameters { key: "free" value { string_value: "true" } }`
	repo := repository{
		"plain":        ofText(t, "plain", `backend: "python"`+ports),
		"batched":      ofText(t, "batched", `backend: "python" max_batch_size: 8`+ports),
		"free":         ofText(t, "free", `backend: "python"`+ports+free),
		"free_batched": ofText(t, "free_batched", `backend: "python" max_batch_size: 8`+ports+free),
	}
	for _, tc := range []struct {
		batch         string
		first, second string
		in, out       []plan.RuntimeRule
	}{
		{"8", "free_batched", "batched", []plan.RuntimeRule{plan.RuntimeAsIs}, nil},
		{"8", "free_batched", "plain", []plan.RuntimeRule{plan.RuntimeStrip}, nil},
		{"8", "free", "batched", []plan.RuntimeRule{plan.RuntimePrepend}, nil},
		{"0", "free", "plain", []plan.RuntimeRule{plan.RuntimeAsIs}, nil},
		{"8", "batched", "free_batched", nil, []plan.RuntimeRule{plan.RuntimeAsIs}},
		{"0", "batched", "free_batched", nil, []plan.RuntimeRule{plan.RuntimeStrip}},
		{"8", "batched", "free", nil, []plan.RuntimeRule{plan.RuntimePrepend}},
		{"8", "batched", "plain", nil, nil},
	} {
		text := `platform: "ensemble" max_batch_size: ` + tc.batch + `
			input { name: "IN" data_type: TYPE_FP32 dims: -1 } output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
			ensemble_scheduling {
			  step { model_name: "` + tc.first + `" model_version: -1 input_map { key: "I" value: "IN" } output_map { key: "O" value: "x" } }
			  step { model_name: "` + tc.second + `" model_version: -1 input_map { key: "I" value: "x" } output_map { key: "O" value: "OUT" } }
			}`
		p, err := plan.Compile(ofText(t, "e", text), 1, repo)
		if err != nil {
			t.Fatal(err)
		}
		if p.Nodes[0].Runtime != nil {
			t.Errorf("%s, %s: the first step takes %v, want nothing Free", tc.first, tc.second, p.Nodes[0].Runtime)
		}
		if !slices.Equal(p.Nodes[1].Runtime, tc.in) || !slices.Equal(p.OutputRuntime, tc.out) {
			t.Errorf("%s, %s, max batch size %s: the second step takes %v and the output %v, want %v and %v",
				tc.first, tc.second, tc.batch, p.Nodes[1].Runtime, p.OutputRuntime, tc.in, tc.out)
		}
	}
}
