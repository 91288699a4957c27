package web_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"tutti/server/web"
)

// open returns a server with the pages.
func open(t *testing.T) *web.Server {
	t.Helper()
	pages, err := web.Pages()
	if err != nil {
		t.Fatal(err)
	}
	s := web.New(web.Settings{Overview: &seen{}, Pages: pages})
	t.Cleanup(s.Close)
	return s
}

func get(h http.Handler, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, http.NoBody)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// reference is what a page loads.
var reference = regexp.MustCompile(`(?:src|href)="([^"]*)"`)

func TestPages(t *testing.T) {
	t.Parallel()
	s := open(t)
	index := get(s, http.MethodGet, "/ui/")
	page := text(t, index)
	if index.StatusCode != http.StatusOK || !strings.HasPrefix(index.Header.Get("Content-Type"), "text/html") {
		t.Fatalf("got %d %s", index.StatusCode, index.Header.Get("Content-Type"))
	}
	policy := index.Header.Get("Content-Security-Policy")
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
			t.Errorf("the page asks for '%s', expected a relative address", m[1])
			continue
		}
		r := get(s, http.MethodGet, "/ui/"+name)
		if body := text(t, r); r.StatusCode != http.StatusOK || body == "" {
			t.Errorf("%s: got %d with %d bytes", name, r.StatusCode, len(body))
		}
		fixed := strings.Contains(r.Header.Get("Cache-Control"), "immutable")
		if fixed != strings.HasPrefix(name, "assets/") {
			t.Errorf("%s: Cache-Control is '%s'", name, r.Header.Get("Cache-Control"))
		}
		if r = get(s, http.MethodGet, "/ui/"+name, "If-None-Match", r.Header.Get("Etag")); r.StatusCode != http.StatusNotModified {
			t.Errorf("%s: got %d for a known version, expected 304", name, r.StatusCode)
		}
	}
}

func TestPagesPacked(t *testing.T) {
	t.Parallel()
	s := open(t)
	plain := text(t, get(s, http.MethodGet, "/ui/licences.txt"))
	if !strings.Contains(plain, "preact") || !strings.Contains(plain, "dagre") || !strings.Contains(plain, "uplot") {
		t.Errorf("terms are missing:\n%s", plain)
	}
	for accept, packed := range map[string]bool{
		"gzip": true, "br, gzip;q=0.5": true, "gzip; q=1.0": true, "gzip;q=0": false, "gzip;q=x": false, "br": false, "": false, "xgzip": false,
	} {
		r := get(s, http.MethodGet, "/ui/licences.txt", "Accept-Encoding", accept)
		if got := r.Header.Get("Content-Encoding") == "gzip"; got != packed {
			t.Errorf("%q: packed is %t, expected %t", accept, got, packed)
			continue
		}
		body := text(t, r)
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
		body := text(t, r)
		if r.StatusCode != c.code {
			t.Errorf("%s %s: got %d, expected %d", c.method, c.path, r.StatusCode, c.code)
		}
		if c.method == http.MethodHead && body != "" {
			t.Errorf("HEAD %s has a body", c.path)
		}
	}
	if to := get(s, http.MethodGet, "/ui").Header.Get("Location"); to != "ui/" {
		t.Errorf("/ui leads to '%s', expected ui/", to)
	}
}
