// Package spans holds the steps that turn scores per token into passages of the text: "token_spans" for token classifiers, such as
// named entity recognition, and "answer_spans" for extractive question answering. For example, the labels B-PER and I-PER on the
// tokens "An" and "##na" become the passage "Anna" with label PER, start 0 and end 4.
//
// The rules are those of Hugging Face's pipelines for the same tasks; testdata has the results of those as gold files.
//
//	token_factory.go, answer_factory.go  parameters and ports of the steps
//	token_step.go, token_group.go        labels of tokens, words, and their grouping
//	answer_step.go, answer_search.go     the most probable pairs of a start and an end
//	input.go                             the inputs that both share: checks, and one row
//	place.go                             offsets to bytes of the text, and back to positions
//	output.go, json.go                   the passages as tensors or as JSON
package spans
