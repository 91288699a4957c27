package httpapi_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

const lengthHeader = "Inference-Header-Content-Length"

// serve starts a server with echoing models and an allocator that fails the test if memory is not released.
func serve(t *testing.T, change ...func(*httpapi.Settings)) (*httptest.Server, *servertest.Echo) {
	t.Helper()
	e := servertest.NewEcho()
	set := httpapi.Settings{
		Infer: e, Catalog: e, Alloc: tensortest.NewChecked(t, nil),
		Name: "tutti", Version: "1.0.0", Extensions: []string{"binary_tensor_data", "parameters"},
	}
	for _, c := range change {
		c(&set)
	}
	s := httptest.NewServer(httpapi.New(set))
	t.Cleanup(s.Close)
	return s, e
}

// call sends a request and returns the status, header and body of the response.
func call(t *testing.T, method, url string, body []byte, header ...string) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

func fp32(v ...float32) []byte {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

func elements(list ...string) []byte {
	var b []byte
	for _, s := range list {
		b = tensor.AppendBytes(b, s)
	}
	return b
}

func input(rest string) string { return `{"inputs":[{"name":"X",` + rest + `}]}` }

func output(rest string) string {
	return `{"model_name":"echo","model_version":"1","outputs":[{"name":"X",` + rest + `}]}`
}

func TestInferJSON(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	tests := []struct{ name, in, want string }{
		{
			"flat", input(`"shape":[2,2],"datatype":"FP32","data":[0.1,2,-3e2,1e-9]`),
			output(`"datatype":"FP32","shape":[2,2],"data":[0.10000000149011612,2.0,-300.0,9.999999717180685e-10]`),
		},
		{
			"nested", input(`"shape":[2,2],"datatype":"INT32","data":[[1,2],[3,4]]`),
			output(`"datatype":"INT32","shape":[2,2],"data":[1,2,3,4]`),
		},
		{
			"data before shape and type", input(`"data":[[1],[2]],"datatype":"UINT16","shape":[2,1]`),
			output(`"datatype":"UINT16","shape":[2,1],"data":[1,2]`),
		},
		{
			"INT8 wraps", input(`"shape":[2],"datatype":"INT8","data":[200,-1]`),
			output(`"datatype":"INT8","shape":[2],"data":[-56,-1]`),
		},
		{
			"64 bits", input(`"shape":[2],"datatype":"INT64","data":[-9223372036854775808,9223372036854775807]`),
			output(`"datatype":"INT64","shape":[2],"data":[-9223372036854775808,9223372036854775807]`),
		},
		{
			"64 bits unsigned", input(`"shape":[1],"datatype":"UINT64","data":[18446744073709551615]`),
			output(`"datatype":"UINT64","shape":[1],"data":[18446744073709551615]`),
		},
		{
			"small types", `{"inputs":[{"name":"A","shape":[1],"datatype":"UINT8","data":[255]},` +
				`{"name":"B","shape":[1],"datatype":"INT16","data":[-5]},{"name":"C","shape":[1],"datatype":"UINT32","data":[7]}]}`,
			`{"model_name":"echo","model_version":"1","outputs":[{"name":"A","datatype":"UINT8","shape":[1],"data":[255]},` +
				`{"name":"B","datatype":"INT16","shape":[1],"data":[-5]},{"name":"C","datatype":"UINT32","shape":[1],"data":[7]}]}`,
		},
		{
			"BOOL", input(`"shape":[2],"datatype":"BOOL","data":[true,false]`),
			output(`"datatype":"BOOL","shape":[2],"data":[true,false]`),
		},
		{
			"FP64", input(`"shape":[6],"datatype":"FP64","data":[0.1,1e20,1e21,-0.0,1e-7,123456789.125]`),
			output(`"datatype":"FP64","shape":[6],"data":[0.1,100000000000000000000.0,1e21,-0.0,1e-7,123456789.125]`),
		},
		{
			"not finite", input(`"shape":[4],"datatype":"FP32","data":[NaN,Inf,-Infinity,-NaN]`),
			output(`"datatype":"FP32","shape":[4],"data":[NaN,Infinity,-Infinity,NaN]`),
		},
		{
			"BYTES", input(`"shape":[3],"datatype":"BYTES","data":["a\"b","","\u00e9\ud83d\ude00\n\u0001"]`),
			output(`"datatype":"BYTES","shape":[3],"data":["a\"b","","é😀\n\u0001"]`),
		},
		{
			"no elements", input(`"shape":[0,4],"datatype":"FP32","data":[]`),
			output(`"datatype":"FP32","shape":[0,4],"data":[]`),
		},
		{
			"scalar", input(`"shape":[],"datatype":"INT32","data":[5]`),
			output(`"datatype":"INT32","shape":[],"data":[5]`),
		},
		{
			"ten dimensions", input(`"shape":[1,1,1,1,1,1,1,1,1,2],"datatype":"INT32","data":[5,6]`),
			output(`"datatype":"INT32","shape":[1,1,1,1,1,1,1,1,1,2],"data":[5,6]`),
		},
		{
			"unknown members and spaces", " {\n\"extra\":{\"a\":[1,{}, null]},\"inputs\" : [ {\"zap\":[], \"name\":\"X\"," +
				"\"shape\": [ 1 ] ,\"datatype\":\"INT32\", \"data\": [ 5 ] } ] , \"more\":true } ",
			output(`"datatype":"INT32","shape":[1],"data":[5]`),
		},
		{
			"the first of two members counts", input(`"shape":[1],"shape":[2],"datatype":"INT32","data":[5]`),
			output(`"datatype":"INT32","shape":[1],"data":[5]`),
		},
		{
			"id and requested output", `{"id":"r\u00311","outputs":[{"name":"B"}],"inputs":[` +
				`{"name":"A","shape":[1],"datatype":"INT32","data":[1]},{"name":"B","shape":[1],"datatype":"INT32","data":[2]}]}`,
			`{"id":"r11","model_name":"echo","model_version":"1","outputs":[{"name":"B","datatype":"INT32","shape":[1],"data":[2]}]}`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			code, h, got := call(t, "POST", s.URL+"/v2/models/echo/infer", []byte(tt.in))
			if diff := cmp.Diff(tt.want, got); diff != "" || code != http.StatusOK {
				t.Errorf("status %d, response (-want +got):\n%s", code, diff)
			}
			if h.Get("Content-Type") != "application/json" || h.Get("Content-Length") != strconv.Itoa(len(got)) {
				t.Errorf("headers %v", h)
			}
		})
	}
}

