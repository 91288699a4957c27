package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/internal/server/httpapi"
)

// shows: http.errors
func TestInferErrors(t *testing.T) {
	t.Parallel()
	s, _ := serve(t, func(set *httpapi.Settings) { set.MaxInput = 4096 })
	deep := strings.Repeat("[", 101) + "1" + strings.Repeat("]", 101)
	ok := `"shape":[1],"datatype":"INT32","data":[1]`
	binary := func(size int) string {
		return input(`"shape":[2],"datatype":"FP32","parameters":{"binary_data_size":` + strconv.Itoa(size) + `}`)
	}
	tests := []struct {
		name string
		body string
		code int
		want string
		tail string // after the JSON, whose length is then given
		head string // header, value
	}{
		{"truncated", `{"inputs": [`, 500, "failed to parse the request JSON buffer: Invalid value. at 12", "", ""},
		{"syntax after an error of meaning", `{"inputs":5,]`, 500, "failed to parse the request JSON buffer: Missing a name for object member. at 12", "", ""},
		{"no comma", `{"id":"a" "b":1}`, 500, "failed to parse the request JSON buffer: Missing a comma or '}' after an object member. at 10", "", ""},
		{"no colon", `{"id" "a"}`, 500, "failed to parse the request JSON buffer: Missing a colon after a name of object member. at 6", "", ""},
		{"no array comma", `{"a":[1 2]}`, 500, "failed to parse the request JSON buffer: Missing a comma or ']' after an array element. at 8", "", ""},
		{"more than one", `{"inputs":[]} x`, 500, "failed to parse the request JSON buffer: The document root must not be followed by other values. at 14", "", ""},
		{"no end quote", `{"inputs":"abc`, 500, "failed to parse the request JSON buffer: Missing a closing quotation mark in string. at 14", "", ""},
		{"control character", "{\"a\":\"b\x01\"}", 500, "failed to parse the request JSON buffer: Invalid escape character in string. at 7", "", ""},
		{"escape", `{"a":"\x"}`, 500, "failed to parse the request JSON buffer: Invalid escape character in string. at 6", "", ""},
		{"hex digits", `{"a":"\u12g4"}`, 500, "failed to parse the request JSON buffer: Incorrect hex digit after \\u escape in string. at 6", "", ""},
		{"surrogate", `{"a":"\ud800"}`, 500, "failed to parse the request JSON buffer: The surrogate pair in string is invalid. at 6", "", ""},
		{"fraction", `{"a":1.}`, 500, "failed to parse the request JSON buffer: Miss fraction part in number. at 7", "", ""},
		{"exponent", `{"a":1e}`, 500, "failed to parse the request JSON buffer: Miss exponent in number. at 7", "", ""},
		{"too big", `{"a":1e999}`, 500, "failed to parse the request JSON buffer: Number too big to be stored in double. at 5", "", ""},
		{"word", `{"a":nulx}`, 500, "failed to parse the request JSON buffer: Invalid value. at 8", "", ""},
		{"too deep", input(`"shape":[1],"datatype":"INT32","data":` + deep), 400, "JSON nesting depth exceeds maximum allowed limit (100)", "", ""},

		{"no inputs", `{}`, 500, "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'", "", ""},
		{"inputs no array", `{"inputs":{}}`, 500, "Unable to parse 'inputs': attempt to access JSON non-array as array", "", ""},
		{"outputs no array", `{"outputs":1,"inputs":[]}`, 500, "Unable to parse 'outputs': attempt to access JSON non-array as array", "", ""},
		{"id no string", `{"id":1,"inputs":[]}`, 500, "Unable to parse 'id': attempt to access JSON non-string as string", "", ""},
		{"no name", `{"inputs":[{` + ok + `}]}`, 500, "Unable to parse 'name': attempt to access non-existing object member 'name'", "", ""},
		{"name no string", `{"inputs":[{"name":1,` + ok + `}]}`, 500, "Unable to parse 'name': attempt to access JSON non-string as string", "", ""},
		{"no datatype", input(`"shape":[1],"data":[1]`), 500, "Unable to parse 'datatype': attempt to access non-existing object member 'datatype'", "", ""},
		{"no shape", input(`"datatype":"INT32","data":[1]`), 500, "Unable to parse 'shape': attempt to access non-existing object member 'shape'", "", ""},
		{"shape no array", input(`"shape":1,"datatype":"INT32","data":[1]`), 500, "Unable to parse 'shape': attempt to access JSON non-array as array", "", ""},
		{"negative shape", input(`"shape":[-1],"datatype":"INT32","data":[1]`), 500, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer", "", ""},
		{"shape beyond int64", input(`"shape":[9223372036854775808],"datatype":"INT32","data":[1]`), 400, "invalid shape for input 'X': shape [-9223372036854775808] contains one or more invalid dimensions", "", ""},
		{"too many elements", input(`"shape":[4294967296,4294967296],"datatype":"INT32","data":[1]`), 400, "invalid shape for input 'X': shape [4294967296,4294967296] causes total element count to exceed maximum size of 9223372036854775807", "", ""},
		{"too many bytes", input(`"shape":[4611686018427387904],"datatype":"INT32","data":[1]`), 400, "byte size overflow for input 'X': shape [4611686018427387904] of INT32", "", ""},
		{"datatype", input(`"shape":[1],"datatype":"INT33","data":[1]`), 400, "invalid datatype for input X", "", ""},
		{"FP16 as JSON", input(`"shape":[1],"datatype":"FP16","data":[1]`), 400, "receiving FP16 data via JSON is not supported. Please use the binary data format for input X", "", ""},
		{"BF16 as JSON", input(`"data":[1],"shape":[1],"datatype":"BF16"`), 400, "receiving BF16 data via JSON is not supported. Please use the binary data format for input X", "", ""},
		{"JSON too large", input(`"shape":[2000],"datatype":"FP32","data":[1]`), 400, "JSON input 'X' has a byte_size (8000 bytes) that exceeds the maximum allowed value of 4096 bytes. Use --http-max-input-size to increase the limit.", "", ""},
		{"body too large", strings.Repeat(" ", 5000), 400, "request JSON size of 5000 bytes exceeds the maximum allowed input size of 4096 bytes. Use --http-max-input-size to increase the limit.", "", ""},

		{"raw body too large", strings.Repeat(" ", 5000), 400, "Raw input has a byte_size (5000 bytes) that exceeds the maximum allowed value of 4096 bytes. Use --http-max-input-size to increase the limit.", "", lengthHeader + ",0"},

		{"data no array", input(`"shape":[1],"datatype":"INT32","data":1`), 500, "Unable to parse 'data': attempt to access JSON non-array as array", "", ""},
		{"too few", input(`"shape":[3],"datatype":"INT32","data":[1,2]`), 500, "Unable to parse 'data': Shape does not match true shape of 'data' field", "", ""},
		{"too many", input(`"shape":[1],"datatype":"INT32","data":[1,2]`), 500, "Unable to parse 'data': Shape does not match true shape of 'data' field", "", ""},
		{"far too few", input(`"shape":[1000],"datatype":"INT32","data":[1,2]`), 500, "Unable to parse 'data': Shape does not match true shape of 'data' field", "", ""},
		{"no integer", input(`"shape":[1],"datatype":"INT32","data":[1.5]`), 500, "Unable to parse 'data': attempt to access JSON non-signed-integer as signed-integer", "", ""},
		{"negative", input(`"shape":[1],"datatype":"UINT8","data":[-1]`), 500, "Unable to parse 'data': attempt to access JSON non-unsigned-integer as unsigned-integer", "", ""},
		{"no number", input(`"shape":[1],"datatype":"FP32","data":["a"]`), 500, "Unable to parse 'data': attempt to access JSON non-number as double", "", ""},
		{"no boolean", input(`"shape":[1],"datatype":"BOOL","data":[1]`), 500, "Unable to parse 'data': attempt to access JSON non-boolean as boolean", "", ""},
		{"no string", input(`"shape":[1],"datatype":"BYTES","data":[1]`), 500, "Unable to parse JSON bytes array: attempt to access JSON non-string as string", "", ""},
		{"too few strings", input(`"shape":[2],"datatype":"BYTES","data":["a"]`), 400, "[request id: <id_unknown>] expected 2 string elements for inference input 'X' for model 'echo', got 1", "", ""},
		{"too few strings in both", `{"inputs":[{"name":"X","shape":[2],"datatype":"BYTES","data":["a"]},{"name":"Y","shape":[3],"datatype":"BYTES","data":["a"]}]}`, 400, "[request id: <id_unknown>] expected 3 string elements for inference input 'Y' for model 'echo', got 1", "", ""},
		{"too many strings", `{"id":"9",` + input(`"shape":[1],"datatype":"BYTES","data":["a","b"]`)[1:], 400, "[request id: 9] unexpected number of string elements 2 for inference input 'X' for model 'echo', expecting 1", "", ""},

		{"no source", input(`"shape":[1],"datatype":"INT32"`), 400, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But no field is set", "", ""},
		{"input no object", `{"inputs":[3]}`, 400, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But no field is set", "", ""},
		{"two sources", input(`"shape":[1],"datatype":"INT32","data":[1],"parameters":{"binary_data_size":4}`), 400, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But set 'data' 'binary_data_size'", "", ""},
		{"shared memory", input(`"shape":[1],"datatype":"INT32","parameters":{"shared_memory_region":"r"}`), 501, "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.", "", ""},
		{"binary_data_size", input(`"shape":[1],"datatype":"INT32","parameters":{"binary_data_size":"a"}`), 500, "Unable to parse 'binary_data_size': attempt to access JSON non-unsigned-integer as unsigned-integer", "", ""},
		{"input twice", `{"inputs":[{"name":"X",` + ok + `},{"name":"X",` + ok + `}]}`, 400, "[request id: <id_unknown>] input 'X' already exists in request", "", ""},
		{"output twice", `{"outputs":[{"name":"X"},{"name":"X"}],` + input(ok)[1:], 400, "[request id: <id_unknown>] output 'X' already exists in request", "", ""},
		{"no output name", `{"outputs":[{}],` + input(ok)[1:], 500, "Unable to parse 'name': attempt to access non-existing object member 'name'", "", ""},
		{"classification", `{"outputs":[{"name":"X","parameters":{"classification":"a"}}],` + input(ok)[1:], 500, "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer", "", ""},
		{"classes below none", `{"outputs":[{"name":"X","parameters":{"classification":-1}}],` + input(ok)[1:], 500, "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer", "", ""},
		{"region and no class", `{"outputs":[{"name":"X","parameters":{"shared_memory_region":"r","classification":0}}],` + input(ok)[1:], 400, "Output can't set both 'shared_memory_region' and 'classification'", "", ""},
		{"region no string", input(`"shape":[1],"datatype":"INT32","parameters":{"shared_memory_region":1}`), 500, "Unable to parse 'shared_memory_region': attempt to access JSON non-string as string", "", ""},
		{"region offset", input(`"shape":[1],"datatype":"INT32","parameters":{"shared_memory_offset":-1,"shared_memory_region":"r"}`), 500, "Unable to parse 'shared_memory_offset': attempt to access JSON non-unsigned-integer as unsigned-integer", "", ""},
		{"region size", input(`"shape":[1],"datatype":"INT32","parameters":{"shared_memory_byte_size":null,"shared_memory_region":"r"}`), 500, "Unable to parse 'shared_memory_byte_size': attempt to access JSON non-unsigned-integer as unsigned-integer", "", ""},
		{"region and data", input(`"shape":[1],"datatype":"INT32","data":[1],"parameters":{"shared_memory_region":"r"}`), 400, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But set 'data' 'shared_memory_region'", "", ""},
		{"every source", input(`"shape":[1],"datatype":"INT32","data":[1],"parameters":{"shared_memory_region":"r","binary_data_size":4}`), 400, "Input must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'. But set 'data' 'binary_data_size' 'shared_memory_region'", "", ""},
		{"output region", `{"outputs":[{"name":"X","parameters":{"shared_memory_region":"r"}}],` + input(ok)[1:], 501, "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.", "", ""},
		{"region and class", `{"outputs":[{"name":"X","parameters":{"shared_memory_region":"r","classification":1}}],` + input(ok)[1:], 400, "Output can't set both 'shared_memory_region' and 'classification'", "", ""},
		{"region and binary", `{"outputs":[{"name":"X","parameters":{"shared_memory_region":"r","binary_data":true}}],` + input(ok)[1:], 400, "Output can't set both 'shared_memory_region' and 'binary_data'", "", ""},
		{"binary_data", `{"outputs":[{"name":"X","parameters":{"binary_data":1}}],` + input(ok)[1:], 500, "Unable to parse 'binary_data': attempt to access JSON non-boolean as boolean", "", ""},
		{"reserved parameter", `{"parameters":{"triton_x":1},` + input(ok)[1:], 400, "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.", "", ""},
		{"parameter type", `{"parameters":{"k":null},` + input(ok)[1:], 400, "parameter 'k' has invalid type. It should be either 'int', 'bool', or 'string'.", "", ""},
		{"priority", `{"parameters":{"priority":-1},` + input(ok)[1:], 500, "Unable to parse 'priority': attempt to access JSON non-unsigned-integer as unsigned-integer", "", ""},
		{"sequence id", `{"parameters":{"sequence_id":1.5},` + input(ok)[1:], 500, "Unable to parse 'sequence_id': attempt to access JSON non-string as string", "", ""},

		{"binary cut short", binary(8), 400, "unexpected size for input 'X', expecting 3 additional bytes for model 'echo'", "12345", ""},
		{"binary without a header and zeros", binary(8) + "\x00\x00\x00\x00\x00\x00\x00\x00", 400, "unexpected size for input 'X', expecting 8 additional bytes for model 'echo'", "", ""},
		{"binary without a header", binary(8), 400, "unexpected size for input 'X', expecting 8 additional bytes for model 'echo'", "", ""},
		{"binary too long", binary(8), 400, "unexpected additional input data for model 'echo'", "123456789", ""},
		{"binary against the shape", binary(4), 400, "[request id: <id_unknown>] input byte size mismatch for input 'X' for model 'echo'. Expected 8, got 4", "1234", ""},
		{"binary size beyond all", input(`"shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":18446744073709551615}`), 400, "unexpected size for input 'X', expecting 9223372036854775804 additional bytes for model 'echo'", "abc", ""},
		{"BYTES length cut", input(`"shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":7}`), 400, "[request id: <id_unknown>] incomplete string length indicator for inference input 'X' for model 'echo', expecting 4 bytes but only 2 bytes available", "\x01\x00\x00\x00aab", ""},
		{"BYTES element cut", input(`"shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":6}`), 400, "[request id: <id_unknown>] incomplete string data for inference input 'X' for model 'echo', expecting string of length 9 but only 2 bytes available", "\x09\x00\x00\x00aa", ""},
		{"header length beyond body", input(ok), 400, "inference header size should be in range (0, 67), got: 1000", "", lengthHeader + ",1000"},
		{"header length negative", input(ok), 400, "inference header size should be in range (0, 67), got: -1", "", lengthHeader + ",-1"},
		{"header length out of range", input(ok), 400, "Unable to parse Inference-Header-Content-Length, value is out of range [ -2147483648, 2147483647 ], got: 99999999999", "", lengthHeader + ",99999999999"},
		{"header length with more", input(ok), 400, "Unable to parse Inference-Header-Content-Length, got: 5x", "", lengthHeader + ",5x"},
		{"header length no number", input(ok), 400, "Unable to parse Inference-Header-Content-Length, got: x", "", lengthHeader + ",x"},
		{"encoding", input(ok), 501, "Unsupported compression type", "", "Content-Encoding,br"},
		{"gzip", input(ok), 400, "failed to decompress the request: flate: corrupt input before offset 9", "", "Content-Encoding,gzip"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var header []string
			if tt.tail != "" {
				header = []string{lengthHeader, strconv.Itoa(len(tt.body))}
			}
			if name, value, ok := strings.Cut(tt.head, ","); ok {
				header = []string{name, value}
			}
			code, h, got := call(t, "POST", s.URL+"/v2/models/echo/infer", []byte(tt.body+tt.tail), header...)
			want := `{"error":"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(tt.want) + `"}`
			if diff := cmp.Diff(want, got); diff != "" || code != tt.code {
				t.Errorf("status %d, want %d (-want +got):\n%s", code, tt.code, diff)
			}
			wantType := "application/json"
			if tt.head != "" && !strings.HasSuffix(tt.head, ",0") { // wrong before the body is read
				wantType = "text/plain"
			}
			if h.Get("Content-Type") != wantType {
				t.Errorf("type %q, want %q", h.Get("Content-Type"), wantType)
			}
		})
	}
}

func TestModelErrors(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	good := input(`"shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}`)
	tests := []struct {
		path, body string
		code       int
		want       string // the text, and the members behind it
	}{
		{"nope/infer", good, 400, "Request for unknown model: 'nope' is not found"},
		{"nope/infer", "{", 400, "Request for unknown model: 'nope' is not found"},
		{"echo/versions/7/infer", good, 404, "Request for unknown model: 'echo' version 7 is not found"},
		{"echo/versions/0/infer", good, 400, "failed to get model version from specified version string '0', version should be an integral value > 0"},
		{"echo/versions/99999999999999999999/infer", good, 400, "failed to get model version from specified version string '99999999999999999999' (details: stol), version should be an integral value > 0"},
		{"unready/infer", good, 503, `Request for unknown model: 'unready' version 1 is not at ready state","reason":"MODEL_NOT_READY","retryable":true`},
		{"fail/infer", good, 500, `in ensemble 'fail', it went \"wrong\"`},
		{"silent/infer", good, 500, "received an unexpected null response"},
		{"short/infer", strings.Replace(good, "FP16", "INT16", 1), 500, "output tensor shape does not match size of output for 'X'"},
		{"echo/infer", good, 400, "sending FP16 data via JSON is not supported. Please use the binary data format for output X"},
		{"two/infer", "", 400, "[request id: <id_unknown>] Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'two' model configuration"},
		{"raw_strings/infer", "", 400, "[request id: <id_unknown>] For BYTE datatype raw input 'X', the model must have input shape [1], got [-1]"},
		{"raw_wide/infer", "", 400, "[request id: <id_unknown>] The shape of the raw input 'X' can not be deduced because there are more than one variable-sized dimension"},
		{"raw/infer", "", 200, ""},
	}
	for _, tt := range tests {
		t.Run(tt.path+tt.want, func(t *testing.T) {
			t.Parallel()
			body, header := tt.body, []string(nil)
			if body == good || strings.Contains(body, "INT16") {
				header = []string{lengthHeader, strconv.Itoa(len(body))}
				body += "ab"
			}
			code, _, got := call(t, "POST", s.URL+"/v2/models/"+tt.path, []byte(body), header...)
			if code != tt.code || tt.want != "" && got != `{"error":"`+tt.want+`"}` && got != `{"error":"`+tt.want+`}` {
				t.Errorf("status %d, response %s; want %d, %s", code, got, tt.code, tt.want)
			}
		})
	}
}

// TestConnectionSurvivesErrors sends good and bad requests on one connection.
func TestConnectionSurvivesErrors(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	connections := 0
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
		if !c.Reused {
			connections++
		}
	}})
	client := http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer client.CloseIdleConnections()
	for i := range 20 {
		body := input(`"shape":[1],"datatype":"INT32","data":[1]`)
		if i%2 == 0 {
			body = "{" + strings.Repeat(" ", i*1000) + "]"
		}
		req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v2/models/echo/infer", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if want := []int{500, 200}[i%2]; resp.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i, resp.StatusCode, want)
		}
	}
	if connections != 1 {
		t.Errorf("%d connections for one client", connections)
	}
}

// TestChunkedErrors sends malformed chunked bodies, which are errors of the client.
func TestChunkedErrors(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	for name, chunk := range map[string]string{"size": "zz\r\n{}", "end": "2\r\n{}xx", "huge": "fffffffffffffffff\r\n{}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", s.Listener.Addr().String()) //nolint:noctx // loopback
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			head := "POST /v2/models/echo/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
			if _, err := io.WriteString(conn, head+chunk); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			text, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 400 || !strings.HasPrefix(string(text), `{"error":"failed to read the request: `) {
				t.Errorf("got status %d, response %s, error %v", resp.StatusCode, text, err)
			}
		})
	}
}

// TestErrorIsUTF8 sends a name that is not UTF-8: the response must be valid JSON.
func TestErrorIsUTF8(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	code, _, got := call(t, "POST", s.URL+"/v2/models/%ff%fe/infer", []byte(`{"inputs":[]}`))
	if want := `{"error":"Request for unknown model: '` + "\ufffd" + `' is not found"}`; code != 400 || got != want {
		t.Errorf("got status %d, response %q, want %q", code, got, want)
	}
}
