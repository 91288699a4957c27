package main

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
)

// TestFrontDoorEmbeddings sends requests to /v1/embeddings: what the routes of OpenAI have, and every wrong member.
// shows: front-doors.embeddings
func TestFrontDoorEmbeddings(t *testing.T) {
	t.Parallel()
	d := serveTexts(t)
	const path = "/v1/embeddings"
	list := func(tokens int, items ...string) string {
		for i := range items {
			items[i] = fmt.Sprintf(`{"object":"embedding","index":%d,%s}`, i, items[i])
		}
		return fmt.Sprintf(`{"object":"list","data":[%s],"model":"all","usage":{"prompt_tokens":%d,"total_tokens":%d}}`, strings.Join(items, ","), tokens, tokens)
	}
	const one, two = `"embedding":[1,2,0,1]`, `"embedding":[2,3,7,1]`
	d.check([]doorRequest{
		{"a text", path, `{"input":"hi","model":"all"}`, 200, list(1, one)},
		{"texts", path, `{"input":["hi","a 7"],"model":"all","user":"u","encoding_format":"float"}`, 200, list(3, one, two)},
		{"a version", path, `{"input":"hi","model":"all:1"}`, 200, list(1, one)},
		{"the default model", path, `{"input":"hi"}`, 200, list(1, one)},
		{"nulls", path, `{"input":"hi","model":null,"dimensions":null,"encoding_format":null,"item_errors":null,"embedding_types":null}`, 200, list(1, one)},
		{"escapes", path, `{"input":"\u00e4 7"}`, 200, list(2, `"embedding":[2,4,7,1]`)},
		{"the last of equal members", path, `{"input":"other","input":"hi"}`, 200, list(1, one)},
		{"dimensions", path, `{"input":"a 7","dimensions":2}`, 200, list(2, `"embedding":[0.5547002,0.8320503]`)},
		{
			"all kinds", path, `{"input":["hi","a 7"],"embedding_types":["dense","sparse","multi_vector"]}`, 200, list(3,
				one+`,"sparse_embedding":{"indices":[2],"values":[1]},"multi_vector_embedding":[[2,1]]`,
				two+`,"sparse_embedding":{"indices":[1],"values":[2]},"multi_vector_embedding":[[1,1],[1,1]]`),
		},
		{"one kind", path, `{"input":"hi","embedding_types":["sparse"]}`, 200, list(1, `"sparse_embedding":{"indices":[2],"values":[1]}`)},
		{"token ids", path, `{"input":[5,7],"model":"ids"}`, 200, `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[2,3,7,1]}],"model":"ids","usage":{"prompt_tokens":0,"total_tokens":0}}`},
		{
			"lists of token ids", path, `{"input":[[5,7],[1],[2]],"model":"ids"}`, 200,
			`{"object":"list","data":[{"object":"embedding","index":0,"embedding":[2,3,7,1]},{"object":"embedding","index":1,"embedding":[1,1,1,1]},{"object":"embedding","index":2,"embedding":[1,1,2,1]}],"model":"ids","usage":{"prompt_tokens":0,"total_tokens":0}}`,
		},

		{"no body", path, ` `, 400, openAIError("the body is no valid JSON: The document is empty. at 1", "", "")},
		{"truncated", path, `{"input":"a`, 400, openAIError("the body is no valid JSON: Missing a closing quotation mark in string. at 11", "", "")},
		{"no object", path, `[1]`, 400, openAIError("the body is a list, expected an object", "", "")},
		{"no input", path, `{"model":"all"}`, 400, openAIError("'input' is missing or empty, expected at least one text", "input", "empty_input")},
		{"no texts", path, `{"input":[]}`, 400, openAIError("'input' is missing or empty, expected at least one text", "input", "empty_input")},
		{"an empty text", path, `{"input":["a",""]}`, 400, openAIError("'input' has an empty text at index 1, expected one that is not empty", "input", "empty_input")},
		{"a number", path, `{"input":1}`, 400, openAIError("'input' is a number, expected a string, or a list of strings", "input", "")},
		{"an object", path, `{"input":[{}]}`, 400, openAIError("'input' is an object, expected a string, a list of strings, or token ids", "input", "")},
		{"mixed", path, `{"input":["a",[1]]}`, 400, openAIError("'input' has texts and token ids, expected one kind", "input", "")},
		{"nested", path, `{"input":[[["a"]]]}`, 400, openAIError("'input' has a list that is not of token ids, expected texts or lists of token ids", "input", "")},
		{"a fraction", path, `{"input":[1.5],"model":"ids"}`, 400, openAIError("'input' has the token id 1.5, expected an integer from 0 to 2147483647", "input", "")},
		{"a negative id", path, `{"input":[[1],[-1]],"model":"ids"}`, 400, openAIError("'input' has the token id -1, expected an integer from 0 to 2147483647", "input", "")},
		{"a large id", path, `{"input":[2147483648],"model":"ids"}`, 400, openAIError("'input' has the token id 2147483648, expected an integer from 0 to 2147483647", "input", "")},
		{"texts for ids", path, `{"input":"a","model":"ids"}`, 400, openAIError("'input' has texts, and model 'ids' takes token ids only", "input", "")},
		{
			"ids for texts", path, `{"input":[1,2]}`, 400,
			openAIError("'input' has token ids, which model 'all' does not take, expected texts. Clients that count tokens themselves have an option against it, for example check_embedding_ctx_length=False of langchain", "input", ""),
		},
		{"a format", path, `{"input":"a","encoding_format":"hex"}`, 400, openAIError("'encoding_format' is 'hex', expected float or base64", "encoding_format", "")},
		{"a kind", path, `{"input":"a","embedding_types":["int8"]}`, 400, openAIError("'embedding_types' has 'int8', expected dense, sparse or multi_vector", "embedding_types", "")},
		{"kinds", path, `{"input":"a","embedding_types":"dense"}`, 400, openAIError("'embedding_types' is a string, expected a list of dense, sparse and multi_vector", "embedding_types", "")},
		{"a kind that lacks", path, `{"input":[1],"model":"ids","embedding_types":["sparse"]}`, 400, openAIError("model 'ids' has no sparse embeddings: its parameter 'api.embeddings' names no output of them", "embedding_types", "")},
		{"other dimensions", path, `{"input":"a","dimensions":4}`, 400, openAIError("'dimensions' is 4, expected one of [2 3] for model 'all'", "dimensions", "")},
		{"fixed dimensions", path, `{"input":[1],"model":"ids","dimensions":2}`, 400, openAIError("'dimensions' is 2, and model 'ids' does not permit to cut its embeddings: leave it out", "dimensions", "")},
		{"no dimensions", path, `{"input":"a","dimensions":0}`, 400, openAIError("'dimensions' is 0, expected a number of at least 1", "dimensions", "")},
		{"dimensions as text", path, `{"input":"a","dimensions":"2"}`, 400, openAIError("'dimensions' is a string, expected a number of at least 1", "dimensions", "")},
		{"an unknown model", path, `{"input":"a","model":"nope"}`, 404, openAIError("The model 'nope' does not exist: Request for unknown model: 'nope' is not found", "model", "model_not_found")},
		{"an unknown version", path, `{"input":"a","model":"all:7"}`, 404, openAIError("The model 'all:7' does not exist: Request for unknown model: 'all' version 7 is not found", "model", "model_not_found")},
		{"a model without the parameter", path, `{"input":"a","model":"plain"}`, 400, openAIError("model 'plain' has no parameter 'api.embeddings', expected one of the models that have it: all, cut, ids, one, short, weights", "model", "")},
		{"a model as number", path, `{"input":"a","model":1}`, 400, openAIError("'model' is a number, expected a string", "model", "")},
		{"too long", path, `{"input":["a","1 2 3 4 5 6 7"]}`, 400, openAIError("the text at index 1 of 'input' has 7 tokens, and model 'all' reads at most 6: shorten it", "input", "context_length_exceeded")},
	})
	d.check([]doorRequest{
		{"models", "/v1/models/all:1", "", 200, d.model("all:1")},
		{"no model", "/v1/models/a/b", "", 404, openAIError("The model 'a/b' does not exist: Request for unknown model: 'a/b' is not found", "model", "model_not_found")},
	})
}

