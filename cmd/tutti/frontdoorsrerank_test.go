package main

import (
	"strings"
	"testing"
)

// TestFrontDoorRerank sends requests to the two routes of rerank.
// shows: front-doors.rerank
func TestFrontDoorRerank(t *testing.T) {
	t.Parallel()
	d := serveTexts(t)
	ranked := func(tokens, items string) string {
		return `{"object":"list","results":[` + items + `],"model":"pairs","usage":{"prompt_tokens":` + tokens + `,"total_tokens":` + tokens + `},"meta":{"api_version":{"version":"2"}}}`
	}
	for _, path := range []string{"/v1/rerank", "/v2/rerank"} {
		d.check([]doorRequest{
			{
				"texts", path, `{"model":"pairs","query":"a b c","documents":["x","a b",{"text":"c","id":1},"y"]}`, 200,
				ranked("5", `{"index":1,"relevance_score":2},{"index":2,"relevance_score":1},{"index":0,"relevance_score":0},{"index":3,"relevance_score":0}`),
			},
			{
				"the best with their texts", path, `{"query":"a b","documents":["x","\u00e4 \"a\"","a b","a",""],"top_n":2,"return_documents":true,"max_tokens_per_doc":4}`, 200,
				ranked("6", `{"index":2,"relevance_score":2,"document":{"text":"a b"}},{"index":3,"relevance_score":1,"document":{"text":"a"}}`),
			},
			{"too long is cut", path, `{"query":"a","documents":["1 2 3 4 5 6 7"]}`, 200, ranked("6", `{"index":0,"relevance_score":0}`)},
			{"no query", path, `{"documents":["a"]}`, 400, openAIError("'query' is missing or empty, expected a text", "query", "empty_input")},
			{"a query that is no text", path, `{"query":["a"],"documents":["a"]}`, 400, openAIError("'query' is a list, expected a string", "query", "")},
			{"no documents", path, `{"query":"a"}`, 400, openAIError("'documents' is missing or empty, expected at least one text", "documents", "empty_input")},
			{"one document", path, `{"query":"a","documents":"b"}`, 400, openAIError("'documents' is a string, expected a list of strings, or of objects with the member 'text'", "documents", "")},
			{"another object", path, `{"query":"a","documents":[{"title":"b"}]}`, 400, openAIError("'documents' has an object without the member 'text', expected a string or an object with it", "documents", "")},
			{"a number", path, `{"query":"a","documents":[1]}`, 400, openAIError("'documents' is a number, expected a string, or a list of strings", "documents", "")},
			{"no place", path, `{"query":"a","documents":["b"],"top_n":0}`, 400, openAIError("'top_n' is 0, expected a number of at least 1", "top_n", "")},
			{"another model", path, `{"query":"a","documents":["b"],"model":"all"}`, 400, openAIError("model 'all' has no parameter 'api.rerank', expected one of the models that have it: pairs", "model", "")},
		})
		if code, _, got := d.send(path, `{"query":"a","documents":["b","poison"]}`); code != 500 || !strings.Contains(got, `"type":"server_error"`) {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
}

// teiError returns the body of an error of Text Embeddings Inference.
func teiError(text, kind string) string {
	return `{"error":"` + text + `","error_type":"` + kind + `"}`
}

// TestFrontDoorTEI sends requests to the routes of Text Embeddings Inference, which name no model.
// shows: front-doors.tei
func TestFrontDoorTEI(t *testing.T) {
	t.Parallel()
	d := serveTexts(t)
	const long = `"1 2 3 4 5 6 7"`
	tooLong := func(field string) string {
		return teiError("the text at index 0 of '"+field+"' has 7 tokens, and model 'all' reads at most 6: shorten it", "Validation")
	}
	d.check([]doorRequest{
		{"embed", "/embed", `{"inputs":"a 7","normalize":false}`, 200, `[[2,3,7,1]]`},
		{"embed normal", "/embed", `{"inputs":["a 7","hi"],"truncate":false}`, 200, `[[0.2519763,0.37796447,0.8819171,0.12598816],[0.4082483,0.8164966,0,0.4082483]]`},
		{"embed cut", "/embed", `{"inputs":["a 7"],"dimensions":2,"truncation_direction":"Right","prompt_name":null}`, 200, `[[0.5547002,0.8320503]]`},
		{"embed all", "/embed_all", `{"inputs":["hi","a 7"]}`, 200, `[[[2,1]],[[1,1],[1,1]]]`},
		{"embed sparse", "/embed_sparse", `{"inputs":["hi yo","a 7 bcd"]}`, 200, `[[{"index":2,"value":2}],[{"index":1,"value":2},{"index":3,"value":1}]]`},
		{
			"rerank", "/rerank", `{"query":"a b","texts":["x","a b"],"return_text":true,"raw_scores":true}`, 200,
			`[{"index":1,"score":2,"text":"a b"},{"index":0,"score":0,"text":"x"}]`,
		},
		{"too long", "/embed", `{"inputs":` + long + `}`, 413, tooLong("inputs")},
		{"too long and cut", "/embed", `{"inputs":` + long + `,"truncate":true,"normalize":false}`, 200, `[[7,13,7,1]]`},
		{"too long a pair", "/rerank", `{"query":"a","texts":[` + long + `]}`, 413, strings.Replace(tooLong("texts"), "all", "pairs", 1)},
		{"cut on the left", "/embed", `{"inputs":"a","truncation_direction":"Left"}`, 422, teiError("'truncation_direction' is 'Left', and texts are cut on the right only: leave it out", "Validation")},
		{"a prompt", "/embed", `{"inputs":"a","prompt_name":"query"}`, 422, teiError("'prompt_name' is 'query', and models of this server have no prompts: put it in front of the text", "Validation")},
		{"no inputs", "/embed", `{}`, 400, teiError("'inputs' is missing or empty, expected at least one text", "Empty")},
		{"an empty list", "/embed_sparse", `{"inputs":[]}`, 400, teiError("'inputs' is missing or empty, expected at least one text", "Empty")},
		{"an empty text", "/embed_all", `{"inputs":""}`, 400, teiError("'inputs' has an empty text at index 0, expected one that is not empty", "Empty")},
		{"a number", "/embed", `{"inputs":1}`, 422, teiError("'inputs' is a number, expected a string, or a list of strings", "Validation")},
		{"no JSON", "/embed", `{"inputs":`, 422, teiError("the body is no valid JSON: Invalid value. at 10", "Validation")},
		{"a flag as text", "/embed", `{"inputs":"a","truncate":"yes"}`, 422, teiError("'truncate' is a string, expected a boolean", "Validation")},
		{"no texts", "/rerank", `{"query":"a","texts":[]}`, 400, teiError("'texts' is missing or empty, expected at least one text", "Empty")},
		{"texts as text", "/rerank", `{"query":"a","texts":"b"}`, 422, teiError("'texts' is a string, expected a list of strings", "Validation")},
		{"no query", "/rerank", `{"texts":["b"]}`, 400, teiError("'query' is missing or empty, expected a text", "Empty")},
		{"a dead step", "/embed", `{"inputs":["poison"]}`, 424, `{"error":"in ensemble 'all', the batch has a poisoned text","reason":"STEP_FAILED","retryable":false,"step":"step","error_type":"Backend"}`},
		{
			"no tokenizer", "/tokenize", `{"inputs":"a"}`, 404,
			teiError("no model of this server has the parameter 'api.tokenize', which makes this route serve it", "Validation"),
		},
		{
			"info", "/info", "", 200, `{"model_id":"all","model_sha":null,"model_dtype":"float32","model_type":{"embedding":{"pooling":"model"}},"max_concurrent_requests":8,"max_input_length":6,` +
				`"max_batch_tokens":24,"max_batch_requests":4,"max_client_batch_size":65536,"auto_truncate":false,"tokenization_workers":1,"version":"` + d.version() + `","sha":null,"docker_label":null}`,
		},
	})
	if code, _, got := d.send("/health", ""); code != 200 || got != "" {
		t.Errorf("health: %d %s", code, got)
	}
}

// version returns the version of the server.
func (d *doors) version() string {
	_, _, text := d.send("/v2", "")
	_, text, _ = strings.Cut(text, `"version":"`)
	version, _, _ := strings.Cut(text, `"`)
	return version
}
