// Package tensorop holds the step "tensor", which computes with tensors of numbers and
// moves the elements of tensors of any type, and the step "constant".
//
// Names and meaning of the operations are numpy's. An operation works on each row of a
// batch by itself: axes are counted without the batch dimension.
package tensorop
