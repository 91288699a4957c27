package steptest_test

import (
	"fmt"
	"testing"

	"github.com/tutti-server/tutti/steps/steptest"
	"github.com/tutti-server/tutti/steps/stringop"
)

// A test of a step passes its factory and a few cases to Run.
func ExampleRun() {
	test := func(t *testing.T) { // TestContract of the step's package
		t.Helper()
		steptest.Run(t, stringop.NewFactory(), steptest.Case{
			Name: "lower", MaxBatch: 8, Params: map[string]string{"op": "lower"},
			Requests: []steptest.Request{{
				Inputs: []steptest.Value{steptest.Text([]int64{1, 1}, "Größe")},
				Want:   []steptest.Value{steptest.Text([]int64{1, 1}, "größe")},
			}},
		})
	}
	_ = test
}

// Values print as their type, dimensions and elements in failure messages.
func ExampleValue() {
	fmt.Println(steptest.F32([]int64{1, 2}, 0.5, 3))
	fmt.Println(steptest.Text([]int64{1}, "a"))
	// Output:
	// FP32[1 2] [0.5 3]
	// BYTES[1] "\x01\x00\x00\x00a"
}
