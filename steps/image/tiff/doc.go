// Package tiff decodes the first image of a TIFF file to samples of 8 bits, as Pillow 13's convert("RGB") has them.
//
// It reads gray (with or without alpha), palettes, RGB (likewise), CMYK and, inside JPEG, YCbCr; samples of 1, 2, 4, 8 and
// 16 bits and floating point of 32; strips and tiles, interleaved and in planes; without compression and with CCITT
// groups 3 and 4, LZW, Deflate, PackBits and JPEG. What it does not read it refuses by name.
//
// Two things differ from Pillow on purpose: gray samples of 16 bits give their high byte, where Pillow makes all above 255
// white, and damaged data are refused. Two more are Pillow's mistakes: it takes big-endian floating point samples for
// little-endian ones where they are compressed, and leaves out the alpha of compressed gray planes.
//
// Rows are decompressed one at a time: beyond the result, memory is taken for a row of a strip or tile, and for a JPEG.
//
// Map of the package:
//
//	directory.go    tags and their values
//	header.go       what a file claims to be, and what is refused of it
//	decode.go       strips and tiles
//	compression.go  their rows
//	packbits.go     PackBits
//	jpeg.go         strips and tiles that are JPEG files
//	predictor.go    differences between samples
//	samples.go      samples to 8 bits
//	color.go        the colours to gray or RGB
package tiff
