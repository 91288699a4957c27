package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzGenerate looks for bodies that crash, hang, leak memory, or have a response that is not JSON.
func FuzzGenerate(f *testing.F) {
	for _, s := range []string{
		`{"TEXT":"a","F32":[[1,2],[3,4]],"parameters":{"I8":-1,"k":true},"id":"x"}`,
		`{"TEXTS":["\ud83d\ude00",["b"]],"FLAG":[true,[false]],"F64":[1e9,-0.5]}`,
		`{"U8":[0,255],"U64":18446744073709551615,"I64":-9223372036854775808,"ONE":[[7]],"NONE":[]}`,
		`{"F64":[[[[]]],[]],"k":"v"}`, `{"parameters":{"parameters":{}}}`, `{"I8":[1,2`, `{"X":[1,`, `[]`, ``,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, body string) {
		h := handler(t)
		for _, model := range []string{"prompt", "echo", "repeat"} {
			for _, end := range []string{"generate", "generate_stream"} {
				r := httptest.NewRequest("POST", "/v2/models/"+model+"/"+end, strings.NewReader(body))
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				checkAnswer(t, body, w)
			}
		}
	})
}

func checkAnswer(t *testing.T, body string, w *httptest.ResponseRecorder) {
	t.Helper()
	lenient := strings.ContainsAny(body, "NI") // NaN and Inf are not JSON, but come back
	response := w.Body.String()
	if w.Code != http.StatusOK && !strings.Contains(response, `{"error":"`) {
		t.Fatalf("status %d without an error: %q", w.Code, response)
	}
	if w.Header().Get("Content-Type") == "application/json" {
		if !lenient && !json.Valid([]byte(response)) {
			t.Fatalf("the response is not JSON: %q", response)
		}
		return
	}
	for event := range strings.SplitSeq(strings.TrimSuffix(response, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "data: ")
		if response != "" && (!ok || !lenient && !json.Valid([]byte(data))) {
			t.Fatalf("the event %q is not JSON", event)
		}
	}
}
