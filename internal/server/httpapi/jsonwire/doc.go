// Package jsonwire reads and writes JSON as Triton's HTTP API does, that is, as RapidJSON does: with its leniencies (NaN,
// Infinity, a NUL byte as the end), its error texts and offsets, and its form of numbers.
//
//   - parser.go: Parser, which walks a document in place; number.go, string.go: its values; walk.go: nested arrays
//   - fields.go: values with Triton's errors for a wrong type
//   - float.go: printing of numbers; strings are printed by package jsontext
//
// Decision record 021 has the reasons for a parser of this project.
package jsonwire
