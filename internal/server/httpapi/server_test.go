package httpapi_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

const (
	echoMetadata = `{"name":"echo","versions":["1"],"platform":"echo","inputs":[{"name":"X","datatype":"FP32","shape":[-1]}],` +
		`"outputs":[{"name":"X","datatype":"FP32","shape":[-1]}]}`
	noDuration = `{"count":0,"ns":0}`
)

func stats(name, count string) string {
	return `{"name":"` + name + `","version":"1","last_inference":7,"inference_count":3,"execution_count":2,"inference_stats":{` +
		`"success":{"count":` + count + `,"ns":1000},"fail":` + noDuration + `,"queue":` + noDuration + `,"compute_input":` + noDuration +
		`,"compute_infer":` + noDuration + `,"compute_output":` + noDuration + `,"cache_hit":` + noDuration + `,"cache_miss":` + noDuration +
		`},"response_stats":{},"batch_stats":[{"batch_size":4,"compute_input":` + noDuration + `,"compute_infer":{"count":` + count +
		`,"ns":1000},"compute_output":` + noDuration + `}],"memory_usage":[]}`
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	const (
		notFound   = `{"error":"Not Found"}`
		notAllowed = `{"error":"Method Not Allowed"}`
	)
	lacks := func(what string) string {
		return `{"error":"the ` + what + ` endpoint is not supported by this server"}`
	}
	tests := []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "/v2", 200, `{"name":"tutti","version":"1.0.0","extensions":["binary_tensor_data","parameters"]}`},
		{"GET", "/v2/", 404, notFound},
		{"POST", "/v2", 405, notAllowed},
		{"GET", "/", 200, `{"metadata":"/v2","ready":"/v2/health/ready","live":"/v2/health/live","docs":"https://github.com/tutti-server/tutti/tree/main/docs"}`},
		{"POST", "/", 404, notFound},
		{"GET", "/v1", 404, notFound},
		{"GET", "/v2/a/b/c/d/e/f/g/h/i/j/k", 404, notFound},
		{"GET", "/v2/health/live", 200, ""},
		{"GET", "/v2/health/ready", 200, ""},
		{"GET", "/v2/health/lively", 404, notFound},
		{"HEAD", "/v2/health/live", 405, ""},
		{"GET", "/v2/models/echo", 200, echoMetadata},
		{"GET", "/v2/models/echo/versions/1", 200, echoMetadata},
		{"GET", "/v2/models/echo/", 404, notFound},
		{"GET", "/v2/models//ready", 404, notFound},
		{"GET", "/v2/models/echo/versions/x", 404, notFound},
		{"GET", "/v2/models/echo/versions/", 404, notFound},
		{"GET", "/v2/models/nope", 400, `{"error":"Request for unknown model: 'nope' is not found"}`},
		{"GET", "/v2/models/echo/versions/2", 404, `{"error":"Request for unknown model: 'echo' version 2 is not found"}`},
		{"GET", "/v2/models/echo/ready", 200, ""},
		{"GET", "/v2/models/echo/versions/1/ready", 200, ""},
		{"GET", "/v2/models/echo/versions/2/ready", 400, `{"error":"Model version not ready: Request for unknown model: 'echo' version 2 is not found"}`},
		{"GET", "/v2/models/nope/ready", 400, `{"error":"Model version not ready: Request for unknown model: 'nope' is not found"}`},
		{"GET", "/v2/models/unready/ready", 400, `{"error":"Model version not ready: Request for unknown model: 'unready' version 1 is not at ready state","reason":"MODEL_NOT_READY","retryable":true}`},
		{"GET", "/v2/models/nope/config", 404, `{"error":"Request for unknown model: 'nope' is not found"}`},
		{"GET", "/v2/models/unready/config", 503, `{"error":"Request for unknown model: 'unready' version 1 is not at ready state","reason":"MODEL_NOT_READY","retryable":true}`},
		{"GET", "/v2/models/stats", 200, `{"model_stats":[` + stats("echo", "1") + `,` + stats("two", "2") + `]}`},
		{"GET", "/v2/models/two/stats", 200, `{"model_stats":[` + stats("two", "1") + `]}`},
		{"GET", "/v2/models/two/versions/1/stats", 200, `{"model_stats":[` + stats("two", "1") + `]}`},
		{"GET", "/v2/models/nope/stats", 400, `{"error":"requested model 'nope' is not available"}`},
		{"GET", "/v2/models/echo/infer", 405, notAllowed},
		{"POST", "/v2/models/echo/infers", 404, notFound},
		{"POST", "/v2/models/echo", 405, notAllowed},
		{"GET", "/v2/models/echo/generate", 405, notAllowed},
		{"GET", "/v2/models/echo/trace/setting", 501, lacks("trace setting")},
		{"GET", "/v2/models/echo/versions/1/trace/setting", 404, notFound},
		{"POST", "/v2/trace/setting", 501, lacks("trace setting")},
		{"POST", "/v2/logging", 501, lacks("logging")},
		{"POST", "/v2/repository/index", 501, lacks("repository index")},
		{"POST", "/v2/repository/r/models/m/load", 501, lacks("model load")},
		{"POST", "/v2/repository/models/m/unload", 501, lacks("model unload")},
	}
	for _, tt := range tests {
		t.Run(tt.method+tt.path, func(t *testing.T) {
			t.Parallel()
			code, _, got := call(t, tt.method, s.URL+tt.path, nil)
			if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.code {
				t.Errorf("status %d, want %d (-want +got):\n%s", code, tt.code, diff)
			}
		})
	}
}

