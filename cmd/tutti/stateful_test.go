package main

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

var readmeInfer = regexp.MustCompile(`(?m)^\$ curl -s localhost:8000(\S+) -d '(.*?)'$`)

// TestStatefulExample checks the requests in the stateful example's README several times. Each pair is a sequence
// that starts with the initial state.
// shows: config.sequences
func TestStatefulExample(t *testing.T) {
	t.Parallel()
	const dir = "../../examples/stateful"
	a := serve(t, "--model-repository="+dir, "--backend-config", "onnxruntime,library-path="+requireRuntime(t))
	readme, err := os.ReadFile(dir + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	requests := readmeInfer.FindAllStringSubmatch(string(readme), -1)
	if len(requests) != 2 {
		t.Fatalf("README.md has %d requests", len(requests))
	}
	for range 3 {
		for i, want := range []string{`"data":[101.0,2.0]`, `"data":[111.0,22.0]`} {
			if code, got := post(t, "http://"+a.http+requests[i][1], requests[i][2]); code != http.StatusOK || !strings.Contains(got, want) || strings.Contains(got, "TOTAL") {
				t.Errorf("request %d: %d %s, want %s", i, code, got, want)
			}
		}
	}
	code, got := post(t, "http://"+a.http+requests[1][1], requests[1][2])
	if want := "inference request for sequence 7 to model 'accumulator' must specify the START flag on the first request of the sequence"; code != http.StatusBadRequest || !strings.Contains(got, want) {
		t.Errorf("after the end: %d %s", code, got)
	}
}

// post returns the status and the body of a response.
func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body)) //nolint:noctx // ends with the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
