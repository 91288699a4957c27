// Package stringop holds the step "string", which works on BYTES tensors element by
// element or row by row: case, space, regular expressions (RE2, so that no pattern
// takes more than linear time), joining, splitting, templates and base64.
package stringop
