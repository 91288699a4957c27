package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/inspect"
)

// textPaths are the routes that execute requests, with a request of each.
var textPaths = map[string]string{
	"/v1/embeddings": `{"input":"a"}`, "/v1/completions": `{"prompt":"a"}`, "/v1/rerank": `{"query":"a","documents":["a"]}`, "/v2/rerank": `{"query":"a","documents":["a"]}`,
	"/embed": `{"inputs":"a"}`, "/embed_all": `{"inputs":"a"}`, "/embed_sparse": `{"inputs":"a"}`, "/rerank": `{"query":"a","texts":["a"]}`,
}

// TestFrontDoorAccess sends requests to servers that restrict a part of the API, know their clients, or have no such routes.
// shows: front-doors.access
func TestFrontDoorAccess(t *testing.T) {
	t.Parallel()
	d := serveTexts(t, "--http-restricted-api=inference,metadata:key=v")
	for path, body := range textPaths {
		if code, _, got := d.send(path, body); code != 403 || !strings.Contains(got, "This API is restricted, expecting header 'key'") || !json.Valid([]byte(got)) {
			t.Errorf("%s without the header: %d %s", path, code, got)
		}
		if code, _, got := d.send(path, body, "key", "v"); code != 200 {
			t.Errorf("%s with the header: %d %s", path, code, got)
		}
	}
	for _, path := range []string{"/v1/models", "/v1/models/all", "/info"} {
		if code, _, got := d.send(path, ""); code != 403 {
			t.Errorf("%s without the header: %d %s", path, code, got)
		}
	}
	off := serveTexts(t, "--http-text-api=false")
	for path, body := range textPaths {
		if code, _, got := off.send(path, body); code != 404 || got != `{"error":"Not Found"}` {
			t.Errorf("%s of a server without the routes: %d %s", path, code, got)
		}
	}
	if code, _, got := d.send("/v1/embeddings", "", "key", "v"); code != 405 {
		t.Errorf("GET: %d %s", code, got)
	}
}

