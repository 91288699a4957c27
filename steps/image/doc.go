// Package image holds the step decode_resize: the bytes of an image file in, one
// normalised image tensor out.
//
// The numbers follow Pillow, because most vision models were trained behind it:
// every format gives the very samples that Pillow's convert("RGB") gives, and the
// resize is Pillow's antialiased bilinear filter in the same fixed point. Departures
// are on purpose: 16-bit grey takes the high byte (Pillow clips such images at 255,
// which turns them white), an image is turned as its EXIF data say unless told not to
// (Pillow leaves that to its exif_transpose), colour profiles are not looked at, and
// damaged files are refused where Pillow fills in.
//
// Map of the package:
//
//	factory.go     what the step is called, takes and gives
//	settings.go    parameters, parsed and checked once at load
//	decoding.go    parameters and limits of decoding
//	step.go        one batch: rows in, slots of the output tensor out
//	header.go      what the bytes claim to be, before anything is decoded
//	jpegheader.go  the same for JPEG
//	exif.go        orientation
//	decode.go      the decoders and their errors
//	jpeg/          the program's own JPEG decoder
//	turbo.go       libturbojpeg, where the system has it
//	webp.go        colours and animations of WebP
//	gif.go         the first frame of GIF
//	bmp.go         BMP; bmprun.go its run lengths
//	tiff.go        what is refused of TIFF
//	picture.go     a decoded image in rows; turning it
//	std.go         images of the standard library's types as such
//	blend.go       alpha over a background
//	row.go         rows as RGB or grey
//	axis.go        filter weights along one axis
//	resize.go      the two passes of the resize
//	layout.go      8-bit samples to the tensor's layout and type
package image
