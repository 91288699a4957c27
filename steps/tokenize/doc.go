// Package tokenize turns text into the ids that a language model reads. It is a pure-Go engine for the Hugging
// Face tokenizer.json format and the step "tokenize" on top of it.
//
// A text passes five stages, each behind a small interface, so that a further kind is one more file:
//
//	added tokens (added.go)  -> pieces, some of them already tokens
//	normalizer (bertnorm.go) -> normalized bytes, each with its source range when offsets are wanted
//	pre-tokenizer (bertpre.go) -> words
//	model (wordpiece.go)     -> tokens
//	truncation, template, padding (truncate.go, template.go, pad.go) -> an Encoding
//
// load.go reads the file and refuses every component it does not know by name. The results equal those of the
// reference library, PyPI tokenizers 0.23.3; testdata holds its answers and the script that made them. The Unicode
// classes are the reference's own (unicode_tables.go), which differ from Go's.
//
// Time is linear in the text for every input, and an Encoding that is used again allocates nothing.
package tokenize
