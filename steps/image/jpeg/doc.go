// Package jpeg decodes JPEG files to exactly the samples of libjpeg-turbo: its accurate integer
// inverse transform (jidctint), its triangle filter for chroma ("fancy upsampling"), its
// colour conversion, and its reduced transforms (jidctred) for images of a half, a quarter or
// an eighth of the size. It reads baseline, extended sequential and progressive files of 8
// bits with Huffman coding, in grey, YCbCr, RGB, CMYK and YCCK.
//
// The code that parses the file is Go. Rows of coefficients and of samples go through package
// kernels, which uses AVX2 where the processor has it.
//
// Damaged data is refused, where libjpeg guesses and warns: an image that is half grey is worse
// than an error.
//
// A JPEG codes each component (Y, Cb, Cr) as blocks of 8 x 8 samples. Blocks of all components
// that cover the same pixels are a unit (the MCU of the standard, ITU-T T.81). A scan codes
// some components, in a progressive file with some of the bits only.
//
// Where things are:
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
