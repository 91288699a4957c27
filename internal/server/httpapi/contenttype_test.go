package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/internal/shm"
	"github.com/tutti-server/tutti/internal/tracing"
)

const (
	textType   = "text/plain"
	jsonType   = "application/json"
	binaryType = "application/octet-stream"
	eventType  = "text/event-stream; charset=utf-8"
)

// TestContentTypes compares the Content-Type of every outcome with that of Triton 2.51 and later.
//
// shows: http.content_types
func TestContentTypes(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, withEverything(t))
	const (
		x    = `"shape":[1],"datatype":"INT32","data":[1]`
		half = `"shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}`
	)
	for _, tt := range []struct {
		method, path, body string
		header             []string
		code               int
		want               string
	}{
		{"GET", "/nothing", "", nil, 404, textType},
		{"GET", "/v2", "", nil, 200, jsonType},
		{"GET", "/v2/health/live", "", nil, 200, textType},
		{"GET", "/v2/health/ready", "", nil, 200, textType},
		{"GET", "/v2/models/echo", "", nil, 200, jsonType},
		{"GET", "/v2/models/nope", "", nil, 400, jsonType},
		{"GET", "/v2/models/echo/ready", "", nil, 200, textType},
		{"GET", "/v2/models/nope/ready", "", nil, 400, textType},
		{"GET", "/v2/models/unready/ready", "", nil, 400, textType},
		{"GET", "/v2/models/echo/config", "", nil, 200, jsonType},
		{"GET", "/v2/models/nope/config", "", nil, 404, jsonType},
		{"GET", "/v2/models/stats", "", nil, 200, jsonType},
		{"GET", "/v2/models/nope/stats", "", nil, 400, jsonType},
		{"GET", "/v2/models/echo/trace/setting", "", nil, 200, jsonType},
		{"GET", "/v2/trace/setting", "", nil, 200, jsonType},
		{"POST", "/v2/trace/setting", `{`, nil, 500, jsonType},
		{"GET", "/v2/logging", "", nil, 200, jsonType},
		{"POST", "/v2/logging", `{"log_info":1}`, nil, 500, jsonType},
		{"POST", "/v2/repository/index", "", nil, 200, jsonType},
		{"POST", "/v2/repository/index", `{"ready":1}`, nil, 400, jsonType},
		{"POST", "/v2/repository/models/a/load", "", nil, 200, jsonType},
		{"POST", "/v2/repository/models/bad/load", "", nil, 500, jsonType},
		{"POST", "/v2/repository/models/a/unload", "", nil, 200, jsonType},
		{"POST", "/v2/repository/r/models/a/unload", "", nil, 501, jsonType},
		{"GET", "/v2/systemsharedmemory/status", "", nil, 200, jsonType},
		{"GET", "/v2/systemsharedmemory/region/r/status", "", nil, 404, jsonType},
		{"POST", "/v2/systemsharedmemory/region/r/register", `{"key":"/none","byte_size":1}`, nil, 500, jsonType},
		{"POST", "/v2/systemsharedmemory/unregister", "", nil, 200, jsonType},
		{"POST", "/v2/systemsharedmemory/region/r/unregister", "", nil, 200, jsonType},
		{"GET", "/v2/cudasharedmemory/status", "", nil, 200, jsonType},
		{"POST", "/v2/cudasharedmemory/unregister", "", nil, 200, jsonType},
		{"POST", "/v2/cudasharedmemory/register", "{}", nil, 400, jsonType},

		{"POST", "/v2/models/echo/infer", input(x), nil, 200, jsonType},
		{"POST", "/v2/models/raw_bytes/infer", "a", []string{lengthHeader, "0"}, 200, binaryType},
		{"POST", "/v2/models/nope/infer", input(x), nil, 400, textType},
		{"POST", "/v2/models/unready/infer", input(x), nil, 503, textType},
		{"POST", "/v2/models/repeat/infer", input(x), nil, 501, textType},
		{"POST", "/v2/models/echo/infer", input(x), []string{"Content-Encoding", "br"}, 501, textType},
		{"POST", "/v2/models/echo/infer", input(x), []string{lengthHeader, "x"}, 400, textType},
		{"POST", "/v2/models/echo/infer", "x", []string{"Content-Encoding", "gzip"}, 400, textType},
		{"POST", "/v2/models/echo/infer", "{", nil, 500, jsonType},
		{"POST", "/v2/models/echo/infer", input(`"shape":[2],"datatype":"INT32","data":[1]`), nil, 500, jsonType},
		{"POST", "/v2/models/echo/infer", `{"outputs":[{"name":"Y"}],` + input(x)[1:], nil, 400, jsonType}, // rejected before execution
		{"POST", "/v2/models/fail/infer", input(x), nil, 500, textType},                                    // fails while it runs
		{"POST", "/v2/models/short/infer", input(x), nil, 500, textType},
		{"POST", "/v2/models/echo/infer", input(half) + "ab", []string{lengthHeader, "91"}, 400, textType}, // its JSON cannot be found

		{"POST", "/v2/models/echo/generate", `{"X":1}`, nil, 200, jsonType},
		{"POST", "/v2/models/nope/generate", `{}`, nil, 400, jsonType},
		{"POST", "/v2/models/fail/generate", `{"X":1}`, nil, 500, jsonType},
		{"POST", "/v2/models/echo/generate_stream", `{"X":1}`, nil, 200, eventType},
		{"POST", "/v2/models/echo/generate_stream", `{`, nil, 500, jsonType},
		{"POST", "/v2/models/fail/generate_stream", `{"X":1}`, nil, 500, eventType},
	} {
		code, h, got := call(t, tt.method, s.URL+tt.path, []byte(tt.body), tt.header...)
		if types := h["Content-Type"]; code != tt.code || len(types) != 1 || types[0] != tt.want {
			t.Errorf("%s %s %s: got status %d, types %q, want %d, %q; %s", tt.method, tt.path, tt.body, code, types, tt.code, tt.want, got)
		}
	}
}

