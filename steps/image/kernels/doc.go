// Package kernels holds the inner loops of decoding and resizing pictures: the inverse
// transform of JPEG, its chroma and colours, and the sums of a resize. On amd64 with
// AVX2 they are C with vectors, called for a row at a time; elsewhere, and without cgo,
// they are Go. Both give the same bits. Data of a file is parsed in Go: what comes here
// are arrays whose sizes are known.
//
// Map of the package:
//
//	inverse.go      the inverse transform
//	reduced.go      the transforms to fewer samples
//	chroma.go       rows of chroma at full size
//	color.go        YCbCr to RGB
//	taps.go         weights of a resize along the rows
//	lerp.go         the resize with two weights, as OpenCV rounds it
//	native.go       the choice: the kernels of avx2_amd64.c
//	portable.go     the choice without them
package kernels