// TestPlainReasons checks the reasons of errors that reach no model: their bodies are Triton's, and the headers say more.
func TestPlainReasons(t *testing.T) {
	t.Parallel()
	s, e := serve(t)
	e.NotReady.Store(true)
	for _, tt := range []struct{ method, path, reason, retryable string }{
		{"GET", "/v1", "NOT_FOUND", "false"},
		{"POST", "/v2", "UNSUPPORTED", "false"},
		{"GET", "/v2/models/nope/config", "NOT_FOUND", "false"},
		{"GET", "/v2/health/ready", "SERVER_NOT_READY", "true"},
		{"GET", "/v2/health/live", "", ""},
	} {
		_, h, _ := call(t, tt.method, s.URL+tt.path, nil)
		if h.Get("Tutti-Error-Reason") != tt.reason || h.Get("Tutti-Error-Retryable") != tt.retryable {
			t.Errorf("%s %s: the headers are %v, want %s, %s", tt.method, tt.path, h, tt.reason, tt.retryable)
		}
	}
}

func TestHealthWhenNotReady(t *testing.T) {
	t.Parallel()
	s, e := serve(t)
	e.NotReady.Store(true)
	if code, _, got := call(t, "GET", s.URL+"/v2/health/ready", nil); code != http.StatusBadRequest || got != "" {
		t.Errorf("ready: %d %q", code, got)
	}
	if code, _, _ := call(t, "GET", s.URL+"/v2/health/live", nil); code != http.StatusOK {
		t.Errorf("live: %d", code)
	}
	s, _ = serve(t, func(set *httpapi.Settings) { set.Live = func() bool { return false } })
	if code, _, got := call(t, "GET", s.URL+"/v2/health/live", nil); code != http.StatusBadRequest || got != "" {
		t.Errorf("live: %d %q", code, got)
	}
}

// configs returns one configuration for every model.
type configs struct {
	infer.Catalog
	cfg *modelconfig.ModelConfig
}

func (c configs) Config(string, int64) (*modelconfig.ModelConfig, error) { return c.cfg, nil }

// TestModelConfig compares with stored responses. A failure prints the response.
func TestModelConfig(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"batching", "ensemble"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("testdata", name+".pbtxt"))
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(filepath.Join("testdata", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			cfg := new(modelconfig.ModelConfig)
			if err := prototext.Unmarshal(text, cfg); err != nil {
				t.Fatal(err)
			}
			s, _ := serve(t, func(set *httpapi.Settings) { set.Catalog = configs{set.Catalog, cfg} })
			code, _, got := call(t, "GET", s.URL+"/v2/models/m/config", nil)
			if diff := cmp.Diff(lines(string(want)), lines(got)); diff != "" || code != http.StatusOK {
				t.Errorf("status %d (-want +got):\n%s\nall of it:\n%s", code, diff, got)
			}
		})
	}
}

// lines puts each member on a separate line.
func lines(s string) []string {
	return strings.Split(strings.TrimSpace(strings.ReplaceAll(s, ",\"", ",\n\"")), "\n")
}

// TestShutdown shuts a server down during a request.
func TestShutdown(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	s := httpapi.New(httpapi.Settings{
		Infer: e, Catalog: e, Alloc: tensortest.NewChecked(t, nil),
		Log: slog.New(slog.DiscardHandler),
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	responded := make(chan struct{})
	go func() {
		defer close(responded)
		req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+l.Addr().String()+"/v2/models/wait/infer",
			strings.NewReader(input(`"shape":[1],"datatype":"INT32","data":[1]`)))
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	<-e.Waiting
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(over); err == nil {
		t.Error("Shutdown did not say that a request was in progress")
	}
	<-e.Cancelled
	<-responded
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if err := s.Shutdown(t.Context()); err != nil {
		t.Errorf("second Shutdown: %v", err)
	}
	// A connection that was in use then may send another request.
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest("GET", "/v2/health/live", nil))
	if got := w.Body.String(); w.Code != http.StatusServiceUnavailable || got != `{"error":"Server exiting","reason":"SERVER_DRAINING","retryable":true,"retry_after_ms":1000}` {
		t.Errorf("health after Shutdown: %d %s", w.Code, got)
	}
}

func TestExtensions(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, func(set *httpapi.Settings) { set.Extensions = httpapi.Extensions() })
	_, _, got := call(t, "GET", s.URL+"/v2", nil)
	want := `{"name":"tutti","version":"1.0.0","extensions":["classification","sequence","model_repository",` +
		`"model_repository(unload_dependents)","schedule_policy","model_configuration","system_shared_memory",` +
		`"cuda_shared_memory","binary_tensor_data","parameters","statistics","trace","logging"]}`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
