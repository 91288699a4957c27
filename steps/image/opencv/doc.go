// Package opencv resamples images of 8-bit samples to the bits of cv2.resize. The reference is
// opencv-python-headless 5.0.0.93 for x86-64; 4.14.0.94 gives the same bits.
//
// One case is defined more narrowly: for INTER_CUBIC the x86-64 wheels call Intel's IPP, whose results differ by 1
// from processor to processor. Cubic is OpenCV's own code, as after cv2.ipp.setUseIPP(False).
//
// What OpenCV computes for 8-bit samples, and what therefore is not obvious here:
//
//   - Linear, Cubic and Lanczos4 have weights of 11 bits and never widen when the image shrinks. Linear drops 4 bits
//     between the passes and 16 bits of each product of the second one.
//   - Linear at exactly half the width and height is Area.
//   - Area is a mean only where neither side grows. With two whole factors it divides a sum; with others it adds up
//     float32 products. Where a side grows it is Linear with other weights.
//   - Cubic works on eight samples at a time in float32, and on what remains of a row in integers. Both round
//     differently at ties, so a sample's value depends on its place in the row.
//
// Map of the package:
//
//	resizer.go  what is asked for, and which method does it
//	nearest.go  copies
//	taps.go     the weights of linear, cubic and lanczos4
//	linear.go   two passes of two weights
//	wide.go     two passes of four or eight weights
//	area.go     means
package opencv
