package httpapi_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// shows: generate
func TestGenerate(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	const head, name = `{`, `"model_name":"prompt","model_version":"1"}`
	tests := []struct{ name, model, body, want string }{
		{"scalar", "echo", `{"X":1.5}`, `{"X":1.5,"model_name":"echo","model_version":"1"}`},
		{"array", "echo", `{"X":[1,2]}`, `{"X":[1.0,2.0],"model_name":"echo","model_version":"1"}`},
		{"one in an array", "echo", `{"X":[1]}`, `{"X":1.0,"model_name":"echo","model_version":"1"}`},
		{"empty array", "echo", `{"X":[]}`, `{"X":[],"model_name":"echo","model_version":"1"}`},
		{"id", "echo", `{"X":1,"id":"a\"b"}`, `{"X":1.0,"id":"a\"b","model_name":"echo","model_version":"1"}`},
		{"nested inputs", "two", `{"X":1,"parameters":{"Y":2}}`, `{"X":1.0,"Y":2.0,"model_name":"two","model_version":"1"}`},
		{"parameters", "params", `{"z":true,"X":1,"b":"s","parameters":{"a":-1,"id":2.5}}`, `{"X":1.0,"a":-1,"b":"s","id":2.5,"model_name":"params","model_version":"1","z":true}`},
		{"ensemble", "ensemble", `{"X":1}`, `{"X":1.0,"model_name":"ensemble","model_version":"1","sequence_end":false,"sequence_id":0,"sequence_start":false}`},
		{"batch", "raw_batch", `{"X":[1,2]}`, `{"X":[1,2],"model_name":"raw_batch","model_version":"1"}`},
		{"text", "prompt", `{"TEXT":"h\u00e9\n"}`, head + `"TEXT":"hé\n",` + name},
		{"texts", "prompt", `{"TEXTS":["a",["b"],"c"]}`, head + `"TEXTS":["a","b","c"],` + name},
		{"flags", "prompt", `{"FLAG":[true,false]}`, head + `"FLAG":[true,false],` + name},
		{
			"bounds", "prompt", `{"I8":[-128,127],"U8":[0,255],"I64":[-9223372036854775808,9223372036854775807],"U64":18446744073709551615}`,
			head + `"I64":[-9223372036854775808,9223372036854775807],"I8":[-128,127],"U64":18446744073709551615,"U8":[0,255],` + name,
		},
		{"fixed extent", "prompt", `{"F32":[1,2,3,4]}`, head + `"F32":[1.0,2.0,3.0,4.0],` + name},
		{"no extents", "prompt", `{"ONE":7}`, head + `"ONE":7,` + name},
		{"zero extent", "prompt", `{"NONE":[]}`, head + `"NONE":[],` + name},
		{"one response of a decoupled model", "repeat", `{"IN":[5]}`, `{"OUT":5,"model_name":"repeat","model_version":"1"}`},
		{"no response", "repeat", `{"IN":[]}`, oneResponse},
		{"two responses", "repeat", `{"IN":[1,2]}`, oneResponse},
		{"endless responses", "endless", `{"IN":[]}`, oneResponse},
		{"failure after a response", "repeat", `{"IN":[1,-1]}`, `{"error":"element 1 is negative"}`},
		{"silent", "silent", `{"X":1}`, oneResponse},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, h, got := call(t, "POST", s.URL+"/v2/models/"+tt.model+"/generate", []byte(tt.body))
			if diff := cmp.Diff(tt.want, got); diff != "" || code != http.StatusOK || h.Get("Content-Type") != "application/json" {
				t.Errorf("status %d, type %q (-want +got):\n%s", code, h.Get("Content-Type"), diff)
			}
		})
	}
}

const oneResponse = `{"error":"generate expects model to produce exactly 1 response, use generate stream for model that generates various number of responses"}`