// TestFrontDoorIdentities checks who may use which model, what clients see of others, and the audit log.
// shows: front-doors.access
func TestFrontDoorIdentities(t *testing.T) {
	t.Parallel()
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	auth := authFile(t, strings.Replace(authText, `["text-*"]`, "[chat, ids, one]", 1))
	d := serveTexts(t, "--auth-file", auth, "--audit-log", audit)
	user := []string{"Authorization", "Bearer " + userToken}
	if code, h, got := d.send("/v1/embeddings", `{"input":"a"}`); code != 401 || !strings.Contains(got, `"type":"authentication_error"`) || h.Get("Www-Authenticate") == "" {
		t.Errorf("without a token: %d %s", code, got)
	}
	for _, tt := range []struct {
		path, body, want string
		code             int
	}{
		{"/v1/embeddings", `{"input":"a","model":"all"}`, `"type":"permission_error"`, 403},
		{"/v1/embeddings", `{"input":"a","model":"missing"}`, `"type":"permission_error"`, 403},
		{"/v1/embeddings", `{"input":"a"}`, `"type":"permission_error"`, 403}, // the default model
		{"/embed", `{"inputs":"a"}`, `"error_type"`, 403},
		{"/v1/embeddings", `{"input":[7],"model":"ids"}`, `[1,1,7,1]`, 200},
		{"/v1/completions", `{"prompt":"a"}`, `"text":"a "`, 200},
		{"/v1/models", "", `"id":"chat"`, 200},
		{"/v1/models/ids", "", `"id":"ids"`, 200},
		{"/v1/models/all", "", `"type":"permission_error"`, 403},
	} {
		code, _, got := d.send(tt.path, tt.body, user...)
		if code != tt.code || !strings.Contains(got, tt.want) || code == 200 && strings.Contains(got, `"all"`) {
			t.Errorf("%s %s: %d %s, want %d with %s", tt.path, tt.body, code, got, tt.code, tt.want)
		}
	}
	text, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"object":"all"`, `"object":"missing"`} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the audit log has no %s:\n%s", want, text)
		}
	}
}

// TestFrontDoorLimits checks that the limits of the server hold: of a body, of a queue, and of time.
// shows: front-doors.limits
func TestFrontDoorLimits(t *testing.T) {
	t.Parallel()
	d := serveTexts(t, "--http-max-input-size=4096")
	large := strings.Repeat("a ", 4096)
	if code, _, got := d.send("/v1/embeddings", `{"input":"`+large+`"}`); code != 400 || !strings.Contains(got, "exceeds the maximum allowed input size of 4096 bytes") {
		t.Errorf("a large body: %d %s", code, got)
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write([]byte(`{"input":"hi"}`)) // in memory
	_ = w.Close()
	if code, _, got := d.send("/v1/embeddings", z.String(), "Content-Encoding", "gzip"); code != 200 || !strings.Contains(got, "[1,2,0,1]") {
		t.Errorf("a compressed body: %d %s", code, got)
	}
	if code, _, got := d.send("/v1/embeddings", `{"input":"hi"}`, "Tutti-Timeout-Ms", "soon"); code != 400 || !strings.Contains(got, "soon") {
		t.Errorf("a wrong deadline: %d %s", code, got)
	}

	responses := make(chan string, 4)
	send := func(path, body string, header ...string) {
		go func() {
			code, h, got := d.send(path, body, header...)
			responses <- fmt.Sprint(code, " ", h.Get("Tutti-Error-Reason"), " ", h.Get("X-Should-Retry"), " ", got)
		}()
	}
	const one = `{"model":"one","input":"a"}`
	send("/v1/embeddings", `{"model":"one","input":"wait"}`)
	<-d.entered
	send("/v1/embeddings", one, "Tutti-Timeout-Ms", "1")
	if got := <-responses; !strings.HasPrefix(got, "503 DEADLINE_UNREACHABLE true ") {
		t.Errorf("a deadline: %s", got)
	}
	send("/v1/embeddings", one)
	send("/v1/embeddings", one)
	if got := <-responses; !strings.HasPrefix(got, "503 QUEUE_FULL true ") || !strings.Contains(got, `"type":"server_error"`) || !strings.Contains(got, `"reason":"QUEUE_FULL"`) {
		t.Errorf("a full queue: %s", got)
	}
	close(d.gate)
	for range 2 {
		if got := <-responses; !strings.HasPrefix(got, "200 ") {
			t.Errorf("a request that waited: %s", got)
		}
	}
}

// TestFrontDoorOverload checks the status of Text Embeddings Inference for a server that has no room.
// shows: front-doors.limits front-doors.tei
func TestFrontDoorOverload(t *testing.T) {
	t.Parallel()
	d := serveTexts(t, "--model-control-mode=explicit", "--load-model=one")
	responses := make(chan string, 3)
	send := func(text string) {
		go func() {
			code, h, got := d.send("/embed", `{"inputs":"`+text+`"}`)
			responses <- fmt.Sprint(code, " ", h.Get("Tutti-Error-Reason"), " ", got)
		}()
	}
	send("wait")
	<-d.entered
	send("a")
	send("b")
	if got := <-responses; !strings.HasPrefix(got, "429 QUEUE_FULL ") || !strings.Contains(got, `"error_type":"Overloaded"`) {
		t.Errorf("a full queue: %s", got)
	}
	close(d.gate)
	for range 2 {
		if got := <-responses; !strings.HasPrefix(got, "200 ") {
			t.Errorf("a request that waited: %s", got)
		}
	}
}

// TestFrontDoorTraces checks that requests have traces with the route and with the client's trace.
// shows: front-doors.traces
func TestFrontDoorTraces(t *testing.T) {
	t.Parallel()
	d := serveTexts(t, "--trace-store-every=1", "--trace-store-rate=0")
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	for path, body := range textPaths {
		if code, _, got := d.send(path, body, "Traceparent", "00-"+parent+"-00f067aa0ba902b7-01"); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
	var list inspect.TraceList
	dashboardAPI(t, d.addresses, "traces", &list)
	found := map[string]bool{}
	for i := range list.Traces {
		if list.Traces[i].ID == parent {
			found[list.Traces[i].Route] = true
		}
	}
	for path := range textPaths {
		if !found[path] {
			t.Errorf("no trace of %s in %v", path, list)
		}
	}
}
