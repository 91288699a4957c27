package pool_test

import (
	"fmt"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/pool"
	"github.com/tutti-server/tutti/steps/steptest"
)

// gold is a case of testdata/gold.json.gz, which testdata/make_gold.py writes.
type gold struct {
	Mode, Normalize             string
	Half                        bool
	Shape                       []int64
	Hidden, Mask, Weights, Want []byte
}

func readGold(tb testing.TB) (list []gold) {
	tb.Helper()
	steptest.ReadGold(tb, "gold.json.gz", &list)
	return list
}

// TestGold compares every mode with sentence-transformers' rules.
func TestGold(t *testing.T) {
	t.Parallel()
	var cases []steptest.Case
	for i, g := range readGold(t) {
		float := tensor.FP32
		if g.Half {
			float = tensor.FP16
		}
		rows, flat := g.Shape[:2:2], []int64{g.Shape[0], g.Shape[2]}
		q := steptest.Request{
			Inputs: []steptest.Value{{DType: float, Dims: g.Shape, Data: g.Hidden}, {DType: tensor.Int64, Dims: rows, Data: g.Mask}},
			Want:   []steptest.Value{{DType: tensor.FP32, Dims: flat, Data: g.Want}},
		}
		ports := []config.Port{{Name: "last_hidden_state", DType: float}, {Name: "attention_mask", DType: tensor.Int64}}
		switch {
		case g.Weights != nil:
			ports = append(ports, config.Port{Name: "weights", DType: float, Optional: true})
			q.Inputs = append(q.Inputs, steptest.Value{DType: float, Dims: rows, Data: g.Weights})
		case g.Mode == "weighted_mean":
			q.Inputs = append(q.Inputs, steptest.Value{})
		}
		cases = append(cases, steptest.Case{
			Name: fmt.Sprint(i, " ", g.Mode), Params: map[string]string{"mode": g.Mode, "normalize": g.Normalize}, MaxBatch: 16,
			Inputs: ports, Requests: []steptest.Request{q}, Tolerance: 2e-6,
		})
	}
	steptest.Run(t, pool.NewFactory(), cases...)
}
