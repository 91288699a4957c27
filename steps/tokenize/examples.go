package tokenize

import "github.com/tutti-server/tutti/steps"

// exampleVocabulary is the vocab.txt of the examples.
const exampleVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nhello\nworld\n##s\n!\nhow\nare\nyou\n"

// tokenizeExamples returns the examples of the step "tokenize".
func tokenizeExamples() []steps.Example {
	files := map[string][]byte{"vocab.txt": []byte(exampleVocabulary)}
	return []steps.Example{
		{
			Config: `max_batch_size: 8
parameters { key: "step" value { string_value: "tokenize" } }
parameters { key: "tokenizer_file" value { string_value: "vocab.txt" } }`,
			Files:   files,
			Request: `{"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [2, 1], "data": ["Hello worlds!", "How are you"]}]}`,
		},
		{
			Config: `output { name: "input_ids" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "offset_mapping" data_type: TYPE_INT64 dims: [ -1, 2 ] }
output { name: "word_ids" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "sequence_ids" data_type: TYPE_INT64 dims: [ -1 ] }
output { name: "special_tokens_mask" data_type: TYPE_INT64 dims: [ -1 ] }
parameters { key: "step" value { string_value: "tokenize" } }
parameters { key: "tokenizer_file" value { string_value: "vocab.txt" } }`,
			Files: files,
			Request: `{"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1], "data": ["how"]}, ` +
				`{"name": "TEXT_PAIR", "datatype": "BYTES", "shape": [1], "data": ["Héllo worlds"]}]}`,
		},
		{
			Config: `max_batch_size: 8
parameters { key: "step" value { string_value: "tokenize" } }
parameters { key: "tokenizer_file" value { string_value: "vocab.txt" } }
parameters { key: "max_length" value { string_value: "6" } }
parameters { key: "truncate" value { string_value: "only_second" } }
parameters { key: "stride" value { string_value: "1" } }
parameters { key: "return_overflowing_tokens" value { string_value: "true" } }`,
			Files: files,
			Request: `{"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["how"]}, ` +
				`{"name": "TEXT_PAIR", "datatype": "BYTES", "shape": [1, 1], "data": ["Hello world how are you"]}]}`,
		},
	}
}

// detokenizeExamples returns the example of the step "detokenize".
func detokenizeExamples() []steps.Example {
	return []steps.Example{{
		Config: `parameters { key: "step" value { string_value: "detokenize" } }
parameters { key: "tokenizer_file" value { string_value: "vocab.txt" } }`,
		Files:   map[string][]byte{"vocab.txt": []byte(exampleVocabulary)},
		Request: `{"inputs": [{"name": "ids", "datatype": "INT64", "shape": [6], "data": [2, 4, 5, 6, 7, 3]}]}`,
	}}
}
