// Package tokenize turns text into the ids that a language model reads, and ids back into text. It is a pure-Go engine
// for the Hugging Face tokenizer.json format with the steps "tokenize" (step.go, lot.go) and "detokenize" (detok_*.go) on
// top of it.
//
// A text passes five stages, each behind a small interface, so that a further kind is one more file:
//
//	added tokens (added.go)            -> pieces, some of them already tokens
//	normalizer (bertnorm.go, passes.go, forms.go, precompiled.go) -> normalized bytes, each with its source range
//	pre-tokenizer (bertpre.go, pretok.go, llamapre.go, split.go)  -> words
//	model (wordpiece.go, bpe*.go, unigram.go) -> tokens
//	truncation, template, trims, padding (truncate.go, template.go, trim.go, pad.go) -> an Encoding
//
// What truncation cuts off follows as further Encodings, the windows of a text, which the step makes rows of (windows.go).
//
// Source ranges are kept only where offsets are asked for or a pre-tokenizer needs them. Decoders (decode*.go) go the
// other way. load*.go read the file and refuse every component they do not know by name; vocabfile.go, spmodel.go,
// spread.go, tiktoken.go and tekken.go make the same Definition of other formats; sentence.go has the scores of
// sentencepiece.
//
// The results equal those of the reference library, PyPI tokenizers 0.23.3, and for the other formats those of PyPI
// sentencepiece 0.2.3, tiktoken 0.14.0 and mistral-common 1.13.1; testdata holds their answers and the scripts that made
// them. The Unicode classes are the reference's own (*_tables.go), which differ from Go's and from part to part; regular
// expressions are those of package onig, except for the well-known ones, which are matched by hand.
//
// Time is linear in the text for every input, and an Encoding that is used again allocates nothing once the memory of
// words (cache.go), which is bounded, has filled.
package tokenize
