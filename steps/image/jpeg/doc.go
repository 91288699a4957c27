// Package jpeg decodes JPEG files to the very pixels that libjpeg-turbo gives: its
// integer inverse transform, its triangle filter for chroma, its colour conversion,
// and its reduced transforms for a picture of a half, a quarter or an eighth of the
// size. It reads baseline, extended sequential and progressive files of 8 bits with
// Huffman coding, in grey, YCbCr, RGB, CMYK and YCCK.
//
// What reads the file is Go. Rows of coefficients and of samples go through the
// kernels of package kernels, which use the vectors of the processor.
//
// Damaged data is refused, where libjpeg guesses and warns: a picture that is
// half grey is worse than an error.
//
// Map of the package:
//
//	decode.go       segments: from the file to the frame, its tables and its scans
//	frame.go        the frame header, sizes of planes and their memory
//	bits.go         bits of entropy-coded data
//	huffman.go      code tables
//	scan.go         scans: order of blocks, restarts
//	sequential.go   the blocks of a sequential scan
//	progressive.go  the four kinds of progressive block
//	upsample.go     planes to full size, row by row
//	color.go        the colour spaces to RGB
package jpeg
