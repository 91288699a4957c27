// Package onig matches the regular expressions of tokenizer files as Oniguruma does, the engine of the reference
// library: alternatives and repeats by preference, look-arounds, atomic groups and Oniguruma's Unicode classes, without
// captures.
//
// A pattern becomes a small program (parse.go, class.go, compile.go) that is matched by backtracking (match.go). When that
// takes long, failed branches are remembered, so that the time stays linear in the text. Back references and the rest of
// the syntax are refused by name. The classes are read from the reference's behaviour (tables.go, made by
// ../testdata/make_classes.py).
package onig
