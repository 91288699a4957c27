// Package kernels holds the inner loops of image decoding and resizing: the inverse transform of
// JPEG, its chroma and colours, and the weighted sums of a resize. On amd64 with AVX2 they
// are C with intrinsics, called for a row at a time. Elsewhere, and without cgo, they are Go.
// Both give the same bits. Go checks all sizes before it calls C, and no bytes of a file are
// parsed here.
//
// Where things are:
//
//	inverse.go      the inverse transform
//	reduced.go      the transforms to fewer samples
//	chroma.go       rows of chroma at full size
//	color.go        YCbCr to RGB
//	taps.go         weights of a resize along the rows
//	lerp.go         the resize with two weights, as OpenCV rounds it
//	native.go       the exported functions with avx2_amd64.c
//	portable.go     the exported functions without it
package kernels