// withEverything returns a server on which every endpoint is supported.
func withEverything(t *testing.T) func(*httpapi.Settings) {
	t.Helper()
	tracer, err := tracing.New(tracing.Options{Settings: tracing.Settings{Level: []string{"OFF"}, Rate: "1", Count: "-1", LogFrequency: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	journal, err := logs.New(logs.Settings{}, t.Output(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	return func(set *httpapi.Settings) {
		set.Tracer, set.Logs, set.Regions, set.Lifecycle = tracer, journal, shm.NewRegistry(true), servertest.NewLifecycle("a", "b")
	}
}

// TestContentTypeOfRejection sends a wrong method, and no header for a restricted API, to every endpoint.
func TestContentTypeOfRejection(t *testing.T) {
	t.Parallel()
	open, _ := serve(t, withEverything(t))
	names := infer.APINames()
	apis := make([]infer.API, len(names))
	for i, name := range names {
		apis[i], _ = infer.ParseAPI(name)
	}
	closed, _ := serve(t, func(set *httpapi.Settings) { set.Restricted = []infer.Restriction{{APIs: apis, Key: "k", Value: "v"}} })
	fill := strings.NewReplacer("{model}", "echo", "{version}", "1", "{name}", "r")
	for _, path := range httpapi.Routes() {
		want := jsonType
		if strings.HasSuffix(path, "/live") || strings.HasSuffix(path, "/ready") || strings.HasSuffix(path, "/infer") || strings.HasPrefix(path, "/api/") {
			want = textType
		}
		code, h, _ := call(t, http.MethodPut, open.URL+fill.Replace(path), nil)
		if got := h.Get("Content-Type"); code != http.StatusMethodNotAllowed || got != want {
			t.Errorf("PUT %s: got status %d, type %q, want %q", path, code, got, want)
		}
		code, h, _ = call(t, http.MethodGet, closed.URL+fill.Replace(path), nil)
		if got := h.Get("Content-Type"); code == http.StatusForbidden && got != textType {
			t.Errorf("GET %s without the header: type %q, want %q", path, got, textType)
		}
	}
}
