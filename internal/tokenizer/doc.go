// Package tokenizer turns text into the token ids that a language model reads, and ids back into text. It reads the Hugging
// Face tokenizer.json format and four others, and gives the results of the libraries that define them.
//
// A text passes a pipeline of five stages. For example, "Héllo tokenizers!" with the WordPiece tokenizer of BERT:
//
//	added tokens    find [MASK] and the like in the source       "Héllo tokenizers!"
//	normalizer      clean, decompose, strip accents, lower case  "hello tokenizers!"
//	pre-tokenizer   cut into words                               "hello", "tokenizers", "!"
//	model           cut words into entries of the vocabulary     hello, token, ##izer, ##s, !
//	post-processor  truncate, add special tokens, pad            101 7592 19204 17629 2015 999 102
//
// Stages of each kind, and where their algorithms come from:
//
//   - Normalizers: BertNormalizer in one pass (bert_*.go); Unicode normalization forms (unicode_forms.go, UAX #15); the compiled
//     character maps of sentencepiece (precompiled.go, a double-array trie of darts-clone); others (normalizers.go).
//   - Pre-tokenizers: BertPreTokenizer, Metaspace, ByteLevel (bert_pretokenizer.go, pretokenizers.go) and Split by a regular expression
//     (split.go). Package onig matches the expressions; those of GPT-2, Llama 3 and Qwen are matched by hand (pattern_llama.go).
//   - Models: WordPiece, the longest match from the left (wordpiece.go); BPE, byte pair encoding of Sennrich et al. 2016
//     (bpe*.go); Unigram of Kudo 2018, by the Viterbi algorithm (unigram.go); WordLevel. Vocabularies are double-array tries
//     (trie.go, Aoe 1989).
//   - Post-processors: templates of special tokens (template.go), truncation into windows (truncate.go), padding (pad.go),
//     offsets without white space (trim_offsets.go).
//   - Decoders turn tokens into text (decode*.go).
//
// load*.go read a tokenizer.json. A component or option that this package does not know is an error with its name, never a
// different result. The readers of other formats (vocab_files.go, sentencepiece*.go, tiktoken.go, tekken.go) make the same
// [Definition].
//
// The results equal those of PyPI tokenizers 0.23.3, sentencepiece 0.2.3, tiktoken 0.14.0 and mistral-common 1.13.1. Files in
// testdata hold their answers and the scripts that wrote them. The Unicode classes are those of the libraries (package
// charclass): they differ from Go's, and from stage to stage.
//
// Time is linear in the length of the text for every input. A [Tokenizer] is safe for concurrent use; an [Encoding] and a
// [Decoding] serve one goroutine at a time and allocate nothing once their memory and the cache of words (cache.go, bounded)
// have grown.
package tokenizer
