// Package opencv resamples images of 8-bit samples to the bits of cv2.resize. The reference is
// opencv-python-headless 5.0.0.93 for x86-64; 4.14.0.94 gives the same bits.
//
// One case is an exception: for INTER_CUBIC the x86-64 wheels call Intel's IPP, whose results differ by 1 between
// processors. Cubic is OpenCV's own code, as after cv2.ipp.setUseIPP(False).
//
// OpenCV's code for 8-bit samples (modules/imgproc/src/resize.cpp) has these special cases:
//
//   - Linear, Cubic and Lanczos4 have weights of 11 bits and never widen when the image shrinks. Linear drops 4 bits
//     between the passes and 16 bits of each product of the second one.
//   - Linear at exactly half the width and height is Area.
//   - Area is a mean only where neither side grows. With two whole factors it divides a sum; with others it adds up
//     float32 products. Where a side grows it is Linear with other weights.
//   - Cubic computes eight samples at a time in float32, and the rest of a row in integers. The two round
//     differently at ties, so the value of a sample depends on its position in the row.
//
// Where things are:
//
//	resizer.go  Job, Resizer and the choice of the method
//	nearest.go  copied samples
//	taps.go     the weights of linear, cubic and lanczos4
//	linear.go   two passes of two weights
//	wide.go     two passes of four or eight weights
//	area.go     means
package opencv
