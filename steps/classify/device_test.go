//go:build cgo

package classify_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/steps/classify"
	"github.com/tutti-server/tutti/steps/steptest"
)

// scoresFor returns rows of scores of several kinds: random, with ties, huge, infinite, NaN, all the same.
func scoresFor(g *rand.Rand, rows, classes int) steptest.Value {
	special := []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)), 88, -104, 3e38}
	x := make([]float32, rows*classes)
	for row := range rows {
		kind := g.IntN(6)
		for i := range x[row*classes:][:classes] {
			at := &x[row*classes+i]
			switch kind {
			case 0:
				*at = float32(g.NormFloat64() * 5)
			case 1:
				*at = float32(g.IntN(4))
			case 2:
				*at = special[g.IntN(len(special))]
			case 3:
				*at = float32(math.NaN())
			case 4:
				*at = float32(math.Inf(-1))
			default:
				*at = float32(g.NormFloat64() * 300)
			}
		}
	}
	return steptest.F32([]int64{int64(rows), int64(classes)}, x...)
}

// TestAtDevice compares the steps at a device with those on the host. The checking driver runs a block as one thread, so that sums have
// the order of the host.
func TestAtDevice(t *testing.T) {
	g := rand.New(rand.NewPCG(1, 2))
	for _, p := range []map[string]string{{}, {"op": "log_softmax"}, {"op": "sigmoid"}, {"temperature": "0.7"}, {"op": "arg_max"}} {
		a := steptest.OpenDevice(t, classify.NewScoresFactory(), &steptest.Case{Params: p, MaxBatch: 8})
		ulps := 0
		if p["op"] == "log_softmax" {
			ulps = 1 // the logarithm is that of the C library
		}
		for _, classes := range []int{1, 2, 5, 257, 1000} {
			for rows := range 9 {
				a.Compare(ulps, 1, scoresFor(g, rows, classes))
			}
		}
		a.Compare(ulps, 1, scoresFor(g, 3, 0))
	}
	for _, activation := range []string{"softmax", "sigmoid", "raw"} {
		for _, threshold := range []string{"none", "0.2"} {
			for _, k := range []int{1, 5, 100} {
				c := &steptest.Case{Params: map[string]string{"k": strconv.Itoa(k), "activation": activation, "threshold": threshold}, MaxBatch: 8}
				a := steptest.OpenDevice(t, classify.NewFactory(), c)
				for _, classes := range []int{1, 5, 100, 300} {
					a.Compare(0, 1, scoresFor(g, 1+g.IntN(8), classes))
				}
			}
		}
	}
}
