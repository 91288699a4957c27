package steps_test

import (
	"context"
	"fmt"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// scale multiplies FP32 numbers by a factor.
type scale float32

func (s scale) Run(_ context.Context, b *backends.Batch) error {
	in := &b.In[0]
	out, err := b.Alloc(0, tensor.FP32, in.Shape)
	if err != nil {
		return err
	}
	dst := tensor.Slice[float32](out)
	for i, v := range tensor.Slice[float32](in) {
		dst[i] = float32(s) * v
	}
	return nil
}

// scaleFactory declares the step "scale".
func scaleFactory() steps.Factory {
	return steps.Factory{
		Name:   "scale",
		Doc:    "Multiplies numbers by a factor.",
		Params: []steps.Param{{Key: "factor", Doc: "The factor.", Default: "2"}},
		Signature: func(*steps.Settings) (*config.Signature, error) {
			return &config.Signature{
				Inputs:  []config.Port{{Name: "X", DType: tensor.FP32, Dims: tensor.Of(-1)}},
				Outputs: []config.Port{{Name: "Y", DType: tensor.FP32, Dims: tensor.Of(-1)}},
			}, nil
		},
		New: func(s *steps.Settings) (steps.Step, error) {
			factor, err := s.Float("factor")
			return scale(factor), err
		},
	}
}

// A step is a Factory and a Step. The server calls them as this example does.
func ExampleFactory() {
	f := scaleFactory()
	params, err := f.Resolve(map[string]string{"step": "scale", "factor": "0.5"})
	if err != nil {
		fmt.Println(err)
		return
	}
	step, err := f.New(&steps.Settings{Model: "half", Params: params})
	if err != nil {
		fmt.Println(err)
		return
	}
	x, err := tensor.New(tensor.NewPool(), tensor.FP32, tensor.Of(3))
	if err != nil {
		fmt.Println(err)
		return
	}
	copy(tensor.Slice[float32](&x), []float32{1, 2, 3})
	b := &backends.Batch{Rows: 1, In: []tensor.Tensor{x}, Out: make([]tensor.Tensor, 1), Allocator: tensor.NewPool()}
	if err := step.Run(context.Background(), b); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tensor.Slice[float32](&b.Out[0]))
	tensor.ReleaseAll(b.In)
	tensor.ReleaseAll(b.Out)
	// Output: [0.5 1 1.5]
}

// A misspelt parameter is an error that names the nearest one.
func ExampleFactory_Resolve() {
	f := scaleFactory()
	_, err := f.Resolve(map[string]string{"factr": "3"})
	fmt.Println(err)
	// Output: unknown parameter 'factr' of step 'scale', expected one of: factor. Did you mean "factor"?
}

// A registry finds the factory that a config.pbtxt names.
func ExampleRegistry() {
	r, err := steps.NewRegistry(scaleFactory())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Names(), r.ByName("scale").Doc, r.ByName("shift") == nil)
	// Output: [scale] Multiplies numbers by a factor. true
}