// TestGenerateErrors sends each request to both endpoints. An error before execution must have the same response.
func TestGenerateErrors(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, func(set *httpapi.Settings) { set.MaxInput = 4096 })
	const noFit = "The schema can not convert input 'F32' to tensor with proper shape"
	tests := []struct {
		name, model, body string
		code              int
		want              string
	}{
		{"unknown model", "nope", `{}`, 400, "Request for unknown model: 'nope' is not found"},
		{"unready model", "unready", `{}`, 503, `Request for unknown model: 'unready' version 1 is not at ready state","reason":"MODEL_NOT_READY","retryable":true`},
		{"no body", "echo", ``, 500, "failed to parse the request JSON buffer: The document is empty. at 0"},
		{"truncated", "echo", `{"X":`, 500, "failed to parse the request JSON buffer: Invalid value. at 5"},
		{"blanks", "echo", "  ", 500, "failed to parse the request JSON buffer: The document is empty. at 2"},
		{"no object", "echo", `[1]`, 500, "attempt to get members for non-object"},
		{"parameters no object", "echo", `{"parameters":1}`, 500, "Expected JSON object for keyword: 'parameters': attempt to access JSON non-object as object"},
		{"id no string", "echo", `{"id":1}`, 500, "Unable to parse 'id': attempt to access JSON non-string as string"},
		{"parameter of a wrong type", "echo", `{"k":[1]}`, 400, "parameter 'k' has invalid type. It should be either 'int', 'bool', or 'string'."},
		{"nested parameter of a wrong type", "echo", `{"parameters":{"k":{"l":1}}}`, 400, "Converting keyword: 'parameters': parameter 'k' has invalid type. It should be either 'int', 'bool', or 'string'."},
		{"nested input of a wrong type", "prompt", `{"parameters":{"TEXT":1}}`, 500, "Converting keyword: 'parameters': Unable to parse JSON bytes array: attempt to access JSON non-string as string"},
		{"input twice", "echo", `{"X":1,"parameters":{"X":1}}`, 400, "[request id: <id_unknown>] input 'X' already exists in request"},
		{"no fit", "prompt", `{"F32":[1,2,3]}`, 400, noFit},
		{"scalar that does not fit", "prompt", `{"F32":1}`, 400, noFit},
		{"too many", "prompt", `{"ONE":[1,2]}`, 400, "The schema can not convert input 'ONE' to tensor with proper shape"},
		{"zero extent", "prompt", `{"NONE":1}`, 400, "The schema can not convert input 'NONE' to tensor with proper shape"},
		{"string for a number", "prompt", `{"F64":"a"}`, 500, "Unable to parse 'data': attempt to access JSON non-number as double"},
		{"object", "prompt", `{"F64":{}}`, 500, "Unable to parse 'data': attempt to access JSON non-number as double"},
		{"null", "prompt", `{"F64":null}`, 500, "Unable to parse 'data': attempt to access JSON non-number as double"},
		{"fraction", "prompt", `{"I8":1.5}`, 500, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer"},
		{"negative", "prompt", `{"U8":-1}`, 500, "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer"},
		{"number for a flag", "prompt", `{"FLAG":[1]}`, 500, "Unable to parse 'data': attempt to access JSON non-boolean as boolean"},
		{"number for a text", "prompt", `{"TEXT":1}`, 500, "Unable to parse JSON bytes array: attempt to access JSON non-string as string"},
		{"signed range", "prompt", `{"I8":[1,200]}`, 400, "value 200 of input 'I8' is out of range for INT8"},
		{"unsigned range", "prompt", `{"U8":256}`, 400, "value 256 of input 'U8' is out of range for UINT8"},
		{"float range", "prompt", `{"F32":[1e39,1]}`, 400, "value 1e39 of input 'F32' is out of range for FP32"},
		{"half", "prompt", `{"F16":1}`, 400, "receiving FP16 data via JSON is not supported. Please use the binary data format for input F16"},
		{"too large", "prompt", `{"TEXT":"` + strings.Repeat("a", 5000) + `"}`, 400, "request JSON size of 5011 bytes exceeds the maximum allowed input size of 4096 bytes. Use --http-max-input-size to increase the limit."},
		{"too large a tensor", "prompt", `{"F64":[` + strings.Repeat("1,", 600) + `1]}`, 400, "JSON input 'F64' has a byte_size (4808 bytes) that exceeds the maximum allowed value of 4096 bytes. Use --http-max-input-size to increase the limit."},
		{"deep", "prompt", `{"F64":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, 400, "JSON nesting depth exceeds maximum allowed limit (100)"},
		{"missing input", "repeat", `{}`, 400, "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'repeat'"},
	}
	for _, tt := range tests {
		for _, end := range []string{"/generate", "/generate_stream"} {
			t.Run(tt.name+end, func(t *testing.T) {
				t.Parallel()
				code, h, got := call(t, "POST", s.URL+"/v2/models/"+tt.model+end, []byte(tt.body))
				want := `{"error":"` + tt.want + `"}`
				if strings.HasSuffix(tt.want, "true") { // members behind the text
					want = `{"error":"` + tt.want + `}`
				}
				if diff := cmp.Diff(want, got); diff != "" || code != tt.code || h.Get("Content-Type") != "application/json" {
					t.Errorf("status %d, want %d, type %q (-want +got):\n%s", code, tt.code, h.Get("Content-Type"), diff)
				}
			})
		}
	}
	for _, end := range []string{"/generate", "/generate_stream"} {
		code, _, got := call(t, "POST", s.URL+"/v2/models/echo/versions/1"+end, []byte(`{}`), "Content-Encoding", "gzip")
		if want := `{"error":"Unsupported content-encoding, only 'identity' is supported."}`; code != http.StatusBadRequest || got != want {
			t.Errorf("gzip: %d %s", code, got)
		}
	}
	if code, _, got := call(t, "POST", s.URL+"/v2/models/fail/generate", []byte(`{"X":1}`)); code != 500 || got != `{"error":"in ensemble 'fail', it went \"wrong\""}` {
		t.Errorf("failure: %d %s", code, got)
	}
}

