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

// built has the output of "make ui".
//
//go:embed dist
var built embed.FS

// policy is the Content-Security-Policy of every page. A page may load only what this server serves, and no inline
// scripts.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// contentTypes has the content type per file extension.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8",
}

// asset is one file of the dashboard, prepared for sending.
type asset struct {
	plain, gzipped    []byte
	contentType, etag string
	// immutable reports that the file name contains a hash of the content, so that clients may cache the file forever.
	immutable bool
}

// pages serves the dashboard's files. The key is the path below the mount point.
type pages map[string]*asset

// Pages returns the handler of the dashboard's files.
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

// newAsset compresses and hashes a file once, at start.
func newAsset(name string, b []byte) (*asset, error) {
	sum := sha256.Sum256(b)
	f := &asset{
		plain: b, contentType: contentTypes[path.Ext(name)], etag: `"` + hex.EncodeToString(sum[:12]) + `"`,
		immutable: strings.HasPrefix(name, "assets/"),
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err = w.Write(b); err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, err
	}
	if packed.Len() < len(b) {
		f.gzipped = packed.Bytes()
	}
	return f, nil
}

// ServeHTTP implements http.Handler. It reads no state that changes and is safe for concurrent use.
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
	h.Set("Content-Type", f.contentType)
	h.Set("Etag", f.etag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if f.immutable {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	b := f.plain
	if f.gzipped != nil && acceptsGzip(r.Header.Get("Accept-Encoding")) {
		b = f.gzipped
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodGet {
		_, _ = w.Write(b) // an error means that the client has disconnected
	}
}

// acceptsGzip reports whether an Accept-Encoding header lists gzip with a weight above 0. For example, "br,
// gzip;q=0.5" does and "gzip;q=0" does not.
func acceptsGzip(accept string) bool {
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
