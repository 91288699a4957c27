package config_test

import (
	"fmt"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// A configuration is parsed, gets its defaults, and is checked. Every problem has a code and a field.
func Example() {
	cfg, err := config.Parse("config.pbtxt", []byte(`
		backend: "onnxruntime"
		max_batch_size: 8
		input { name: "X" data_type: TYPE_FP32 dims: [ 16 ] }
		output { name: "Y" data_type: TYPE_FP32 dims: [ 4, 0 ] }`))
	if err != nil {
		panic(err)
	}
	if err := config.Normalise(cfg, "classifier"); err != nil {
		panic(err)
	}
	for _, err := range config.Check(cfg) {
		d, _ := config.Diagnosed(err)
		fmt.Println(d.Code, d.Field)
	}
	// Output:
	// TUT2013 output[0].dims
}

// Dims of the configuration and of the model may each leave extents open.
func ExampleNarrow() {
	dims, ok := config.Narrow(tensor.Of(-1, 16), tensor.Of(8, -1))
	fmt.Println(dims, ok)
	_, ok = config.Narrow(tensor.Of(4), tensor.Of(8))
	fmt.Println(ok)
	// Output:
	// [8,16] true
	// false
}
