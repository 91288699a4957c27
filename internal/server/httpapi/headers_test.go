package httpapi_test

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/httpapi"
)

// shows: forward
func TestForwardHeaders(t *testing.T) {
	t.Parallel()
	address, e := listen(t, func(set *httpapi.Settings) { set.Forward = regexp.MustCompile("(?i)my_|sequence_|triton|^priority$") })
	url := "http://" + address + inferPath
	in := `{"parameters":{"my_number":1,"k":2},` + goodInput[1:]
	code, _, got := call(t, "POST", url, []byte(in), "MY_Header", "a", "x-my_other", "b", "Another", "c", "my_number", "d")
	if code != http.StatusOK {
		t.Fatal(code, got)
	}
	have := e.Last.Load().Params
	slices.SortFunc(have, func(a, b infer.Param) int { return cmp.Compare(a.Key, b.Key) })
	want := infer.Params{
		{Key: "k", Kind: infer.ParamInt, Int: 2},
		{Key: "my_header", Kind: infer.ParamString, String: "a"},
		{Key: "my_number", Kind: infer.ParamString, String: "d"},
		{Key: "x-my_other", Kind: infer.ParamString, String: "b"},
	}
	if diff := gocmp.Diff(want, have); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{
		"Sequence_id": "sequence_id", "sequence_start": "sequence_start", "TRITON_x": "triton_x", "priority": "priority",
	} {
		code, _, got := call(t, "POST", url, []byte(goodInput), name, "1")
		if want = `{"error":"Header '` + want + `' is reserved for Triton usage and cannot be forwarded."}`; code != http.StatusBadRequest || got != want {
			t.Errorf("%s: status %d, %s, want %s", name, code, got, want)
		}
	}
}

// TestForwardAsSent checks that values are forwarded in the order of the headers and with trailing blanks, as in Triton.
//
// shows: forward
func TestForwardAsSent(t *testing.T) {
	t.Parallel()
	address, e := listen(t, func(set *httpapi.Settings) { set.Forward = regexp.MustCompile("(?i)my_") })
	c := dial(t, address)
	c.send("POST " + inferPath + " HTTP/1.1\r\nHost: x\r\nmy_z:  a \\ \r\nMY_a:b\r\nmy_Z: c \r\nContent-Length: " + strconv.Itoa(len(goodInput)) + " \r\n\r\n" + goodInput)
	if code, body, _ := c.response(); code != http.StatusOK {
		t.Fatal(code, body)
	}
	want := infer.Params{{Key: "my_z", Kind: infer.ParamString, String: "c "}, {Key: "my_a", Kind: infer.ParamString, String: "b"}}
	if diff := gocmp.Diff(want, e.Last.Load().Params); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestForwardNothing(t *testing.T) {
	t.Parallel()
	address, e := listen(t)
	if code, _, got := call(t, "POST", "http://"+address+inferPath, []byte(goodInput), "triton_x", "1"); code != http.StatusOK {
		t.Error(code, got)
	}
	if p := e.Last.Load().Params; len(p) > 0 {
		t.Errorf("parameters %v", p)
	}
}

// TestRestricted sends requests of every part of the API with the header, without it and with another value.
//
// shows: restricted
func TestRestricted(t *testing.T) {
	t.Parallel()
	paths := map[infer.API][]string{
		infer.APIHealth:          {"GET /v2/health/live", "GET /v2/health/ready", "GET /v2/models/echo/ready", "GET /v2/models/echo/versions/1/ready"},
		infer.APIMetadata:        {"GET /v2", "GET /v2/models/echo", "GET /v2/models/echo/versions/1"},
		infer.APIInference:       {"POST /v2/models/echo/infer", "POST /v2/models/echo/versions/1/infer", "POST /v2/models/echo/generate", "POST /v2/models/echo/generate_stream"},
		infer.APISharedMemory:    {"GET /v2/systemsharedmemory/status", "POST /v2/cudasharedmemory/region/r/register", "POST /v2/systemsharedmemory/unregister"},
		infer.APIModelConfig:     {"GET /v2/models/echo/config"},
		infer.APIModelRepository: {"POST /v2/repository/index", "POST /v2/repository/models/m/load", "POST /v2/repository/r/models/m/unload"},
		infer.APIStatistics:      {"GET /v2/models/stats", "GET /v2/models/echo/stats"},
		infer.APITrace:           {"GET /v2/trace/setting", "POST /v2/models/echo/trace/setting"},
		infer.APILogging:         {"GET /v2/logging"},
	}
	for api := range paths {
		t.Run(api.String(), func(t *testing.T) {
			t.Parallel()
			if got, ok := infer.ParseAPI(api.String()); !ok || got != api {
				t.Errorf("%s is read as %s", api, got)
			}
			address, _ := listen(t, func(set *httpapi.Settings) {
				set.Restricted = []infer.Restriction{{APIs: []infer.API{api}, Key: "infer-key", Value: "infer-value"}}
			})
			for other, list := range paths {
				for _, path := range list {
					method, url := path[:4], "http://"+address+path[5:]
					if path[3] == ' ' {
						method, url = "GET", "http://"+address+path[4:]
					}
					for _, value := range []string{"", "infer-values", "infer-value"} {
						code, _, got := call(t, method, url, nil, "Infer-Key", value)
						rejected := code == http.StatusForbidden
						if want := other == api && value != "infer-value"; rejected != want {
							t.Errorf("%s with %q: status %d, rejected should be %v", path, value, code, want)
						}
						if rejected && got != `{"error":"This API is restricted, expecting header 'infer-key'","reason":"PERMISSION_DENIED","retryable":false}` {
							t.Errorf("%s: %s", path, got)
						}
					}
				}
			}
			code, _, _ := call(t, "PUT", "http://"+address+"/v2/models/echo/ready", nil)
			if want := map[bool]int{true: 403, false: 405}[api == infer.APIHealth]; code != want {
				t.Errorf("a wrong method: status %d, want %d", code, want)
			}
		})
	}
	if _, ok := infer.ParseAPI("infer"); ok {
		t.Error("infer is no category")
	}
}