// TestFrontDoorNames asks for models by their further names, and sends texts that are too long to one that cuts them.
// shows: front-doors.embeddings front-doors.tei
func TestFrontDoorNames(t *testing.T) {
	t.Parallel()
	d := serveTexts(t)
	embedded := func(model string) string {
		return `{"object":"list","data":[{"object":"embedding","index":0,"embedding":[3,5,3,1]}],"model":"` + model + `","usage":{"prompt_tokens":2,"total_tokens":2}}`
	}
	for _, path := range []string{"/v1/embeddings", "/embeddings"} {
		d.check([]doorRequest{
			{"a name", path, `{"input":"1 2 3","model":"org/cut"}`, 200, embedded("cut")},
			{"a model's own name", path, `{"input":"1 2 3","model":"cut"}`, 200, embedded("cut")},
			{"of two models", path, `{"input":"1","model":"both"}`, 400, openAIError("'both' is a name of the models 'cut' and 'short' in their parameters 'api.embeddings', expected one", "model", "")},
			{
				"of another model", path, `{"input":"1","model":"plain"}`, 400,
				openAIError("model 'plain' has no parameter 'api.embeddings', expected one of the models that have it: all, cut, ids, one, short, weights", "model", ""),
			},
			{"refused", path, `{"input":"1 2 3","model":"short"}`, 400, openAIError("the text at index 0 of 'input' has 3 tokens, and model 'short' reads at most 2: shorten it", "input", "context_length_exceeded")},
			{"with a version", path, `{"input":"1","model":"org/cut:1"}`, 404, openAIError("The model 'org/cut:1' does not exist: Request for unknown model: 'org/cut' is not found", "model", "model_not_found")},
		})
	}
	d.check([]doorRequest{{"listed", "/v1/models/org/cut", "", 200, d.model("org/cut")}})
	d = serveTexts(t, "--model-control-mode=explicit", "--load-model=cut")
	d.check([]doorRequest{
		{"by default", "/embed", `{"inputs":"1 2 3","normalize":false}`, 200, `[[3,5,3,1]]`},
		{"null", "/embed", `{"inputs":"1 2 3","normalize":false,"truncate":null}`, 200, `[[3,5,3,1]]`},
		{"as asked for", "/embed", `{"inputs":"1 2 3","truncate":false}`, 413, teiError("the text at index 0 of 'inputs' has 3 tokens, and model 'cut' reads at most 2: shorten it", "Validation")},
	})
	if _, _, info := d.send("/info", ""); !strings.Contains(info, `"auto_truncate":true`) {
		t.Errorf("/info: %s", info)
	}
}

