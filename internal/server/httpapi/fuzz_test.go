package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/tensor/tensortest"
	"github.com/tutti-server/tutti/internal/server/httpapi"
	"github.com/tutti-server/tutti/internal/server/servertest"
)

// post sends a body to the server in process.
func post(t *testing.T, h http.Handler, model, body, jsonLength string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest("POST", "/v2/models/"+model+"/infer", strings.NewReader(body))
	if jsonLength != "" {
		r.Header.Set(lengthHeader, jsonLength)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func handler(tb testing.TB) http.Handler {
	tb.Helper()
	e := servertest.NewEcho()
	return httpapi.New(httpapi.Settings{Infer: e, Catalog: e, Alloc: tensortest.NewChecked(tb, nil), MaxInput: 1 << 20})
}

// FuzzJSON compares acceptance and values with encoding/json. Valid JSON may be rejected for its meaning only, and invalid JSON
// must be rejected, but for NaN, Inf and bytes that are not UTF-8.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"inputs":[{"name":"X","shape":[2,2],"datatype":"FP32","data":[[0.1,2],[-3e2,1e-9]]}]}`,
		`{"id":"a","inputs":[{"name":"X","data":[1,2],"shape":[2],"datatype":"FP64"}],"outputs":[{"name":"X","parameters":{"binary_data":true}}]}`,
		`{"parameters":{"sequence_id":1,"k":[1]},"inputs":[{"name":"X","shape":[1],"datatype":"BYTES","data":["\ud83d\ude00\n"]}]}`,
		`{"inputs":[{"name":"X","shape":[1],"datatype":"BOOL","data":[true]}],"x":{"a":[null,{}]}}`,
		`{"inputs":[{"name":"X","shape":[3],"datatype":"INT8","data":[1,-2,0]}]}`, `{"inputs":[`, `{}`, ` [] `, `{"a":"\u12`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := post(t, handler(t), "echo", body, "")
		syntax := strings.Contains(w.Body.String(), "failed to parse the request JSON buffer")
		lenient := strings.ContainsAny(body, "NI")                                                      // NaN and Inf are not JSON
		if body == "" || lenient || strings.HasPrefix(body, "\xef") || strings.Contains(body, "\x00") { // a byte order mark, or a NUL that ends the document
			return
		}
		tooBig := strings.Contains(w.Body.String(), "Number too big")
		if valid := json.Valid([]byte(body)); valid == syntax && !tooBig && !strings.Contains(body, `\u`) && !strings.Contains(w.Body.String(), "nesting depth") {
			t.Fatalf("JSON valid %t, but the response is %d %s", valid, w.Code, w.Body)
		}
		if w.Code == http.StatusOK && w.Header().Get(lengthHeader) == "" {
			sameNumbers(t, []byte(body), w.Body.Bytes())
		}
	})
}

// sameNumbers compares the FP64 data of a request with one input with its response.
func sameNumbers(t *testing.T, request, response []byte) {
	t.Helper()
	type tensorJSON struct {
		Datatype string
		Data     []any
	}
	var q struct{ Inputs []tensorJSON }
	var a struct{ Outputs []tensorJSON }
	if json.Unmarshal(request, &q) != nil || len(q.Inputs) != 1 || q.Inputs[0].Datatype != "FP64" || bytes.Count(request, []byte("data")) != 2 {
		return
	}
	if err := json.Unmarshal(response, &a); err != nil {
		t.Fatalf("the response is not JSON: %v in %s", err, response)
	}
	want, got := flat(nil, q.Inputs[0].Data), flat(nil, a.Outputs[0].Data)
	if len(got) == 0 {
		return // no elements asked for
	}
	if len(want) != len(got) {
		t.Fatalf("%d numbers came back of %d", len(got), len(want))
	}
	for i := range want {
		if math.Float64bits(want[i]) != math.Float64bits(got[i]) && (want[i] != 0 || got[i] != 0) {
			t.Fatalf("number %d: %v came back as %v", i, want[i], got[i])
		}
	}
}

func flat(into []float64, list []any) []float64 {
	for _, v := range list {
		switch v := v.(type) {
		case float64:
			into = append(into, v)
		case []any:
			into = flat(into, v)
		}
	}
	return into
}

// FuzzBinary looks for framings that crash, hang, leak memory or change the echoed data.
func FuzzBinary(f *testing.F) {
	head := `{"parameters":{"binary_data_output":true},"inputs":[{"name":"X","shape":[2],"datatype":"FP32","parameters":{"binary_data_size":8}}]}`
	f.Add(head+"12345678", strconv.Itoa(len(head)))
	f.Add(head, "0")
	f.Add(head, "-1")
	f.Add("", "")
	f.Add(strings.Replace(head, "FP32", "BYTES", 1)+"\x00\x00\x00\x00\x00\x00\x00\x00", strconv.Itoa(len(head)+1))
	f.Fuzz(func(t *testing.T, body, length string) {
		for _, model := range []string{"echo", "raw", "raw_bytes", "raw_batch"} {
			w := post(t, handler(t), model, body, length)
			n, err := strconv.Atoi(w.Header().Get(lengthHeader))
			if w.Code == http.StatusOK && err == nil && (n > w.Body.Len() || !json.Valid(w.Body.Bytes()[:n])) {
				t.Fatalf("%s: %d bytes of JSON in %q", model, n, w.Body)
			}
			if w.Code != http.StatusOK && !strings.HasPrefix(w.Body.String(), `{"error":"`) {
				t.Fatalf("%s: status %d without an error: %q", model, w.Code, w.Body)
			}
		}
	})
}

// FuzzCompressed looks for compressed bodies that crash, hang or exceed the limit, and compares the others with Go's readers.
func FuzzCompressed(f *testing.F) {
	for _, coding := range []string{"gzip", "zlib", "bare"} {
		f.Add([]byte(pack(f, coding, goodInput)), "", "gzip, deflate;q=0.5")
		f.Add([]byte(pack(f, coding, goodInput+"abcd")), "67", "deflate")
		f.Add([]byte(pack(f, coding, strings.Repeat("a", 1<<16))), "0", "*;q=0, identity")
		f.Add([]byte(pack(f, coding, goodInput))[:20], "5", "")
	}
	f.Add([]byte{}, "", "identity;q=0")
	f.Fuzz(func(t *testing.T, body []byte, length, accept string) {
		for _, model := range []string{"echo", "raw_bytes"} {
			w := send(t, model, bytes.NewReader(body), "Content-Encoding", "gzip", lengthHeader, length, "Accept-Encoding", accept)
			if w.Code != http.StatusOK {
				if !strings.HasPrefix(w.Body.String(), `{"error":"`) {
					t.Fatalf("%s: status %d without an error: %q", model, w.Code, w.Body)
				}
				continue
			}
			response := unpack(t, w.Header().Get("Content-Encoding"), w.Body.String())
			if n, err := strconv.Atoi(w.Header().Get(lengthHeader)); err == nil && !json.Valid([]byte(response)[:n]) {
				t.Fatalf("%s: no JSON in %q", model, response)
			}
			if plain, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
				data, err := io.ReadAll(plain)
				same := send(t, model, bytes.NewReader(data), lengthHeader, length)
				if err != nil || same.Body.String() != response {
					t.Fatalf("%s: response %q, without compression %q, %v", model, response, same.Body, err)
				}
			}
		}
	})
}

// send sends a request as a real client does, with or without a length.
func send(t *testing.T, model string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v2/models/"+model+"/infer", body)
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] != "" {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	handler(t).ServeHTTP(w, r)
	return w
}
