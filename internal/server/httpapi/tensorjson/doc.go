// Package tensorjson reads the elements of a tensor from JSON into tensor memory and prints them from there, without a value
// in between. For example, [[1,2],[3,4]] and [1,2,3,4] fill an INT32 tensor of shape [2,2], which is printed as 1,2,3,4.
//
//   - read.go: Measure and Fill, for data of known and unknown size
//   - print.go: AppendData
package tensorjson
