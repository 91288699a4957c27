package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/client"
)

// TestFrontDoorExample sends requests to the text example: embeddings are those of the v2 protocol to the last bit, usage is the number of
// tokens that the tokenizer has, and a text about the query is first in the ranking.
// shows: front-doors.embeddings front-doors.rerank front-doors.tei
func TestFrontDoorExample(t *testing.T) {
	t.Parallel()
	requireRuntime(t)
	requireText(t)
	d := &doors{addresses: serve(t, "--model-repository="+filepath.Join(examplesDir, "text")), t: t}
	texts := []string{"A kitten is asleep.", "Die Bank erhöht den Zins.", "x"}
	quoted, _ := json.Marshal(texts) // strings
	read := func(path, body string, into any) {
		t.Helper()
		if code, _, text := d.send(path, body); code != http.StatusOK || json.Unmarshal([]byte(text), into) != nil {
			t.Fatalf("%s: %d %.300s", path, code, text)
		}
	}

	c := client.NewHTTP("http://"+d.http, nil)
	t.Cleanup(func() { _ = c.Close() })
	resp, err := c.Infer(t.Context(), &client.Request{Model: "ensemble", Inputs: []client.Tensor{client.Text("TEXT", []int64{3, 1}, texts...)}})
	if err != nil {
		t.Fatal(err)
	}
	want, err := client.Values[float32](resp.Output("embedding"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Data []struct {
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
		Usage struct {
			Tokens int `json:"prompt_tokens"`
		} `json:"usage"`
	}
	read("/v1/embeddings", `{"model":"ensemble","input":`+string(quoted)+`}`, &got)
	var embedded [][]float32
	read("/embed", `{"inputs":`+string(quoted)+`}`, &embedded)
	for i := range texts {
		if row := fmt.Sprint(want[i*384 : (i+1)*384]); fmt.Sprint(got.Data[i].Embedding) != row || fmt.Sprint(embedded[i]) != row {
			t.Errorf("text %d has other embeddings than by the v2 protocol", i)
		}
	}

	var tokens [][]struct {
		ID      int    `json:"id"`
		Text    string `json:"text"`
		Special bool   `json:"special"`
		Start   *int   `json:"start"`
		Stop    *int   `json:"stop"`
	}
	read("/tokenize", `{"inputs":`+string(quoted)+`}`, &tokens)
	n := 0
	for i, list := range tokens {
		n += len(list)
		if len(list) < 3 || !list[0].Special || list[0].ID != 101 || list[0].Start != nil || list[len(list)-1].ID != 102 {
			t.Errorf("text %d has the tokens %+v", i, list)
		}
		for _, one := range list[1 : len(list)-1] {
			if one.Special || one.Start == nil || string([]rune(texts[i])[*one.Start:*one.Stop]) != one.Text {
				t.Errorf("text %d has the token %+v", i, one)
			}
		}
	}
	if got.Usage.Tokens != n || n != 21 {
		t.Errorf("%d tokens used, and the texts have %d, want 21", got.Usage.Tokens, n)
	}
	read("/tokenize", `{"inputs":"x","add_special_tokens":false}`, &tokens)
	if len(tokens) != 1 || len(tokens[0]) != 1 || tokens[0][0].Text != "x" {
		t.Errorf("without special tokens: %+v", tokens)
	}

	var ranked []struct {
		Index int     `json:"index"`
		Score float64 `json:"score"`
	}
	read("/rerank", `{"query":"interest rates","texts":["A cat sleeps.","The central bank raised its rates.","Bread rises."]}`, &ranked)
	if len(ranked) != 3 || ranked[0].Index != 1 || ranked[0].Score <= ranked[1].Score || ranked[1].Score < ranked[2].Score {
		t.Errorf("the ranking is %v", ranked)
	}
	long := strings.Repeat("word ", 300)
	if code, _, text := d.send("/v1/embeddings", `{"input":"`+long+`"}`); code != 400 || !strings.Contains(text, "has 302 tokens, and model 'ensemble' reads at most 256") {
		t.Errorf("a long text: %d %s", code, text)
	}
}
