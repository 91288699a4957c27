//go:build cgo

package pool_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/pool"
	"github.com/tutti-server/tutti/steps/steptest"
)

// TestAtDevice compares the mean at a device with that on the host, bit for bit: the checking driver runs a block as one thread.
func TestAtDevice(t *testing.T) {
	g := rand.New(rand.NewPCG(3, 4))
	for _, d := range []tensor.DType{tensor.FP32, tensor.FP16} {
		for _, unit := range []string{"false", "true"} {
			a := steptest.OpenDevice(t, pool.NewFactory(), &steptest.Case{
				Params: map[string]string{"normalize": unit}, MaxBatch: 8,
				Inputs: []config.Port{{Name: "last_hidden_state", DType: d, Dims: tensor.Of(-1, -1)}},
			})
			for _, shape := range [][3]int{{0, 3, 4}, {1, 0, 5}, {1, 1, 1}, {2, 7, 0}, {3, 5, 384}, {8, 2, 33}, {1, 300, 3}} {
				a.Compare(0, 1, hidden(g, d, shape), mask(g, shape))
			}
		}
	}
}

// hidden returns vectors, some of them with NaN, infinities or zeros.
func hidden(g *rand.Rand, d tensor.DType, shape [3]int) steptest.Value {
	v := steptest.Value{DType: d, Dims: []int64{int64(shape[0]), int64(shape[1]), int64(shape[2])}}
	for range shape[0] * shape[1] * shape[2] {
		x := float32(g.NormFloat64())
		switch g.IntN(200) {
		case 0:
			x = float32(math.NaN())
		case 1:
			x = float32(math.Inf(1))
		case 2:
			x = 0
		}
		if d == tensor.FP16 {
			v.Data = binary.LittleEndian.AppendUint16(v.Data, tensor.Float32ToFP16(x))
		} else {
			v.Data = binary.LittleEndian.AppendUint32(v.Data, math.Float32bits(x))
		}
	}
	return v
}

// mask hides random tokens, in some texts all.
func mask(g *rand.Rand, shape [3]int) steptest.Value {
	var m []int64
	for range shape[0] {
		all := g.IntN(4) == 0
		for range shape[1] {
			v := int64(g.IntN(3) - 1)
			if all {
				v = 0
			}
			m = append(m, v)
		}
	}
	return steptest.I64([]int64{int64(shape[0]), int64(shape[1])}, m...)
}
