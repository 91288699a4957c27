package httpapi_test

import (
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/logs"
	"github.com/tutti-server/tutti/internal/server/httpapi"
)

// shows: logging
func TestLogging(t *testing.T) {
	t.Parallel()
	l, err := logs.New(logs.Settings{Info: true, Warning: true, Error: true}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := serve(t, func(set *httpapi.Settings) { set.Logs = l })
	const (
		first  = `{"log_file":"","log_info":true,"log_warning":true,"log_error":true,"log_verbose_level":0,"log_format":"default"}`
		second = `{"log_file":"","log_info":false,"log_warning":true,"log_error":true,"log_verbose_level":2,"log_format":"ISO8601"}`
	)
	for _, tt := range []struct {
		method, body string
		code         int
		want         string
	}{
		{"GET", ``, 200, first},
		{"POST", `{}`, 200, first},
		{"POST", `{"log_info":false,"log_file":"/x"}`, 501, `{"error":"log file location can not be updated through network protocol"}`},
		{"POST", `{"log_info":false,"log_format":"x"}`, 503, `{"error":"invalid argument for --log_format, got: x","reason":"INVALID_ARGUMENT","retryable":false}`},
		{"POST", `{"log_info":0}`, 500, `{"error":"Unable to parse 'log_info': attempt to access JSON non-boolean as boolean"}`},
		{"POST", `{"log_verbose_level":-1}`, 500, `{"error":"Unable to parse 'log_verbose_level': attempt to access JSON non-unsigned-integer as unsigned-integer"}`},
		{"POST", `{"log_verbose_level":4294967296}`, 500, `{"error":"Unable to parse 'log_verbose_level': attempt to access JSON non-unsigned-integer as unsigned-integer"}`},
		{"POST", `{"log_format":1}`, 500, `{"error":"Unable to parse 'log_format': attempt to access JSON non-string as string"}`},
		{"POST", ``, 500, `{"error":"failed to parse the request JSON buffer: The document is empty. at 0"}`},
		{"POST", `[]`, 500, `{"error":"attempt to get members for non-object"}`},
		{"GET", ``, 200, first},
		{"POST", `{"log_info":false,"log_verbose_level":2,"log_format":"ISO8601","log_file":null,"log_error":null,"x":[1]}`, 200, second},
		{"GET", ``, 200, second},
	} {
		code, _, got := call(t, tt.method, s.URL+"/v2/logging", []byte(tt.body))
		if diff := cmp.Diff(tt.want, got); diff != "" || code != tt.code {
			t.Errorf("%s %s: status %d, want %d (-want +got):\n%s", tt.method, tt.body, code, tt.code, diff)
		}
	}
}
