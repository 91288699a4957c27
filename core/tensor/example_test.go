package tensor_test

import (
	"fmt"

	"github.com/tutti-server/tutti/core/tensor"
)

func Example() {
	memory := tensor.NewPool()
	t, err := tensor.New(memory, tensor.FP32, tensor.Of(2, 3))
	if err != nil {
		fmt.Println(err)
		return
	}
	copy(tensor.Slice[float32](&t), []float32{1, 2, 3, 4, 5, 6})

	second := t.Retain() // shares the memory
	t.Release()
	fmt.Println(second.DType, second.Shape, tensor.Slice[float32](&second))
	second.Release()
	fmt.Println(memory.InUse(), "bytes in use")
	// Output:
	// FP32 [2,3] [1 2 3 4 5 6]
	// 0 bytes in use
}

func ExampleAppendBytes() {
	var data []byte
	for _, s := range []string{"cat", "dog"} {
		data = tensor.AppendBytes(data, s)
	}
	fmt.Println(tensor.CheckBytes(data, 2))
	for len(data) > 0 {
		var elem []byte
		elem, data, _ = tensor.NextBytes(data)
		fmt.Println(string(elem))
	}
	// Output:
	// <nil>
	// cat
	// dog
}

func ExampleShape_Matches() {
	declared := tensor.Of(-1, 16)
	fmt.Println(tensor.Of(4, 16).Matches(declared), tensor.Of(4, 8).Matches(declared))
	// Output: true false
}
