package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/server/web"
)

// open returns a server with the pages.
func open(t *testing.T) *web.Server {
	t.Helper()
	pages, err := web.Pages()
	if err != nil {
		t.Fatal(err)
	}
	s := web.New(web.Settings{Overview: &fakeStore{}, Pages: pages})
	t.Cleanup(s.Close)
	return s
}

// response is a response with its body read.
type response struct {
	code   int
	header http.Header
	body   string
}

func get(h http.Handler, method, path string, header ...string) response {
	r := httptest.NewRequest(method, "http://localhost"+path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return response{w.Code, w.Header(), w.Body.String()}
}

// reference matches the files that a page loads.
var reference = regexp.MustCompile(`(?:src|href)="([^"]*)"`)

// TestPages checks that the index page and every file that it loads are served with the right headers.
func TestPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	index := get(s, http.MethodGet, "/ui/")
	page := index.body
	if index.code != http.StatusOK || !strings.HasPrefix(index.header.Get("Content-Type"), "text/html") {
		t.Fatalf("got %d %s", index.code, index.header.Get("Content-Type"))
	}
	policy := index.header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "//") {
		t.Errorf("the policy is lax: %s", policy)
	}
	if regexp.MustCompile(`<script>|<script [^>]*>[^<]|<style|\son[a-z]+=|style=`).MatchString(page) {
		t.Errorf("the page has inline parts:\n%s", page)
	}
	list := reference.FindAllStringSubmatch(page, -1)
	if len(list) < 3 {
		t.Fatalf("the page loads too little:\n%s", page)
	}
	for _, m := range list {
		name, ok := strings.CutPrefix(m[1], "./")
		if !ok {
			t.Errorf("the page loads '%s', expected a relative address", m[1])
			continue
		}
		r := get(s, http.MethodGet, "/ui/"+name)
		if r.code != http.StatusOK || r.body == "" {
			t.Errorf("%s: got %d with %d bytes", name, r.code, len(r.body))
		}
		fixed := strings.Contains(r.header.Get("Cache-Control"), "immutable")
		if fixed != strings.HasPrefix(name, "assets/") {
			t.Errorf("%s: Cache-Control is '%s'", name, r.header.Get("Cache-Control"))
		}
		if r = get(s, http.MethodGet, "/ui/"+name, "If-None-Match", r.header.Get("Etag")); r.code != http.StatusNotModified {
			t.Errorf("%s: got %d for a known version, expected 304", name, r.code)
		}
	}
}

// TestPagesPacked checks that pages are compressed only for clients that accept gzip.
func TestPagesPacked(t *testing.T) {
	t.Parallel()
	s := open(t)
	plain := get(s, http.MethodGet, "/ui/licences.txt").body
	if !strings.Contains(plain, "preact") || !strings.Contains(plain, "dagre") || !strings.Contains(plain, "uplot") {
		t.Errorf("terms are missing:\n%s", plain)
	}
	for accept, packed := range map[string]bool{
		"gzip": true, "br, gzip;q=0.5": true, "gzip; q=1.0": true, "gzip;q=0": false, "gzip;q=x": false, "br": false, "": false, "xgzip": false,
	} {
		r := get(s, http.MethodGet, "/ui/licences.txt", "Accept-Encoding", accept)
		if got := r.header.Get("Content-Encoding") == "gzip"; got != packed {
			t.Errorf("%q: packed is %t, expected %t", accept, got, packed)
			continue
		}
		body := r.body
		if packed {
			z, err := gzip.NewReader(bytes.NewReader([]byte(body)))
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(z)
			if err != nil {
				t.Fatal(err)
			}
			body = string(b)
		}
		if body != plain {
			t.Errorf("%q: the text differs", accept)
		}
	}
}

// TestPagesRefuse checks the status of unknown paths, other methods and the redirect to the mount point.
func TestPagesRefuse(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{http.MethodGet, "/ui/nothing", http.StatusNotFound},
		{http.MethodGet, "/ui/assets/", http.StatusNotFound},
		{http.MethodGet, "/ui/dist/index.html", http.StatusNotFound},
		{http.MethodPost, "/ui/", http.StatusMethodNotAllowed},
		{http.MethodHead, "/ui/", http.StatusOK},
		{http.MethodGet, "/ui", http.StatusTemporaryRedirect},
	} {
		r := get(s, c.method, c.path)
		if r.code != c.code {
			t.Errorf("%s %s: got %d, expected %d", c.method, c.path, r.code, c.code)
		}
		if c.method == http.MethodHead && r.body != "" {
			t.Errorf("HEAD %s has a body", c.path)
		}
	}
	if to := get(s, http.MethodGet, "/ui").header.Get("Location"); to != "ui/" {
		t.Errorf("/ui leads to '%s', expected ui/", to)
	}
}

// loader is a Lifecycle that records loads.
type loader struct {
	infer.Lifecycle
	config string
	loads  int
}

func (l *loader) Load(_ context.Context, _ string, o infer.LoadOptions) error {
	l.config = o.Config
	l.loads++
	return nil
}

// TestLoad checks that loading needs the token and a valid body.
func TestLoad(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body, token string
		code              int
		config            string
	}{
		{"as it is", "", "t", http.StatusOK, ""},
		{"with a configuration", `{"config":"{}"}`, "t", http.StatusOK, "{}"},
		{"with something else", `{"more":1}`, "t", http.StatusBadRequest, ""},
		{"with half of it", `{"config":`, "t", http.StatusBadRequest, ""},
		{"without the token", "", "", http.StatusForbidden, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := &loader{}
			s := web.New(web.Settings{Overview: &fakeStore{}, Lifecycle: l, Token: "t"})
			defer s.Close()
			code, body := send(s, http.MethodPost, "/ui/api/models/m/load", c.body, "Authorization", "Bearer "+c.token)
			if code != c.code || l.config != c.config || (l.loads == 1) != (code == http.StatusOK) {
				t.Errorf("got %d %s with %+v", code, body, l)
			}
		})
	}
}
