// Package tiff decodes the first image of a TIFF file to samples of 8 bits: those of Pillow 13's convert("RGB").
//
// It reads gray (with or without alpha), palettes, RGB (likewise), CMYK and, inside JPEG, YCbCr; samples of 1, 2, 4, 8 and
// 16 bits and floating point of 32; strips and tiles, interleaved and in planes; without compression and with CCITT
// groups 3 and 4, LZW, Deflate, PackBits and JPEG. Other files are refused with an error that names the feature.
// golang.org/x/image/tiff refuses 56 of the 91 test files and decodes 10 to other samples; its LZW and CCITT decoders are used.
//
// Two differences from Pillow are deliberate: gray samples of 16 bits give their high byte, where Pillow makes all above
// 255 white, and damaged data is refused. Two more are errors of Pillow: it reads compressed big-endian floating point
// samples as little-endian, and ignores the alpha of compressed gray planes.
//
// Rows are decompressed one at a time. Beside the result, memory is allocated for a row of a strip or tile, and for a JPEG.
//
// Where things are:
//
//	directory.go    tags and their values
//	header.go       the header and the features that are refused
//	decode.go       strips and tiles
//	compression.go  their rows
//	packbits.go     PackBits
//	jpeg.go         strips and tiles that are JPEG files
//	predictor.go    differences between samples
//	samples.go      samples to 8 bits
//	color.go        the colours to gray or RGB
package tiff
