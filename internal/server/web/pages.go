package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

// built is what "make ui" makes of ui/.
//
//go:embed dist
var built embed.FS

// policy lets a page use what is served beside it and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// kinds are the types of the files there are.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// asset is one of the dashboard's files as it is sent.
type asset struct {
	plain, packed []byte
	kind, tag     string
	// fixed says that the name changes with what is in it.
	fixed bool
}

// pages answers with the dashboard's files by their path below the mount point.
type pages map[string]*asset

// Pages returns the dashboard itself.
func Pages() (http.Handler, error) {
	p := pages{}
	err := fs.WalkDir(built, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := built.ReadFile(name)
		if err != nil {
			return err
		}
		name = strings.TrimPrefix(name, "dist/")
		p[name], err = newAsset(name, b)
		return err
	})
	p[""] = p["index.html"]
	return p, err
}

// newAsset prepares a file once for all who ask for it.
func newAsset(name string, b []byte) (*asset, error) {
	sum := sha256.Sum256(b)
	f := &asset{
		plain: b, kind: kinds[path.Ext(name)], tag: `"` + hex.EncodeToString(sum[:12]) + `"`,
		fixed: strings.HasPrefix(name, "assets/"),
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(b); err != nil {
		return nil, err
	}
	if err = w.Close(); err != nil {
		return nil, err
	}
	if packed.Len() < len(b) {
		f.packed = packed.Bytes()
	}
	return f, nil
}

// ServeHTTP answers one request.
func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := p[strings.TrimPrefix(r.URL.Path, Mount)]
	switch {
	case f == nil:
		http.Error(w, "there is no such page", http.StatusNotFound)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "pages are only read", http.StatusMethodNotAllowed)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("Content-Type", f.kind)
	h.Set("Etag", f.tag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if f.fixed {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	b := f.plain
	if f.packed != nil && takesGzip(r.Header.Get("Accept-Encoding")) {
		b = f.packed
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(b) // a client that has gone gets nothing
	}
}

// takesGzip reports whether a client lists gzip without refusing it.
func takesGzip(accept string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		name, weight, weighed := strings.Cut(part, ";")
		if strings.TrimSpace(name) != "gzip" {
			continue
		}
		q, err := strconv.ParseFloat(strings.TrimPrefix(strings.TrimSpace(weight), "q="), 64)
		return !weighed || err == nil && q > 0
	}
	return false
}