func TestInferBinary(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	tests := []struct {
		name, head, tail, wantHead, wantTail string
		chunked                              bool
	}{
		{
			name:     "binary in and out",
			head:     `{"parameters":{"binary_data_output":true},"inputs":[{"name":"X","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`,
			tail:     string(fp32(1, 2)),
			wantHead: output(`"datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8}`),
			wantTail: string(fp32(1, 2)),
		},
		{
			name: "mixed inputs and outputs",
			head: `{"inputs":[{"name":"A","shape":[1],"datatype":"FP16","parameters":{"binary_data_size":2}},` +
				`{"name":"B","shape":[1],"datatype":"INT32","data":[3]},` +
				`{"name":"C","shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":11}}],` +
				`"outputs":[{"name":"C","parameters":{"binary_data":true}},{"name":"B"},{"name":"A","parameters":{"binary_data":true}}]}`,
			tail: "\x01\x02" + string(elements("abc", "")),
			wantHead: `{"model_name":"echo","model_version":"1","outputs":[{"name":"C","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":11}},` +
				`{"name":"B","datatype":"INT32","shape":[1],"data":[3]},{"name":"A","datatype":"FP16","shape":[1],"parameters":{"binary_data_size":2}}]}`,
			wantTail: string(elements("abc", "")) + "\x01\x02",
		},
		{
			name:     "binary in, JSON out, chunked",
			head:     input(`"shape":[2],"datatype":"BYTES","parameters":{"binary_data_size":10}`),
			tail:     string(elements("a", "b")),
			wantHead: output(`"datatype":"BYTES","shape":[2],"data":["a","b"]`),
			chunked:  true,
		},
		{
			name:     "no elements in binary",
			head:     `{"parameters":{"binary_data_output":true},"inputs":[{"name":"X","shape":[0],"datatype":"BF16","parameters":{"binary_data_size":0}}]}`,
			wantHead: output(`"datatype":"BF16","shape":[0],"parameters":{"binary_data_size":0}`),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var body io.Reader = strings.NewReader(tt.head + tt.tail)
			if tt.chunked {
				body = io.MultiReader(body)
			}
			req, err := http.NewRequestWithContext(t.Context(), "POST", s.URL+"/v2/models/echo/versions/1/infer", body)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set(lengthHeader, strconv.Itoa(len(tt.head)))
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.wantHead+tt.wantTail, string(got)); diff != "" {
				t.Errorf("status %d, response (-want +got):\n%s", resp.StatusCode, diff)
			}
			wantType, wantLength := "application/json", ""
			if tt.wantTail != "" {
				wantType, wantLength = "application/octet-stream", strconv.Itoa(len(tt.wantHead))
			}
			if h := resp.Header; h.Get("Content-Type") != wantType || h.Get(lengthHeader) != wantLength {
				t.Errorf("headers %v, want type %s and JSON length %q", h, wantType, wantLength)
			}
		})
	}
}

