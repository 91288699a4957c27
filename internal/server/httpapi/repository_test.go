package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// shows: repository
func TestRepository(t *testing.T) {
	t.Parallel()
	l := servertest.NewLifecycle("a", "b", "c")
	s, _ := serve(t, func(set *httpapi.Settings) { set.Lifecycle = l })
	const models = "/v2/repository/models/"
	deep := strings.Repeat(`[{"a":`, 10000) + "1" + strings.Repeat("}]", 10000)
	for _, tt := range []struct {
		path, body string
		code       int
		want       string
	}{
		{"/v2/repository/index", ``, 200, `[{"name":"a"},{"name":"b"},{"name":"c"}]`},
		{"/v2/repository/index", `{"ready":true}`, 200, `[]`},
		{models + "b/load", ``, 200, ``},
		{models + "c/load", `{"parameters":{"config":"{\"name\":\"c\"}","file:1/x.bin":"AAEC","file:":""}}`, 200, ``},
		{models + "a%2Fb/load", `{"x":1,"parameters":{}}`, 404, `{"error":"Not Found"}`},
		{models + "bad/load", ``, 500, `{"error":"failed to load 'bad', failed to poll from model repository"}`},
		{models + "b/load", `{"parameters":{"x":"y"}}`, 500, `{"error":"unexpected error on creating Triton parameter"}`},
		{models + "b/load", `{"parameters":{"x":1}}`, 500, `{"error":"Unable to parse 'x': attempt to access JSON non-string as string"}`},
		{models + "b/load", `{"parameters":{"config":{}}}`, 500, `{"error":"Unable to parse 'config': attempt to access JSON non-string as string"}`},
		{models + "b/load", `{"parameters":[]}`, 500, `{"error":"attempt to get members for non-object"}`},
		{models + "b/load", `{"parameters":{"file:1/m":"!"}}`, 400, `{"error":"unable to decode 'file:1/m': expected base64, illegal base64 data at input byte 0"}`},
		{models + "b/load", `{"parameters`, 500, `{"error":"failed to parse the request JSON buffer: Missing a closing quotation mark in string. at 12"}`},
		{models + "b/unload", ``, 200, ``},
		{models + "c/unload", `{"parameters":{"unload_dependents":true,"x":[1]}}`, 200, ``},
		{models + "nope/unload", `{}`, 200, ``},
		{models + "b/unload", `{"parameters":{"unload_dependents":1}}`, 500, `{"error":"Unable to parse 'unload_dependents': attempt to access JSON non-boolean as boolean"}`},
		{"/v2/repository/r/models/b/load", ``, 501, `{"error":"'repository_name' specification is not supported"}`},
		{"/v2/repository/r/models/b/unload", ``, 501, `{"error":"'repository_name' specification is not supported"}`},
		{models + "a/load", ``, 200, ``},
		{"/v2/repository/r/index", `{"ready":false}`, 200, `[{"name":"a","version":"1","state":"READY"},{"name":"b","version":"1","state":"UNAVAILABLE","reason":"unloaded"},{"name":"c","version":"1","state":"UNAVAILABLE","reason":"unloaded"}]`},
		{"/v2/repository/index", `{"ready":true,"x":null}`, 200, `[{"name":"a","version":"1","state":"READY"}]`},
		{"/v2/repository/index", `{"ready":` + deep + `}`, 400, `{"error":"Invalid value for 'ready': expected a boolean"}`},
		{"/v2/repository/index", `{"x":` + deep + `,"ready":true}`, 200, `[{"name":"a","version":"1","state":"READY"}]`},
		{"/v2/repository/index", ` `, 500, `{"error":"failed to parse the request JSON buffer: The document is empty. at 1"}`},
		{"/v2/repository/index", `{"ready":"yes"}`, 400, `{"error":"Invalid value for 'ready': expected a boolean"}`},
	} {
		code, _, got := call(t, "POST", s.URL+tt.path, []byte(tt.body))
		if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.code {
			t.Errorf("%s %s: status %d, want %d (-want +got):\n%s", tt.path, tt.body, code, tt.code, diff)
		}
	}
	want := []servertest.Load{
		{Model: "b"},
		{Model: "c", Options: infer.LoadOptions{Config: `{"name":"c"}`, Files: map[string][]byte{"1/x.bin": {0, 1, 2}, "": {}}}},
		{Model: "bad"},
		{Model: "b", Unload: true},
		{Model: "c", Unload: true, Dependents: true},
		{Model: "nope", Unload: true},
		{Model: "a"},
	}
	if diff := cmp.Diff(want, l.Calls()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	if code, _, _ := call(t, "GET", s.URL+"/v2/repository/index", nil); code != http.StatusMethodNotAllowed {
		t.Errorf("GET index: %d", code)
	}
}
