// Package detect holds the step detect, which makes a detector's raw outputs a list of
// boxes: it decodes them, drops what scores too little or overlaps what scores more,
// and takes the boxes to the pixels of the picture.
//
// Map of the package:
//
//	factory.go     what the step is called, takes and gives; examples.go the reference page's
//	options.go     its parameters, parsed and checked once at load
//	step.go        one batch
//	place.go       from the model's pixels to the picture's
//	candidates.go  the boxes that score enough
//	decode.go      the formats' boxes and scores; raw.go those of YOLO v5 before decoding
//	suppress.go    non-maximum suppression
//	output.go      the output tensors
//
// Numbers that are not finite: a score that is NaN never counts, and a box with a
// coordinate, or a best score, that is NaN or infinite is left out. Boxes whose edges
// are the wrong way round have no area and overlap nothing.
package detect
