//go:build wasip1

// Command sentence is the model forecast_sentence: it puts the likeliest labels of a classifier into words.
//
// For each row it reads labels BYTES [n] and probabilities FP32 [n], the likeliest first, and writes sentence BYTES [1]: the first
// label, or the first two with their shares when the first has less than the parameter sure, 0.9 by default.
package main

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/examples/wasm/go/tutti"
)

var _ = tutti.Serve(initialize, execute)

func main() {} // not called: the module is a reactor

var sure float32 = 0.9

func refused(format string, args ...any) error {
	return &tutti.Failure{Row: -1, Code: tutti.InvalidArgument, Text: fmt.Sprintf(format, args...)}
}

func initialize(parameters []tutti.Tensor) error {
	for i := range parameters {
		name, value := parameters[i].Name(), tutti.Strings(&parameters[i])[0]
		share, err := strconv.ParseFloat(value, 32)
		if name != "sure" || err != nil {
			return refused("parameter '%s' is '%s', expected 'sure' with a share", name, value)
		}
		sure = float32(share)
	}
	return nil
}

func percent(share float32) int { return int(share*100 + 0.5) }

func execute(inputs []tutti.Tensor) (r tutti.Response, err error) {
	labels, err := tutti.Find(inputs, "labels")
	if err != nil {
		return r, err
	}
	shares, err := tutti.Find(inputs, "probabilities")
	if err != nil {
		return r, err
	}
	dims := labels.Dims()
	if !slices.Equal(dims, shares.Dims()) || len(dims) != 2 || shares.DataType != tutti.FP32 {
		return r, refused("expected a share for each label, got shapes %v and %v", dims, shares.Dims())
	}
	rows, width := int(dims[0]), int(dims[1])
	if width < 2 {
		return r, refused("expected at least two labels, got %d", width)
	}
	names, values := tutti.Strings(labels), tutti.Numbers[float32](shares)
	sentences := make([]string, rows)
	for row := range rows {
		n, v := names[row*width:], values[row*width:]
		switch {
		case !(v[0] >= 0 && v[0] <= 1 && v[1] >= 0 && v[1] <= 1):
			r.Failures = append(r.Failures, &tutti.Failure{Row: int32(row), Code: tutti.InvalidArgument, Text: "expected shares from 0 to 1"})
		case v[0] >= sure:
			sentences[row] = n[0]
		default:
			sentences[row] = fmt.Sprintf("%s (%d %%) or %s (%d %%)", n[0], percent(v[0]), n[1], percent(v[1]))
		}
	}
	r.Outputs = []tutti.Output{tutti.StringsOutput("sentence", []int64{int64(rows), 1}, sentences)}
	return r, nil
}
