// Package image holds the steps that prepare images for models: decode_resize for image files,
// resize for pixels, crop_resize for one crop per box. Package draw, below it, draws boxes.
//
// The samples are those of Pillow 13, because most vision models were trained behind it:
// every format gives exactly the samples of Pillow's convert("RGB"), and the resizes are
// Pillow's filters in the same fixed point. Five differences are deliberate:
//
//   - 16-bit grey takes the high byte. Pillow clips such images at 255, which makes them white.
//   - An image is turned as its EXIF orientation says, unless told not to. Pillow leaves that to
//     exif_transpose.
//   - Colour profiles are ignored.
//   - Damaged files are refused where Pillow fills in grey.
//   - Filters whose names begin with cv_ are OpenCV's, for models trained behind it, such as
//     YOLO's. With antialias false a filter of Pillow keeps its width when the image shrinks,
//     which Pillow cannot do; bilinear is then within one level of OpenCV's INTER_LINEAR
//     and of PyTorch's interpolate.
//
// A file goes through these packages:
//
//	image      parameters, batches, the place of an image in the output, normalisation, layout
//	decode     bytes to samples: the header and its limits, then the decoder of the format
//	raster     samples in rows: turned, blended, in another colour space
//	resize     resampling by Pillow's filters, or by package opencv
//	jpeg, tiff decoders; kernels has the inner loops of JPEG and resize, in Go and AVX2
//
// From a file to an FP32 tensor, for example of a JPEG of 640 x 480 with fit short_side and 224 x 224:
//
//  1. decode.Options.Check reads the size, 640 x 480, and compares it with the limits.
//  2. framing.frame places the image: resized to 298 x 224, with 37 columns cropped on each side.
//  3. decode.Decoder.Decode returns rows of RGB.
//  4. resize.Resizer.Run passes 224 rows of 224 pixels to target.Put, which looks each sample up
//     in a table of normalised values.
package image
