package httpapi_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/tracing"
)

// shows: trace
func TestTraceSetting(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/trace"
	tracer, err := tracing.New(tracing.Options{Settings: tracing.Settings{
		Level: []string{"OFF"}, Rate: "1000", Count: "-1", LogFrequency: "0", File: file,
	}})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := serve(t, func(set *httpapi.Settings) { set.Tracer = tracer })
	show := func(level, rate, count string) string {
		return `{"trace_level":["` + level + `"],"trace_rate":"` + rate + `","trace_count":"` + count +
			`","log_frequency":"0","trace_file":"` + file + `","trace_mode":"triton"}`
	}
	const global, echo = "/v2/trace/setting", "/v2/models/echo/trace/setting"
	first := show("OFF", "1000", "-1")
	for _, tt := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", global, ``, 200, first},
		{"GET", echo, ``, 200, first},
		{"POST", global, `{}`, 200, first},
		{"POST", global, `{"trace_file":"/x"}`, 501, `{"error":"trace file location can not be updated through network protocol"}`},
		{"POST", global, `{"trace_file":null,"trace_rate":"2"}`, 501, `{"error":"trace file location can not be updated through network protocol"}`},
		{"POST", global, `{"trace_rate":"x"}`, 400, `{"error":"Unable to parse 'trace_rate', got: x"}`},
		{"POST", global, `{"trace_level":["OFF","TIMESTAMPS"]}`, 400, `{"error":"Expect only one trace level 'OFF' is specified"}`},
		{"POST", global, `{"trace_rate":1}`, 500, `{"error":"Unable to parse 'trace_rate': attempt to access JSON non-string as string"}`},
		{"POST", global, `{"trace_level":["OFF",1]}`, 500, `{"error":"Unable to parse 'trace_level': attempt to access JSON non-string as string"}`},
		{"POST", global, ``, 500, `{"error":"failed to parse the request JSON buffer: The document is empty. at 0"}`},
		{"POST", echo, `{"trace_rate":["5"],"trace_level":"TIMESTAMPS","x":{}}`, 200, show("TIMESTAMPS", "5", "-1")},
		{"GET", global, ``, 200, first},
		{"POST", global, `{"trace_count":"7"}`, 200, show("OFF", "1000", "7")},
		{"GET", echo, ``, 200, show("TIMESTAMPS", "5", "7")},
		{"POST", echo, `{"trace_rate":null,"trace_level":null}`, 200, show("OFF", "1000", "7")},
		{"POST", global, `{"trace_count":null}`, 200, first},
		{"GET", "/v2/models/nope/trace/setting", ``, 400, `{"error":"Request for unknown model : nope"}`},
		{"POST", "/v2/models/nope/trace/setting", `{`, 400, `{"error":"Request for unknown model : nope"}`},
		{"GET", "/v2/models/unready/trace/setting", ``, 200, first},
	} {
		code, _, got := call(t, tt.method, s.URL+tt.path, []byte(tt.body))
		if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.code {
			t.Errorf("%s %s %s: status %d, want %d (-want +got):\n%s", tt.method, tt.path, tt.body, code, tt.code, diff)
		}
	}
}
