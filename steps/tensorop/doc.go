// Package tensorop holds the step "tensor", which computes with tensors of numbers and
// moves the elements of tensors of any type, and the step "constant".
//
// The operations have numpy's names and meaning. An operation treats each row of a batch
// separately: axes do not count the batch dimension. For example, axis 0 of an input
// declared as dims [3, 5] is the axis of 3 elements, with or without max_batch_size.
//
// Where things are:
//
//	factory.go   the declarations; operations.go the table of operations
//	spec.go      parameters and shapes, checked when the model is loaded
//	step.go      one execution and its scratch memory
//	typed.go     the choice of generic code by element type
//	nest.go      loops over tensors with strides and broadcasting
//	binary.go    arithmetic, comparison and logic; loop.go their inner loops
//	unary.go     functions of one operand
//	reduce.go    sum, mean, argmax and the like; reducers.go their inner loops
//	cast.go      conversions; casttext.go between numbers and text
//	text.go      how elements of BYTES tensors are moved
//	join.go, pick.go, pad.go, shape.go, slice.go, copy.go   operations that move elements
//	vector.go    FP32 with AVX2
package tensorop
