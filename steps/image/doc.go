// Package image holds the steps that bring pictures to models: decode_resize, image
// files in; resize, the same for pixels; crop_resize, one image per box.
//
// The numbers follow Pillow 13, because most vision models were trained behind it:
// every format gives the very samples that Pillow's convert("RGB") gives, and the
// resizes are Pillow's filters in the same fixed point. Departures are on purpose:
// 16-bit grey takes the high byte (Pillow clips such images at 255, which turns them
// white), an image is turned as its EXIF data say unless told not to (Pillow leaves
// that to its exif_transpose), colour profiles are not looked at, and damaged files
// are refused where Pillow fills in.
//
// Models trained behind OpenCV, such as YOLO's, get its resize by the filters whose names
// begin with cv_. Pillow has no resize without antialiasing: antialias false takes the same
// kernel unstretched, which for bilinear is within one level of OpenCV's INTER_LINEAR and
// PyTorch's interpolate, and for the other filters is like neither.
//
// Map of the package:
//
//	factory.go     what the steps are called, take and give
//	params.go      their parameters
//	presets.go     the parameters of well-known models; examples.go those of the reference page
//	settings.go    parameters, parsed and checked once at load; numbers.go lists of them
//	decoding.go    parameters and limits of decoding
//	step.go        one batch: rows in, slots of the output tensor out
//	slot.go        these slots; crops
//	pixels.go      pictures that a tensor holds
//	header.go      what the bytes claim to be, before anything is decoded
//	jpegheader.go  the same for JPEG
//	exif.go        orientation
//	decode.go      the decoders and their errors
//	jpeg/          the program's own JPEG decoder
//	kernels/       inner loops with the vectors of the processor
//	webp.go        colours and animations of WebP
//	gif.go         the first frame of GIF
//	bmp.go         BMP; bmprun.go its run lengths
//	tiff.go        TIFF; tiff/ its decoder
//	picture.go     a decoded image in rows; turning it
//	std.go         images of the standard library's types as such
//	blend.go       alpha over a background
//	row.go         rows as RGB, grey or YCbCr; color.go the colours
//	frame.go       where a picture goes: fits, crops, geometry
//	filter.go      the filters by name, and Pillow's kernels
//	axis.go        filter weights along one axis
//	resize.go      the two passes of the resize; along.go the one along the rows; vectors.go both with vectors
//	reduce.go      the step before them that reducing_gap asks for
//	cvresize.go    the resize of OpenCV; opencv/ its arithmetic
//	layout.go      8-bit samples to the tensor's layout and type
package image
