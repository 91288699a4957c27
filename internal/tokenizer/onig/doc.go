// Package onig matches the regular expressions of tokenizer files as Oniguruma does, the engine of the reference
// library: alternatives and repeats by preference, look-arounds, atomic groups and Oniguruma's Unicode classes, without
// captures.
//
// For example, `\s+(?!\S)|\s+` finds " " and " " in "a  b": the first alternative leaves one space for the next word.
//
// Compile parses a pattern (parse.go, class.go) into a program for a small machine (compile.go). Matches runs it by backtracking
// (match.go). After many steps it remembers the branches that failed, so that time stays linear in the length of the text. A
// construct that the package does not support, such as a back reference, is an error with its name and position. The classes are
// those of package charclass. Decision 019 says why this is not a library.
package onig