// TestFrontDoorAmbiguous checks requests that name no model, where several have the parameter and where none has.
// shows: front-doors.embeddings front-doors.tei
func TestFrontDoorAmbiguous(t *testing.T) {
	t.Parallel()
	const several = "the request names no model and several have 'api.embeddings', expected the member 'model' or the word 'default' in the parameter of one: ids, one"
	d := serveTexts(t, "--model-control-mode=explicit", "--load-model=ids", "--load-model=one")
	d.check([]doorRequest{
		{"openai", "/v1/embeddings", `{"input":"a"}`, 400, openAIError(several, "model", "")},
		{"tei", "/embed", `{"inputs":"a"}`, 422, teiError(several, "Validation")},
		{"info", "/info", "", 422, teiError(several, "Validation")},
		{"none", "/v1/rerank", `{"query":"a","documents":["a"]}`, 404, openAIError("no model of this server has the parameter 'api.rerank', which makes this route serve it", "", "")},
	})
}

// model returns the object of a model, whose time is that of the server.
func (d *doors) model(name string) string {
	var got struct {
		Data []struct {
			ID      string `json:"id"`
			Created int64  `json:"created"`
		} `json:"data"`
	}
	_, _, text := d.send("/v1/models", "")
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Data) != 10 || got.Data[0].ID != "all" {
		d.t.Fatalf("%v: %s", err, text)
	}
	return fmt.Sprintf(`{"id":%q,"object":"model","created":%d,"owned_by":"tutti"}`, name, got.Data[0].Created)
}

