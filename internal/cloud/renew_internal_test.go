package cloud

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// keyed is an S3 server that accepts one key, which can change, and keeps what was written.
type keyed struct {
	mu      sync.Mutex
	key     string            // guarded by mu, as is objects
	objects map[string]string // by the path of the request
}

func (k *keyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	if !strings.Contains(r.Header.Get("Authorization"), "Credential="+k.key+"/") {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>")
		return
	}
	switch {
	case r.Method == http.MethodPut:
		k.objects[r.URL.Path] = string(body)
		w.Header().Set("ETag", `"tag"`)
	case r.Method == http.MethodDelete:
		delete(k.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Query().Has("list-type"):
		_, _ = io.WriteString(w, "<ListBucketResult>")
		for path, text := range k.objects {
			fmt.Fprintf(w, `<Contents><Key>%s</Key><Size>%d</Size><ETag>"tag"</ETag></Contents>`, strings.TrimPrefix(path, "/b/"), len(text))
		}
		_, _ = io.WriteString(w, "</ListBucketResult>")
	default:
		w.Header().Set("ETag", `"tag"`)
		_, _ = io.WriteString(w, k.objects[r.URL.Path])
	}
}

// TestRenewedCredentials checks that a bucket uses the credentials of the file as they are now: those that it was opened with have expired.
func TestRenewedCredentials(t *testing.T) {
	t.Parallel()
	server := &keyed{key: "first", objects: map[string]string{}}
	srv := httptest.NewServer(server)
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "keys.json")
	renew := func(id string) {
		t.Helper()
		if err := os.WriteFile(file, fmt.Appendf(nil, `{"s3":{"":{"key_id":%q,"secret_key":"s","session_token":"t"}}}`, id), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expire := func(id string) {
		server.mu.Lock()
		defer server.mu.Unlock()
		server.key = id
	}
	renew("first")
	o := Object{Key: "k", Size: 4, Tag: "tag"}
	calls := map[string]func(b Bucket) error{
		"write": func(b Bucket) error { return b.Write(t.Context(), "k", strings.NewReader("text"), 4) },
		"list": func(b Bucket) error {
			list, err := b.List(t.Context(), "")
			if err == nil && len(list) != 1 {
				err = fmt.Errorf("listed %v, want one object", list)
			}
			return err
		},
		"walk": func(b Bucket) error {
			_, err := Stat(t.Context(), b, "k")
			return err
		},
		"read": func(b Bucket) error {
			r, err := b.Read(t.Context(), o, 0)
			if err != nil {
				return err
			}
			text, err := io.ReadAll(r)
			if string(text) != "text" {
				err = errors.Join(err, fmt.Errorf("read %q", text))
			}
			return errors.Join(err, r.Close())
		},
		"range": func(b Bucket) error {
			r, err := ReadRange(t.Context(), b, o, 0, 4)
			if err != nil {
				return err
			}
			return r.Close()
		},
		"delete": func(b Bucket) error { return b.Delete(t.Context(), "other") },
	}
	for _, name := range []string{"write", "list", "walk", "read", "range", "delete"} {
		expire("first")
		renew("first")
		b, err := Open(t.Context(), "s3://"+srv.URL+"/b", &Options{Env: func(name string) string { return map[string]string{"TRITON_CLOUD_CREDENTIAL_PATH": file}[name] }})
		if err != nil {
			t.Fatal(err)
		}
		if err := calls[name](b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		expire("second")
		if err := calls[name](b); !errors.Is(err, ErrDenied) || !strings.Contains(err.Error(), "ExpiredToken") {
			t.Errorf("%s with expired credentials: %v", name, err)
		}
		renew("second")
		b.(*renewing).renewed = time.Now().Add(-renewEvery) //nolint:forcetypeassert // it is
		if err := calls[name](b); err != nil {
			t.Errorf("%s with renewed credentials: %v", name, err)
		}
	}
}
