package plan_test

import (
	"fmt"
	"os"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/pipeline/plan"
)

func ExampleCompile() {
	model := func(text string) repository {
		cfg, err := config.Parse("config.pbtxt", []byte(text))
		if err != nil {
			fmt.Fprintln(os.Stdout, err)
		}
		return repository{cfg.GetName(): cfg}
	}
	look := model(`name: "double" max_batch_size: 4
		input { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "y" data_type: TYPE_FP32 dims: [ 1 ] }`)
	twice := model(`name: "twice" platform: "ensemble" max_batch_size: 4
		input { name: "in" data_type: TYPE_FP32 dims: [ 1 ] } output { name: "out" data_type: TYPE_FP32 dims: [ 1 ] }
		ensemble_scheduling { step [
			{ model_name: "double" model_version: -1 input_map { key: "x" value: "mid" } output_map { key: "y" value: "out" } },
			{ model_name: "double" model_version: -1 input_map { key: "x" value: "in" } output_map { key: "y" value: "mid" } }
		] }`)["twice"]
	p, err := plan.Compile(twice, 1, look)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		return
	}
	fmt.Fprint(os.Stdout, p.Text())
	// Output:
	// twice version 1: max batch size 4, 2 steps, 3 tensors
	// input in FP32 [-1,1]
	// step 0 double[1]: model double version 1
	//   x <- in FP32 [-1,1]
	//   y -> mid FP32 [-1,1]
	// step 1 double[0]: model double version 1
	//   x <- mid FP32 [-1,1]
	//   y -> out FP32 [-1,1]
	// output out FP32 [-1,1] from out, needs steps 0 1
	// no copies: every tensor is on the host, where all steps run
}
