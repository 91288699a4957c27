//go:build cgo

package normalize_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/normalize"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestAtDevice compares the step at a device with the one on the host, bit for bit: the checking driver runs a block as one thread.
func TestAtDevice(t *testing.T) {
	g := rand.New(rand.NewPCG(5, 6))
	for _, d := range []tensor.DType{tensor.FP32, tensor.FP16} {
		a := steptest.OpenDevice(t, normalize.NewFactory(), &steptest.Case{
			MaxBatch: 8, Inputs: []config.Port{{Name: "embedding", DType: d, Dims: tensor.Of(-1)}},
		})
		for _, shape := range [][2]int{{0, 3}, {1, 0}, {1, 1}, {3, 4}, {8, 7}, {2, 384}, {5, 1023}} {
			v := steptest.Value{DType: d, Dims: []int64{int64(shape[0]), int64(shape[1])}}
			for range shape[0] {
				scale := []float64{0, 1, 1e-30, 1e30, math.Inf(1), math.NaN()}[g.IntN(6)]
				for range shape[1] {
					x := float32(g.NormFloat64() * scale)
					if d == tensor.FP16 {
						v.Data = binary.LittleEndian.AppendUint16(v.Data, tensor.Float32ToFP16(x))
					} else {
						v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(x))
					}
				}
			}
			a.Compare(0, 1, v)
		}
	}
}
