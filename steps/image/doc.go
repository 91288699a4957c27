// Package image holds the step decode_resize: JPEG or PNG bytes in, one
// normalised image tensor out.
//
// The numbers follow Pillow, because most vision models were trained behind it:
// chroma is upsampled and converted as libjpeg does, grey is Pillow's
// convert("L"), alpha is dropped as by convert("RGB") and the resize is Pillow's
// antialiased bilinear filter in the same fixed point, equal to the last bit on
// the same pixels. Two departures are on purpose: 16-bit grey takes the high
// byte (Pillow clips such images at 255, which turns them white), and the
// inverse transform of the JPEG decoder is that of the Go standard library.
//
// Map of the package:
//
//	factory.go   what the step is called, takes and gives
//	settings.go  parameters, parsed and checked once at load
//	step.go      one batch: rows in, slots of the output tensor out
//	header.go    what the bytes claim to be, before anything is decoded
//	decode.go    limits, the decoders and their errors
//	row.go       one row of any decoded image as 8-bit RGB or grey
//	chroma.go    libjpeg's chroma upsampling and colour conversion
//	axis.go      filter weights along one axis
//	resize.go    the two passes of the resize
//	layout.go    8-bit samples to the tensor's layout and type
package image