func TestInferLargeTensor(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 1<<20)
	head := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"X","shape":[1048576],"datatype":"FP32","parameters":{"binary_data_size":4194304}}]}`
	code, h, got := call(t, "POST", s.URL+"/v2/models/echo/infer", append([]byte(head), data...), lengthHeader, strconv.Itoa(len(head)))
	n, err := strconv.Atoi(h.Get(lengthHeader))
	if code != http.StatusOK || err != nil || n > len(got) || got[n:] != string(data) {
		t.Errorf("status %d, headers %v, %d bytes", code, h, len(got))
	}
}

func TestInferRaw(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	tests := []struct {
		model, body, header, want string
	}{
		{"raw", string(fp32(1, 2, 3, 4)), "0", `"datatype":"FP32","shape":[2,2],"parameters":{"binary_data_size":16}`},
		{"raw_batch", "\x01\x00\x00\x00", "0", `"datatype":"INT32","shape":[1,1],"parameters":{"binary_data_size":4}`},
		{"raw_batch", "", "", `"datatype":"INT32","shape":[1,0],"parameters":{"binary_data_size":0}`},
		{"raw_bytes", "hello", "0", `"datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":9}`},
	}
	for _, tt := range tests {
		t.Run(tt.model+tt.header, func(t *testing.T) {
			t.Parallel()
			var header []string
			if tt.header != "" {
				header = []string{lengthHeader, tt.header}
			}
			code, _, got := call(t, "POST", s.URL+"/v2/models/"+tt.model+"/infer", []byte(tt.body), header...)
			want := `{"model_name":"` + tt.model + `","model_version":"1","outputs":[{"name":"X",` + tt.want + `}]}`
			if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, tt.body) || code != http.StatusOK {
				t.Errorf("status %d, got %q, want it to begin with %q", code, got, want)
			}
		})
	}
}

// TestInferOnlyHeaderMakesRaw sends raw tensors without the header that declares them: they must fail as JSON.
func TestInferOnlyHeaderMakesRaw(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	const syntax, lacking = "failed to parse the request JSON buffer: ", "Unable to parse 'inputs': attempt to access non-existing object member 'inputs'"
	for body, want := range map[string]string{
		"hello":                  syntax + "Invalid value. at 0",
		"   ":                    syntax + "The document is empty. at 3",
		"\x00\x00\x80\x3f":       syntax + "The document is empty. at 0",
		"\xef\xbb\xbf":           syntax + "The document is empty. at 3",
		"[1,]":                   syntax + "Invalid value. at 3",
		`[{"inputs":[]}]`:        lacking,
		"\xef\xbb\xbf" + ` {}`:   lacking,
		"null":                   lacking,
		`{"inputs":[]}` + "\x00": "",
	} {
		for _, model := range []string{"raw", "raw_bytes"} {
			code, _, got := call(t, "POST", s.URL+"/v2/models/"+model+"/infer", []byte(body), "Content-Type", "application/json")
			if want != "" && (code != http.StatusInternalServerError || got != `{"error":"`+want+`"}`) || want == "" && code != http.StatusOK {
				t.Errorf("%s, body %q: got status %d, %s, want %s", model, body, code, got, want)
			}
		}
	}
}

func TestInferParameters(t *testing.T) {
	t.Parallel()
	s, e := serve(t)
	in := `{"id":"7","parameters":{"sequence_id":42,"sequence_start":true,"sequence_end":false,"priority":3,"timeout":1000,` +
		`"s":"x","i":-1,"u":18446744073709551615,"d":0.5,"b":true,"b":false},"inputs":[{"name":"X","shape":[1],"datatype":"INT32","data":[1]}]}`
	code, _, got := call(t, "POST", s.URL+"/v2/models/params/infer", []byte(in))
	want := `{"id":"7","model_name":"params","model_version":"1","parameters":{"s":"x","i":-1,"u":18446744073709551615,"d":0.5,"b":true},` +
		`"outputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1]}]}`
	if diff := cmp.Diff(want, got); diff != "" || code != http.StatusOK {
		t.Errorf("status %d (-want +got):\n%s", code, diff)
	}
	wantMeta := &infer.Meta{
		ID: "7", Sequence: infer.Sequence{ID: 42, Start: true}, Priority: 3, Timeout: 1000,
		Params: infer.Params{
			{Key: "s", Kind: infer.ParamString, String: "x"},
			{Key: "i", Kind: infer.ParamInt, Int: -1},
			{Key: "u", Kind: infer.ParamUint, Uint: math.MaxUint64},
			{Key: "d", Kind: infer.ParamDouble, Double: 0.5},
			{Key: "b", Kind: infer.ParamBool, Bool: true},
		},
	}
	if diff := cmp.Diff(wantMeta, e.Last.Load()); diff != "" {
		t.Errorf("meta (-want +got):\n%s", diff)
	}
}

