//go:build wasip1

// Command simple is the model simple_wasm: OUTPUT0 = INPUT0 + INPUT1 and OUTPUT1 = INPUT0 - INPUT1.
package main

import (
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/examples/wasm/go/tutti"
)

var _ = tutti.Serve(nil, execute)

func main() {} // not called: the module is a reactor

func execute(inputs []tutti.Tensor) (r tutti.Response, err error) {
	a, err := tutti.Find(inputs, "INPUT0")
	if err != nil {
		return r, err
	}
	b, err := tutti.Find(inputs, "INPUT1")
	if err != nil {
		return r, err
	}
	if !slices.Equal(a.Dims(), b.Dims()) {
		return r, &tutti.Failure{Row: -1, Code: tutti.InvalidArgument, Text: fmt.Sprintf("expected inputs of one shape, got %v and %v", a.Dims(), b.Dims())}
	}
	x, y := tutti.Numbers[float32](a), tutti.Numbers[float32](b)
	sums, differences := make([]float32, len(x)), make([]float32, len(x))
	for i := range x {
		sums[i], differences[i] = x[i]+y[i], x[i]-y[i]
	}
	r.Outputs = []tutti.Output{
		tutti.NumbersOutput("OUTPUT0", tutti.FP32, a.Dims(), sums),
		tutti.NumbersOutput("OUTPUT1", tutti.FP32, a.Dims(), differences),
	}
	return r, nil
}