// shows: generate_stream
func TestGenerateStream(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	repeat := func(v string) string {
		return `data: {"OUT":` + v + `,"id":"i","k":1,"model_name":"repeat","model_version":"1"}` + "\n\n"
	}
	tests := []struct {
		name, model, body string
		code              int
		want              string
	}{
		{"many", "repeat", `{"IN":[1,2,3],"id":"i","k":1}`, 200, repeat("1") + repeat("2") + repeat("3")},
		{"none", "repeat", `{"IN":[]}`, 200, ""},
		{"one of a model that is not decoupled", "echo", `{"X":[1,2]}`, 200, `data: {"X":[1.0,2.0],"model_name":"echo","model_version":"1"}` + "\n\n"},
		{"failure later", "repeat", `{"IN":[1,-2],"id":"i","k":1}`, 200, repeat("1") + `data: {"error":"element 1 is negative"}` + "\n\n"},
		{"failure first", "repeat", `{"IN":[-2]}`, 500, `data: {"error":"element 0 is negative"}` + "\n\n"},
		{"a response that cannot be shown", "short", `{"X":1}`, 500, `data: {"error":"output tensor shape does not match size of output for 'X'"}` + "\n\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, h, got := call(t, "POST", s.URL+"/v2/models/"+tt.model+"/generate_stream", []byte(tt.body))
			if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.code || h.Get("Content-Type") != "text/event-stream; charset=utf-8" {
				t.Errorf("status %d, want %d, type %q (-want +got):\n%s", code, tt.code, h.Get("Content-Type"), diff)
			}
		})
	}
}

// TestGenerateStreamDisconnect reads some events and disconnects: the endless model must be cancelled.
//
// shows: infer.hangup
func TestGenerateStreamDisconnect(t *testing.T) {
	t.Parallel()
	s, e := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v2/models/endless/generate_stream", strings.NewReader(`{"IN":[7]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, want := range []string{`data: {"OUT":7,"model_name":"endless","model_version":"1"}`, ``, `data: {"OUT":1,"model_name":"endless","model_version":"1"}`} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("got %q, want %q", lines.Text(), want)
		}
	}
	cancel()
	<-e.Cancelled
}

// slowClient reads an event when the test allows it.
type slowClient struct {
	*httptest.ResponseRecorder
	take chan struct{}
}

func (c *slowClient) Write(b []byte) (int, error) {
	<-c.take
	return c.ResponseRecorder.Write(b)
}

// TestGenerateStreamBackPressure reads events one by one: the model must not be more than a few ahead of its client.
func TestGenerateStreamBackPressure(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	s := httpapi.New(httpapi.Settings{Infer: e, Catalog: e, Alloc: tensortest.NewChecked(t, nil)})
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "POST", "/v2/models/endless/generate_stream", strings.NewReader(`{"IN":[]}`))
	c := &slowClient{httptest.NewRecorder(), make(chan struct{})}
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.ServeHTTP(c, r)
	}()
	for taken := range int64(100) {
		c.take <- struct{}{}
		if ahead := e.Sent.Load() - taken; ahead > 8 {
			t.Errorf("the model is %d responses ahead of its client", ahead)
		}
	}
	cancel()
	close(c.take)
	<-e.Cancelled
	<-over
}

func TestGenerateMeta(t *testing.T) {
	t.Parallel()
	s, e := serve(t)
	call(t, "POST", s.URL+"/v2/models/echo/generate", []byte(`{"X":1,"id":"9","k":"first","triton_k":true,"sequence_id":"s","parameters":{"k":2,"timeout":5,"sequence_start":true,"sequence_end":false}}`))
	want := infer.Meta{ID: "9", Sequence: infer.Sequence{Name: "s", Start: true}, Params: infer.Params{
		{Key: "k", Kind: infer.ParamString, String: "first"}, {Key: "triton_k", Kind: infer.ParamBool, Bool: true}, {Key: "timeout", Kind: infer.ParamInt, Int: 5},
	}}
	if diff := cmp.Diff(want, *e.Last.Load()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestGenerateStreamCutOff checks the last event of a stream that does not end in the time of a shutdown.
func TestGenerateStreamCutOff(t *testing.T) {
	t.Parallel()
	e := servertest.NewEcho()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	s := httpapi.New(httpapi.Settings{Infer: e, Catalog: e, Alloc: tensor.NewPool()})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+l.Addr().String()+"/v2/models/endless/generate_stream", strings.NewReader(`{"IN":[7]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Shutdown(over) }()
	events := bufio.NewScanner(resp.Body)
	last := ""
	for events.Scan() {
		if events.Text() != "" {
			last = events.Text()
		}
	}
	if want := `data: {"error":"the server stopped before this request was complete: send it again, to another server","reason":"SERVER_DRAINING","retryable":true}`; last != want {
		t.Errorf("the last event is %s, want %s", last, want)
	}
	if err := <-stopped; err == nil {
		t.Error("the shutdown did not say that a request was in progress")
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
