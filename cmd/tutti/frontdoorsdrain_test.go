package main

import (
	"context"
	"net/http"
	"strings"
	"testing"
)

// TestFrontDoorDrain stops a server while a stream of completions, a bulk of embeddings and a call of a tool execute: they are completed, and
// new requests get the error of their route.
// shows: front-doors.limits
func TestFrontDoorDrain(t *testing.T) {
	t.Parallel()
	x := &textBackend{entered: make(chan struct{}), gate: make(chan struct{})}
	c := components()
	c.AddBackends(x.factory())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	a, log := serveUntil(ctx, t, c, "--model-repository="+textRepo(t), "--mcp=true", "--exit-timeout-secs=600", "--exit-connection-secs=0")
	d := &doors{a, x, t, log}

	type done struct {
		code int
		body string
	}
	own := http.Header{"Connection": {"close"}}
	results, early := map[string]chan done{}, make(chan done, 3)
	for path, body := range map[string]string{
		"/v1/completions": `{"prompt":"wait","stream":true}`,
		"/v1/embeddings":  `{"input":["a 7","wait","b 8"],"model":"all"}`,
		"/mcp":            `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"tool","arguments":{"TEXT":"wait"}}}`,
	} {
		results[path] = make(chan done, 1)
		go func() {
			code, got := postMessage(t, a, path, body, own)
			results[path] <- done{code, got}
			early <- done{code, path + ": " + got}
		}()
	}
	for range results {
		select {
		case <-x.entered:
		case got := <-early:
			t.Fatalf("a response before the text was executed: %v", got)
		}
	}
	stop()
	if !log.await(func(text string) bool { return strings.Contains(text, "Waiting for in-flight requests to complete.") }) {
		t.Fatalf("the server did not go on:\n%s", log)
	}
	for _, want := range []struct{ path, body, has string }{
		{"/v1/completions", `{"prompt":"a"}`, `"type":"server_error"`},
		{"/v1/embeddings", `{"input":"a"}`, `"type":"server_error"`},
		{"/v1/embeddings", `{"input":"a","model":"all:1"}`, `"type":"server_error"`},
		{"/embeddings", `{"input":"a","model":"org/cut"}`, `"type":"server_error"`},
		{"/embed", `{"inputs":"a"}`, `"error_type":"Unhealthy"`},
	} {
		code, h, got := d.send(want.path, want.body)
		if code != http.StatusServiceUnavailable || !strings.Contains(got, want.has) || h.Get("Tutti-Error-Reason") != "SERVER_DRAINING" || h.Get("Retry-After") != "1" {
			t.Errorf("%s %s while the server stops: %d %v %s", want.path, want.body, code, h, got)
		}
	}
	if code, got := postMessage(t, a, "/mcp", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"tool","arguments":{"TEXT":"a"}}}`, own); !strings.Contains(got, "SERVER_DRAINING") {
		t.Errorf("/mcp while the server stops: %d %s", code, got)
	}
	close(x.gate)
	for path, want := range map[string]string{
		"/v1/completions": "data: [DONE]\n\n",
		"/v1/embeddings":  `"usage":{"prompt_tokens":5,"total_tokens":5}}`,
		"/mcp":            `"structuredContent":{"dense":[1,4,0,1],"count":1}`,
	} {
		if got := <-results[path]; got.code != http.StatusOK || !strings.Contains(got.body, want) {
			t.Errorf("%s, which executed: %d %s, want %s", path, got.code, got.body, want)
		}
	}
}