func TestInferEnsembleEchoesSequence(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	tests := []struct{ params, want string }{
		{`{}`, `"sequence_id":0,"sequence_start":false,"sequence_end":false`},
		{`{"sequence_id":"abc","sequence_end":true}`, `"sequence_id":"abc","sequence_start":false,"sequence_end":true`},
	}
	for _, tt := range tests {
		t.Run(tt.params, func(t *testing.T) {
			t.Parallel()
			in := `{"parameters":` + tt.params + `,"inputs":[{"name":"X","shape":[1],"datatype":"INT32","data":[1]}]}`
			_, _, got := call(t, "POST", s.URL+"/v2/models/ensemble/infer", []byte(in))
			want := `{"model_name":"ensemble","model_version":"1","parameters":{` + tt.want +
				`},"outputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1]}]}`
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestInferCancel disconnects while the model executes the request.
//
// shows: infer.hangup
func TestInferCancel(t *testing.T) {
	t.Parallel()
	s, e := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", s.URL+"/v2/models/wait/infer",
		strings.NewReader(input(`"shape":[1],"datatype":"INT32","data":[1]`)))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		resp, err := client.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		done <- err
	}()
	<-e.Waiting
	cancel()
	if err := <-done; err == nil {
		t.Error("a cancelled request has a response")
	}
	<-e.Cancelled
}

// TestResponsesAreJSON reads responses with encoding/json.
func TestResponsesAreJSON(t *testing.T) {
	t.Parallel()
	s, _ := serve(t)
	in := input(`"shape":[4],"datatype":"FP64","data":[1.5,-2e-300,3e300,123456.789]`)
	_, _, got := call(t, "POST", s.URL+"/v2/models/echo/infer", []byte(in))
	var response struct{ Outputs []struct{ Data []float64 } }
	if err := json.Unmarshal([]byte(got), &response); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]float64{1.5, -2e-300, 3e300, 123456.789}, response.Outputs[0].Data); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
