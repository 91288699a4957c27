// Package detect holds the step detect, which converts the raw outputs of a detector to a list of
// boxes: it decodes them, drops boxes of low scores, suppresses boxes that overlap a better
// one, and maps the rest to pixels of the image.
//
// For example, YOLO v8 has 84 numbers for each of 8400 boxes of an input of 640 x 640 pixels:
// centre, size and 80 class scores. The step returns those above score_threshold after
// suppression, as left, top, right and bottom in pixels of the original image.
//
// Where things are:
//
//	factory.go     the declaration; examples.go the examples of the reference page
//	options.go     the parameters, parsed and checked when the model is loaded
//	step.go        one batch
//	place.go       from the model's coordinates to the image's
//	candidates.go  the boxes above the threshold
//	decode.go      boxes and scores of each format; raw.go the undecoded heads of YOLO v5
//	suppress.go    non-maximum suppression
//	output.go      the output tensors
//
// A NaN score is ignored. A box is dropped if a coordinate or its best score is NaN or infinite.
// A box whose right edge is left of its left edge has no area and overlaps nothing.
package detect
