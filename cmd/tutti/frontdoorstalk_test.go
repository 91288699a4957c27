package main

import (
	"bufio"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

var (
	talkID   = regexp.MustCompile(`"cmpl-[0-9a-z]+-[0-9a-z]+"`)
	talkTime = regexp.MustCompile(`"created":\d+`)
)

// talked returns a response of /v1/completions without what differs each time.
func talked(text string) string {
	return talkTime.ReplaceAllString(talkID.ReplaceAllString(text, `"ID"`), `"created":0`)
}

const talkHead = `{"id":"ID","object":"text_completion","created":0,"model":"chat","choices":[`

func talkChoice(index int, text, finish string) string {
	if finish != "null" {
		finish = `"` + finish + `"`
	}
	return fmt.Sprintf(`{"index":%d,"text":"%s","logprobs":null,"finish_reason":%s}`, index, text, finish)
}

// TestFrontDoorCompletions sends requests to /v1/completions over a decoupled ensemble, as streams and not.
// shows: front-doors.completions
func TestFrontDoorCompletions(t *testing.T) {
	t.Parallel()
	d := serveTexts(t)
	whole := func(asked, sent int, choices ...string) string {
		return talkHead + strings.Join(choices, ",") + fmt.Sprintf(`],"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, asked, sent, asked+sent)
	}
	events := func(list ...string) string { return "data: " + strings.Join(list, "\n\ndata: ") + "\n\n" }
	chunk := func(choice string) string { return talkHead + choice + "]}" }
	tests := []struct {
		name, body string
		code       int
		want       string
	}{
		{"a prompt", `{"model":"chat","prompt":"a b","max_tokens":7,"temperature":0.5,"stop":[],"seed":null,"user":"u"}`, 200, whole(2, 2, talkChoice(0, "a b ", "length"))},
		{"prompts", `{"prompt":["a","b c","silent"]}`, 200, whole(4, 4, talkChoice(0, "a ", "length"), talkChoice(1, "b c ", "length"), talkChoice(2, "silent ", "stop"))},
		{"no text", `{"prompt":""}`, 200, whole(0, 0, talkChoice(0, "", "stop"))},
		{
			"a stream", `{"prompt":"a b","stream":true}`, 200,
			events(chunk(talkChoice(0, "a ", "null")), chunk(talkChoice(0, "b ", "null")), chunk(talkChoice(0, "", "length")), "[DONE]"),
		},
		{
			"a stream with its usage", `{"prompt":"a","stream":true,"stream_options":{"include_usage":true,"other":1}}`, 200,
			strings.ReplaceAll(events(chunk(talkChoice(0, "a ", "null")), chunk(talkChoice(0, "", "length"))), "]}\n", `],"usage":null}`+"\n") +
				events(talkHead+`],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`, "[DONE]"),
		},
		{ // the bytes of a code point are in two responses
			"code points", `{"prompt":"x\u00f6y","stream":true}`, 200,
			events(chunk(talkChoice(0, "x", "null")), chunk(talkChoice(0, "öy ", "null")), chunk(talkChoice(0, "", "length")), "[DONE]"),
		},
		{
			"a failure in a stream", `{"prompt":"a bad b","stream":true}`, 200,
			events(chunk(talkChoice(0, "a ", "null")), `{"error":{"message":"in ensemble 'chat', a bad word","type":"server_error","param":null,"code":null,"reason":"STEP_FAILED","retryable":false,"step":"talk"}}`),
		},
		{
			"a failure first", `{"prompt":"bad","stream":true}`, 500,
			`{"error":{"message":"in ensemble 'chat', a bad word","type":"server_error","param":null,"code":null,"reason":"STEP_FAILED","retryable":false,"step":"talk"}}`,
		},
		{
			"a failure", `{"prompt":["a","bad"]}`, 500,
			`{"error":{"message":"in ensemble 'chat', a bad word","type":"server_error","param":null,"code":null,"reason":"STEP_FAILED","retryable":false,"step":"talk"}}`,
		},
		{"no prompt", `{}`, 400, openAIError("'prompt' is missing or empty, expected at least one text", "prompt", "empty_input")},
		{"several completions", `{"prompt":"a","n":2}`, 400, openAIError("'n' is 2, and this server has one completion of each prompt, expected 1: send the prompt several times", "n", "")},
		{"probabilities", `{"prompt":"a","logprobs":3}`, 400, openAIError("'logprobs' is a number, and this server has no probabilities of tokens: leave it out", "logprobs", "")},
		{"a list", `{"prompt":"a","stop":["x"]}`, 400, openAIError("'stop' is a list or an object, expected a string, a number or a boolean: model 'chat' has no input of this name", "stop", "")},
		{"a stream as text", `{"prompt":"a","stream":"yes"}`, 400, openAIError("'stream' is a string, expected a boolean", "stream", "")},
		{"options as text", `{"prompt":"a","stream_options":"yes"}`, 400, openAIError("'stream_options' is a string, expected an object", "stream_options", "")},
		{"another model", `{"prompt":"a","model":"all"}`, 400, openAIError("model 'all' has no parameter 'api.completions', expected one of the models that have it: chat", "model", "")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, h, got := d.send("/v1/completions", tt.body)
			if got = talked(got); code != tt.code || got != tt.want {
				t.Errorf("%d\n%s, want\n%d\n%s", code, got, tt.code, tt.want)
			}
			if events := strings.HasPrefix(h.Get("Content-Type"), "text/event-stream"); events != strings.HasPrefix(got, "data: ") {
				t.Errorf("the type is %q", h.Get("Content-Type"))
			}
		})
	}
}

// TestFrontDoorManyPrompts sends more prompts than are executed at a time, and leaves in the middle of a stream.
// shows: front-doors.completions
func TestFrontDoorManyPrompts(t *testing.T) {
	t.Parallel()
	d := serveTexts(t)
	var prompts, choices []string
	for i := range 40 {
		prompts, choices = append(prompts, fmt.Sprintf(`"p %d"`, i)), append(choices, talkChoice(i, fmt.Sprintf("p %d ", i), "length"))
	}
	code, _, got := d.send("/v1/completions", `{"prompt":[`+strings.Join(prompts, ",")+`]}`)
	if want := talkHead + strings.Join(choices, ",") + `],"usage":{"prompt_tokens":80,"completion_tokens":80,"total_tokens":160}}`; code != 200 || talked(got) != want {
		t.Errorf("%d %s, want %s", code, talked(got), want)
	}
	resp, err := http.Post("http://"+d.http+"/v1/completions", "application/json", strings.NewReader(`{"stream":true,"prompt":"`+strings.Repeat("word ", 100_000)+`"}`)) //nolint:noctx // ends below
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || !strings.HasPrefix(line, "data: ") {
		t.Errorf("%v: %s", err, line)
	}
	// The server ends and has released everything, or the harness fails the test.
}
