package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/server/web"
)

// FuzzAPI sends arbitrary paths, queries and bodies to the dashboard's API, with and without the token. No request may fail the server;
// one that changes something needs the token, and errors are JSON with a text.
func FuzzAPI(f *testing.F) {
	for _, s := range [][3]string{
		{"PUT", "sampling", `{"every":5}`},
		{"GET", "traces/1?as=text", ""},
		{"GET", "graph/m?version=3", ""},
		{"GET", "batches/9", ""},
		{"GET", "timeline?from_us=1&to_us=9007199254740992&model=m", ""},
		{"GET", "traces/1?as=perfetto", ""},
		{"POST", "models/m/load", `{"config":"{}"}`},
		{"POST", "models/m/unload", ""},
		{"POST", "captures", `{"model":"m"}`},
		{"DELETE", "captures/1", ""},
		{"GET", "traces?model=m&limit=-1", ""},
		{"GET", "traces/1/tensors/0/npy", ""},
		{"GET", "history?model=%3Cb%3E&seconds=60", ""},
		{"GET", "models/m", ""},
		{"GET", "../../v2", ""},
	} {
		f.Add(s[0], s[1], s[2], true)
		f.Add(s[0], s[1], s[2], false)
	}
	f.Fuzz(func(t *testing.T, method, path, body string, token bool) {
		u, err := url.Parse("http://localhost/ui/api/" + path)
		if err != nil || strings.HasPrefix(path, "events") || u.Host != "localhost" { // the event stream has no end
			return
		}
		switch method {
		case http.MethodGet, http.MethodPut, http.MethodPost, http.MethodDelete:
		default:
			return
		}
		r := httptest.NewRequest(method, "http://localhost/", strings.NewReader(body))
		r.URL, r.RequestURI = u, u.RequestURI()
		if token {
			r.Header.Set("Authorization", "Bearer t")
		}
		x := &fakeStore{sampling: inspect.Sampling{Failed: true}}
		s := web.New(web.Settings{Inspector: x, Overview: x, Token: "t"})
		defer s.Close()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if !token && method != http.MethodGet && w.Code < 300 {
			t.Errorf("%s %s without the token: status %d", method, u, w.Code)
		}
		var e struct{ Error string }
		if w.Code >= 400 && w.Header().Get("Content-Type") == "application/json" {
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error == "" {
				t.Errorf("%s %s: status %d, %s, %v", method, u, w.Code, w.Body, err)
			}
		}
	})
}
