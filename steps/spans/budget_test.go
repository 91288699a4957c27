//go:build !race

package spans_test

import (
	"encoding/binary"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/spans"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestAllocBudget holds the steps to no allocation in steady state.
func TestAllocBudget(t *testing.T) {
	s := newStep(t, spans.NewTokenFactory(), map[string]string{"labels_file": "l", "aggregation": "average"}, map[string]string{"l": peerLabels})
	in := append([]steptest.Value{steptest.F32([]int64{1, peerTokens, 9}, logits(9*peerTokens)...)}, peerCommon()...)
	budget(t, s, in)
	common, one := peerCommon(), []int64{1, peerTokens}
	binary.LittleEndian.PutUint64(common[1].Data[8*8:], 1)
	in = append([]steptest.Value{steptest.F32(one, logits(peerTokens)...), steptest.F32(one, logits(peerTokens)...)}, common...)
	budget(t, newStep(t, spans.NewAnswerFactory(), map[string]string{"top_k": "3"}, nil), append(in, steptest.Value{}))
}

func budget(t *testing.T, s steps.Step, in []steptest.Value) {
	t.Helper()
	b := newBatch(t, 1, in)
	got := testing.AllocsPerRun(100, func() {
		if err := s.Run(t.Context(), b); err != nil {
			t.Error(err)
		}
	})
	if text, _, _ := tensor.NextBytes(b.Out[0].Bytes()); len(text) < 20 {
		t.Errorf("the answer is %s", text)
	}
	if got >= 1 {
		t.Errorf("%v allocations, expected none", got)
	}
}
