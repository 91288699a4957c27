// Package stringop holds the step "string", which works on BYTES tensors element by element or row by row: letter case, white
// space, regular expressions, joining, splitting, templates and base64. For example, op "replace" with the pattern
// "([0-9]+)-([0-9]+)" and "$2/$1" turns "05-01" into "01/05".
//
// Expressions are those of package regexp (RE2), so that no pattern takes more than linear time.
package stringop
