//go:build cgo

package tensorop_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps/steptest"
	"github.com/tutti-server/tutti/steps/tensorop"
)

var numberTypes = []tensor.DType{
	tensor.Bool, tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64,
	tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64,
}

// elements returns n elements of a type: random bits and numbers, the ends of the integers, infinities, NaN and subnormal numbers.
func elements(g *rand.Rand, d tensor.DType, dims ...int64) steptest.Value {
	v := steptest.Value{DType: d, Dims: dims}
	n := 1
	for _, x := range dims {
		n *= int(x)
	}
	special := []float64{
		0, math.Copysign(0, -1), 1, -1, 0.5, 127, 128, -128, -129, 255, 256, 32768, 65504, 65520, 2147483647, 2147483648, -2147483649, 1e10,
		9223372036854775807, -9223372036854775808, 1.8446744073709552e19, 1e300, -1e300, 1e-40, 6e-8, math.Inf(1), math.Inf(-1), math.NaN(), 300.7, -0.7,
	}
	for range n {
		bits := g.Uint64()
		f := special[g.IntN(len(special))]
		if g.IntN(2) == 0 {
			f = g.NormFloat64() * math.Pow(10, float64(g.IntN(12)-4))
		}
		switch d {
		case tensor.Bool:
			bits %= 3
		case tensor.FP16:
			if bits&1 == 0 {
				bits = uint64(tensor.Float32ToFP16(float32(f)))
			}
		case tensor.BF16:
			if bits&1 == 0 {
				bits = uint64(tensor.Float32ToBF16(float32(f)))
			}
		case tensor.FP32:
			if bits&1 == 0 {
				bits = uint64(math.Float32bits(float32(f)))
			}
		case tensor.FP64:
			if bits&1 == 0 {
				bits = math.Float64bits(f)
			}
		default:
			if bits&1 == 0 {
				bits = []uint64{0, 1, 1<<7 - 1, 1 << 7, 1<<8 - 1, 1<<15 - 1, 1 << 15, 1<<31 - 1, 1 << 31, 1<<63 - 1, 1 << 63, math.MaxUint64}[g.IntN(12)]
			}
		}
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], bits)
		v.Data = append(v.Data, word[:d.Size()]...)
	}
	return v
}

func at(t *testing.T, gpu *steptest.GPU, d tensor.DType, dims tensor.Shape, inputs int, params ...string) *steptest.AtDevice {
	t.Helper()
	c := &steptest.Case{Params: map[string]string{}, MaxBatch: 8}
	for i := 0; i < len(params); i += 2 {
		c.Params[params[i]] = params[i+1]
	}
	for i := range inputs {
		c.Inputs = append(c.Inputs, config.Port{Name: fmt.Sprintf("IN%d", i), DType: d, Dims: dims})
	}
	return gpu.Step(t, tensorop.NewFactory(), c)
}

// TestCastAtDevice compares casts between all types, where they have a kernel.
func TestCastAtDevice(t *testing.T) {
	g, gpu := rand.New(rand.NewPCG(7, 8)), steptest.OpenGPU(t)
	for _, from := range numberTypes {
		for _, to := range numberTypes {
			for _, overflow := range []string{"saturate", "wrap"} {
				if overflow == "wrap" && from.IsFloat() && !to.IsFloat() && to != tensor.Bool {
					continue // on the host
				}
				t.Run(fmt.Sprint(from, " to ", to, " ", overflow), func(t *testing.T) {
					a := at(t, gpu, from, tensor.Of(-1), 1, "op", "cast", "dtype", to.String(), "overflow", overflow)
					a.Compare(0, 1, elements(g, from, 3, 401))
				})
			}
		}
	}
}

// TestMovesAtDevice compares operations that move elements, of each size, with random shapes.
func TestMovesAtDevice(t *testing.T) {
	g, gpu := rand.New(rand.NewPCG(9, 10)), steptest.OpenGPU(t)
	dim := func() int64 { return []int64{1, 1, 2, 3, 5, 8, 17}[g.IntN(7)] }
	for _, d := range []tensor.DType{tensor.Uint8, tensor.FP16, tensor.FP32, tensor.Int64} {
		for _, axes := range []string{"2,0,1", "1,2,0", "2,1,0", "0,2,1", "0,1,2"} {
			a := at(t, gpu, d, tensor.Of(-1, -1, -1), 1, "op", "transpose", "axes", axes)
			for range 4 {
				a.Compare(0, 1, elements(g, d, 2, dim(), dim(), dim()))
			}
			a.Compare(0, 1, elements(g, d, 0, 2, 3, 4))
		}
		a := at(t, gpu, d, tensor.Of(-1, -1, -1, -1, -1, -1, -1), 1, "op", "transpose") // more loops than a launch has
		a.Compare(0, 1, elements(g, d, 2, 2, 3, 2, 3, 2, 3, 2))
		a = at(t, gpu, d, tensor.Of(-1, -1, -1), 1, "op", "slice", "slice", "::-2, 1:, ...")
		a.Compare(0, 1, elements(g, d, 3, 5, 4, 3))
		a = at(t, gpu, d, tensor.Of(-1, -1), 1, "op", "slice", "slice", ":, 1") // one row: a view
		a.Compare(0, 1, elements(g, d, 1, 1, 4))
		a = at(t, gpu, d, tensor.Of(-1, -1), 1, "op", "reshape", "dims", "-1")
		a.Compare(0, 1, elements(g, d, 3, 4, 2))
		for _, axis := range []string{"0", "1", "2"} {
			three := elements(g, d, 2, 3, 4, 2)
			at(t, gpu, d, tensor.Of(-1, -1, -1), 3, "op", "concat", "axis", axis).Compare(0, 1, three, elements(g, d, 2, 3, 4, 2), three)
			at(t, gpu, d, tensor.Of(-1, -1, -1), 2, "op", "stack", "axis", axis).Compare(0, 1, three, elements(g, d, 2, 3, 4, 2))
		}
		at(t, gpu, d, tensor.Of(-1, 6), 1, "op", "split", "axis", "1", "sizes", "1,3,2").Compare(0, 1, elements(g, d, 3, 4, 6))
		at(t, gpu, d, tensor.Of(6, -1), 1, "op", "split", "axis", "0", "sizes", "3").Compare(0, 1, elements(g, d, 3, 6, 5))
	}
}
