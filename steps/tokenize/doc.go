// Package tokenize holds the steps "tokenize" (text to token ids) and "detokenize" (token ids to text). The work is done by
// the engine in internal/tokenizer; the steps read its file and options, spread the rows of a batch over processors and
// write the outputs.
//
// For example, with a BERT vocabulary the text "Hello worlds!" becomes input_ids [101, 7592, 8484, 999, 102],
// attention_mask [1, 1, 1, 1, 1] and token_type_ids [0, 0, 0, 0, 0]. A shorter text of the same batch gets padding ids with a
// mask of 0.
package tokenize
