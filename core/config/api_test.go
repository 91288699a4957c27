package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
)

const apiModel = `name: "m" backend: "x" max_batch_size: 8
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [
  { name: "embedding" data_type: TYPE_FP32 dims: [ 4 ] },
  { name: "vectors" data_type: TYPE_FP32 dims: [ -1, 4 ] },
  { name: "count" data_type: TYPE_INT64 dims: [ 1 ] },
  { name: "score" data_type: TYPE_FP32 dims: [ 1 ] }
]
`

const twoTexts = `name: "m" backend: "x" max_batch_size: 8
input [ { name: "Q" data_type: TYPE_STRING dims: [ 1 ] }, { name: "D" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "s" data_type: TYPE_FP32 dims: [ 1 ] } ]
`

func apiParam(key, value string) string {
	return `parameters { key: "` + key + `" value { string_value: "` + value + `" } }`
}

// TestAPIs checks the tensors that the parameters of routes name and infer.
// shows: front-doors.parameters
func TestAPIs(t *testing.T) {
	t.Parallel()
	cfg := parse(t, apiModel+apiParam("api.embeddings", "dense=embedding multi_vector=vectors tokens=count max_tokens=256 too_long=truncate dimensions=2,3 names=a/b,c default"))
	got, list := config.APIsOf(cfg)
	if len(list) > 0 {
		t.Fatal(list[0].Reason)
	}
	want := config.APIs{Embeddings: &config.API{
		Param: "api.embeddings", Text: "TEXT", Dense: "embedding", MultiVector: "vectors", Tokens: "count", MaxTokens: 256, Truncate: true,
		Dimensions: []int{2, 3}, Names: []string{"a/b", "c"}, Default: true,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, list = config.APIsOf(parse(t, twoTexts+apiParam("api.rerank", "text=D scores=logits")))
	if len(list) > 0 {
		t.Fatal(list[0].Reason)
	}
	want = config.APIs{Rerank: &config.API{Param: "api.rerank", Query: "Q", Text: "D", Score: "s", Sigmoid: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAPIFaults checks the errors of values that are wrong: the text, the place and the advice.
// shows: front-doors.parameters
func TestAPIFaults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ model, key, value, want string }{
		"key":       {apiModel, "api.embeddings", "dens=embedding", `has the key "dens", expected one of text, ids, dense, multi_vector, tokens, mask, sparse, max_tokens, too_long, dimensions, names, default. Did you mean "dense"?`},
		"twice":     {apiModel, "api.embeddings", "dense=embedding dense=score", "has the key 'dense' twice, expected it once"},
		"no value":  {apiModel, "api.embeddings", "dense=", "has the key 'dense' without a value, expected dense=VALUE"},
		"names":     {apiModel, "api.embeddings", "dense=embedding names=a,,b", `has names="a,,b", expected names that are separated by commas`},
		"too long":  {apiModel, "api.embeddings", "dense=embedding tokens=count max_tokens=5 too_long=cut", `has too_long="cut", expected refuse (the default) or truncate`},
		"any long":  {apiModel, "api.embeddings", "dense=embedding too_long=truncate", "has too_long=truncate and no max_tokens, expected max_tokens=N, the number that the model cuts texts to"},
		"number":    {apiModel, "api.embeddings", "dense=embedding max_tokens=many", `has max_tokens="many", expected a number of at least 1`},
		"zero":      {apiModel, "api.embeddings", "dense=embedding dimensions=0", `has dimensions="0", expected a number of at least 1`},
		"scores":    {twoTexts, "api.rerank", "scores=best", "has scores=best, expected final (the default) or logits, of which clients get the sigmoid"},
		"default":   {apiModel, "api.embeddings", "dense=embedding default=maybe", "has default=maybe, expected true or false"},
		"sparse":    {apiModel, "api.embeddings", "sparse=a,b,c", "has sparse=a,b,c, expected an output of weights, or INDICES,WEIGHTS"},
		"no tensor": {apiModel, "api.embeddings", "dense=embeding", `has dense=embeding, expected an output of the model: embedding, vectors, count, score. Did you mean "embedding"?`},
		"type":      {apiModel, "api.embeddings", "dense=count", "has dense=count, which is TYPE_INT64, expected TYPE_FP32"},
		"dims":      {apiModel, "api.embeddings", "dense=vectors", "has dense=vectors with dims [-1,4], expected 1 dims"},
		"ambiguous": {apiModel, "api.embeddings", "", "has no dense, expected one of the outputs embedding, score"},
		"none":      {apiModel, "api.completions", "", "has no completion, and the model has no output of type TYPE_STRING that could be it"},
		"two texts": {twoTexts, "api.rerank", "", "has no query, expected one of the inputs Q, D"},
		"left out":  {twoTexts, "api.tokenize", "text=Q", "has no ids, and the model has no output of type TYPE_INT64 or TYPE_INT32 that could be it"},
		"unset":     {strings.ReplaceAll(twoTexts, "dims: [ 1 ] } ]\n", "dims: [ 4 ] } ]\n"), "api.embeddings", "text=Q", "leaves out the input 'D', expected a model that needs a text only: give it a constant, or make it optional"},
		"no count":  {apiModel, "api.embeddings", "dense=embedding max_tokens=5", "has max_tokens and no count of tokens, expected tokens=OUTPUT, an output of the number of tokens before truncation"},
		"decoupled": {apiModel + "model_transaction_policy { decoupled: true }\n", "api.embeddings", "dense=embedding", "is set for a decoupled model, expected one with a response per request"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := tt.model + apiParam(tt.key, tt.value)
			_, list := config.APIsOf(parse(t, text))
			if len(list) == 0 {
				t.Fatal("no fault")
			}
			config.NewPositions("m/config.pbtxt", []byte(text)).Locate(list)
			d := list[0]
			if want := "parameter '" + tt.key + "' of model 'm' " + tt.want; d.Reason != want || d.Code != config.BadParam || d.Err() == nil {
				t.Errorf("%s %s\nwant %s", d.Code, d.Reason, want)
			}
			if line := strings.Count(tt.model, "\n") + 1; d.Line != line || d.Fix != "correct the value: docs/openai.md lists the keys of every parameter" {
				t.Errorf("line %d, fix %q; want line %d", d.Line, d.Fix, line)
			}
		})
	}
}