// TestFrontDoorBase64 compares the two formats of embeddings, and a compressed response.
// shows: front-doors.embeddings
func TestFrontDoorBase64(t *testing.T) {
	t.Parallel()
	d := serveTexts(t)
	var got struct {
		Data []struct {
			Embedding string   `json:"embedding"`
			Vectors   []string `json:"multi_vector_embedding"`
		} `json:"data"`
	}
	code, _, text := d.send("/v1/embeddings", `{"input":["a 0.1"],"encoding_format":"base64","embedding_types":["dense","multi_vector"]}`, "Accept-Encoding", "identity")
	if err := json.Unmarshal([]byte(text), &got); code != http.StatusOK || err != nil || len(got.Data) != 1 || len(got.Data[0].Vectors) != 2 {
		t.Fatalf("%v: %d %s", err, code, text)
	}
	for i, want := range map[int][]float32{0: {2, 5, 0.1, 1}, 1: {3, 1}} {
		b, err := base64.StdEncoding.DecodeString([]string{got.Data[0].Embedding, got.Data[0].Vectors[1]}[i])
		if err != nil || len(b) != 4*len(want) {
			t.Fatalf("%v: %d bytes, want %d", err, len(b), 4*len(want))
		}
		for n, f := range want {
			if v := math.Float32frombits(binary.LittleEndian.Uint32(b[4*n:])); v != f {
				t.Errorf("element %d is %v, want %v", n, v, f)
			}
		}
	}
	if _, _, plain := d.send("/v1/embeddings", `{"input":["a 0.1"],"encoding_format":"base64","embedding_types":["dense","multi_vector"]}`); plain != text {
		t.Errorf("compressed: %s, want %s", plain, text)
	}
}

// TestFrontDoorBulk sends ten thousand texts, which become batches, and texts that fail alone.
// shows: front-doors.bulk
func TestFrontDoorBulk(t *testing.T) {
	t.Parallel()
	d := serveTexts(t)
	const n = 10_000
	body := []byte(`{"input":[`)
	for i := range n {
		body = fmt.Appendf(body, `"text %d",`, i)
	}
	type result struct {
		Data []struct {
			Object    string    `json:"object"`
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
			Error     struct {
				Message string `json:"message"`
				Param   string `json:"param"`
				Code    string `json:"code"`
				Step    string `json:"step"`
			} `json:"error"`
		} `json:"data"`
		Usage struct {
			Tokens int `json:"prompt_tokens"`
		} `json:"usage"`
	}
	read := func(body string) (r result) {
		code, _, text := d.send("/v1/embeddings", body)
		if err := json.Unmarshal([]byte(text), &r); err != nil || code != http.StatusOK {
			t.Fatalf("%v: %d %.1000s", err, code, text)
		}
		return r
	}
	all := read(strings.TrimSuffix(string(body), ",") + "]}")
	if len(all.Data) != n || all.Usage.Tokens != 2*n {
		t.Fatalf("%d embeddings, %d tokens, want %d and %d", len(all.Data), all.Usage.Tokens, n, 2*n)
	}
	for i, e := range all.Data {
		if e.Index != i || len(e.Embedding) != 4 || e.Embedding[2] != float32(i) {
			t.Fatalf("text %d has %v", i, e)
		}
	}

	const some = `{"input":["a 0","a 1","poison","a 3","","nan","1 2 3 4 5 6 7","a 7","a 8"]`
	one := read(some + `,"item_errors":true}`)
	wrong := map[int]string{
		2: "in ensemble 'all', the batch has a poisoned text|||step", 4: "'input' has an empty text at index 4, expected one that is not empty|input|empty_input|",
		5: "model 'all' has sent NaN or an infinity in output 'dense', which JSON has no form for|||",
		6: "the text at index 6 of 'input' has 7 tokens, and model 'all' reads at most 6: shorten it|input|context_length_exceeded|",
	}
	for i, e := range one.Data {
		got := strings.Join([]string{e.Error.Message, e.Error.Param, e.Error.Code, e.Error.Step}, "|")
		switch want, fails := wrong[i]; {
		case fails && (e.Object != "error" || got != want):
			t.Errorf("text %d has %+v, want %s", i, e, want)
		case !fails && (e.Object != "embedding" || e.Index != i || e.Embedding[2] != float32(i)):
			t.Errorf("text %d has %+v", i, e)
		}
	}
	if len(one.Data) != 9 {
		t.Errorf("%d items", len(one.Data))
	}
	for body, want := range map[string]int{
		`{"input":["a","poison","b"]}`: 500, `{"input":["a","nan"]}`: 500, `{"input":["1","2","3","4","5","poison"]}`: 500,
	} {
		if code, h, text := d.send("/v1/embeddings", body); code != want || !strings.Contains(text, `"type":"server_error"`) || h.Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s, want %d", body, code, text, want)
		}
	}
}
