package plan_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// inside is a model in a chain inside of a fan-out, of FP32 tensors.
type inside struct {
	maxBatch int
	dims     []int64 // of its input
	gathers  bool
}

// chainOf is an ensemble with a chain of models inside of a fan-out, whose items have shapes of their own, and its Lookup.
type chainOf []inside

func (c chainOf) Model(name string, _ int64) (plan.Model, error) {
	if name == "cut" {
		return plan.Model{Signature: &config.Signature{
			Model: name, Version: 1, MaxBatch: 8, Inputs: []config.Port{{Name: "I", DType: tensor.FP32, Dims: tensor.Of(1)}},
			Outputs: []config.Port{{Name: "DATA", DType: tensor.Bytes, Dims: tensor.Of(-1)}, {Name: "SHAPES", DType: tensor.Int32, Dims: tensor.Of(-1, 2)}},
		}}, nil
	}
	for i, m := range c {
		if name != fmt.Sprintf("m%d", i) {
			continue
		}
		out := []int64{1}
		if i+1 < len(c) {
			out = c[i+1].dims
		}
		return plan.Model{Gathers: m.gathers, Signature: &config.Signature{
			Model: name, Version: 1, MaxBatch: m.maxBatch, Inputs: []config.Port{{Name: "I", DType: tensor.FP32, Dims: tensor.Of(m.dims...)}},
			Outputs: []config.Port{{Name: "O", DType: tensor.FP32, Dims: tensor.Of(out...)}},
		}}, nil
	}
	return plan.Model{}, status.Errorf(status.NotFound, "no model '%s'", name)
}

// meets compiles the ensemble and returns where its groups meet.
func (c chainOf) meets(t *testing.T) []int32 {
	t.Helper()
	text := func(s string) *modelconfig.ModelParameter { return &modelconfig.ModelParameter{StringValue: s} }
	steps := []*modelconfig.ModelEnsembling_Step{{
		ModelName: "cut", ModelVersion: -1, InputMap: map[string]string{"I": "IN"}, OutputMap: map[string]string{"DATA": "data", "SHAPES": "shapes"},
	}}
	for i := range c {
		steps = append(steps, &modelconfig.ModelEnsembling_Step{
			ModelName: fmt.Sprintf("m%d", i), ModelVersion: -1,
			InputMap: map[string]string{"I": fmt.Sprintf("t%d", i)}, OutputMap: map[string]string{"O": fmt.Sprintf("t%d", i+1)},
		})
	}
	p, err := plan.Compile(&modelconfig.ModelConfig{
		Name: "e", Platform: "ensemble", MaxBatchSize: 8,
		Input:  []*modelconfig.ModelInput{{Name: "IN", DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{1}}},
		Output: []*modelconfig.ModelOutput{{Name: "out", DataType: modelconfig.DataType_TYPE_FP32, Dims: []int64{-1, 1}}},
		Parameters: map[string]*modelconfig.ModelParameter{
			"step.cut.demux":  text(`{"t0": {"of": "data", "shapes": "shapes", "type": "TYPE_FP32"}}`),
			"ensemble.gather": text(fmt.Sprintf(`{"out": {"of": "t%d"}}`, len(c))),
		},
		SchedulingChoice: &modelconfig.ModelConfig_EnsembleScheduling{EnsembleScheduling: &modelconfig.ModelEnsembling{Step: steps}},
	}, 1, c)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.First.Plan.Nodes {
		if op := p.First.Plan.Nodes[i].Operation; op != nil && op.FanOut != nil {
			return op.FanOut.Meets
		}
	}
	t.Fatal("no fan-out")
	return nil
}

// TestMeetings checks at which models the groups of a fan-out wait for each other.
func TestMeetings(t *testing.T) {
	t.Parallel()
	free, half, fixed := []int64{-1, -1}, []int64{8, -1}, []int64{8, 8}
	for name, tc := range map[string]struct {
		chain chainOf
		want  []int32
	}{
		"made equal":               {chainOf{{8, free, false}, {16, fixed, true}}, []int32{0, 16}},
		"a concurrent model":       {chainOf{{8, free, false}, {16, fixed, false}}, nil},
		"partly equal":             {chainOf{{8, free, false}, {16, half, true}}, []int32{0, math.MaxInt32}},
		"not equal":                {chainOf{{8, free, true}, {8, free, true}}, nil},
		"one by one before":        {chainOf{{1, free, false}, {8, free, true}}, []int32{0, math.MaxInt32}},
		"one by one":               {chainOf{{8, free, false}, {1, fixed, true}}, nil},
		"a step in between":        {chainOf{{8, free, false}, {8, fixed, false}, {8, fixed, true}}, []int32{0, 0, 8}},
		"they have met":            {chainOf{{8, free, false}, {8, fixed, true}, {8, fixed, true}}, []int32{0, 8, 0}},
		"they meet, and once more": {chainOf{{8, free, false}, {8, half, true}, {8, fixed, true}}, []int32{0, math.MaxInt32, 8}},
		"the first":                {chainOf{{8, fixed, true}, {8, fixed, true}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d := cmp.Diff(tc.want, tc.chain.meets(t)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
