// Package spans holds the steps that turn a model's numbers per token into passages of the text they were made from:
// "token_spans", named entities and other labels of tokens, and "answer_spans", the answers of an extractive
// question answering model. Their rules are those of Hugging Face's pipelines of the same purpose; the gold files of
// testdata hold what those answer.
//
//	token_factory.go, answer_factory.go  what the steps declare
//	token_step.go, token_group.go        labels of tokens, words, and their grouping
//	answer_step.go, answer_search.go     the likeliest pairs of a start and an end
//	input.go                             the inputs that both have, checked, and one row of them
//	place.go                             offsets to bytes of the text, and back to positions
//	output.go, json.go                   the passages found, as tensors or as JSON
package spans
