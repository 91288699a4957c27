package runtimes_test

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// breaking serves an index of one wheel, which breaks off in the middle the first time it is asked for.
type breaking struct {
	archive []byte

	mu     sync.Mutex
	ranges []string // guarded by mu
}

func (b *breaking) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasSuffix(r.URL.Path, ".whl") {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!DOCTYPE html><html><body><a href=\"/%s#sha256=%s\">%s</a></body></html>", wheel, sum(b.archive), wheel)
		return
	}
	b.mu.Lock()
	b.ranges = append(b.ranges, r.Header.Get("Range"))
	first := len(b.ranges) == 1
	b.mu.Unlock()
	w.Header().Set("ETag", `"one"`)
	if !first {
		http.ServeContent(w, r, wheel, time.Time{}, bytes.NewReader(b.archive))
		return
	}
	w.Header().Set("Accept-Ranges", "bytes")
	w.Header().Set("Content-Length", strconv.Itoa(len(b.archive)))
	_, _ = w.Write(b.archive[:len(b.archive)/2])
	panic(http.ErrAbortHandler)
}

// TestFetchResumes breaks a transfer off: what has come is not asked for again. The pip that can do so is the pinned one,
// whichever is installed.
func TestFetchResumes(t *testing.T) {
	t.Parallel()
	archive := append(bytes.Repeat([]byte{0}, 4<<20), wheelBytes(t)...)
	f, _ := index(t, archive)
	b := &breaking{archive: archive}
	s := httptest.NewServer(b)
	t.Cleanup(s.Close)
	pip := preparedtest.Script(t, "pip-wheel", "prepare-pip")
	if err := os.Link(pip, filepath.Join(f.Cache, filepath.Base(pip))); err != nil {
		t.Fatal(err)
	}
	f.Large = 1
	f.Env = []string{"PIP_INDEX_URL=" + s.URL + "/simple", "PIP_NO_CACHE_DIR=1", "PIP_CONFIG_FILE=" + os.DevNull}
	path, err := f.Fetch(t.Context(), "ttfake", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != library || filepath.Base(path) != "libtt.so.1.0" {
		t.Errorf("%s holds %q, %v", path, got, err)
	}
	if len(b.ranges) != 2 || !strings.HasPrefix(b.ranges[1], "bytes=") || b.ranges[1] == "bytes=0-" {
		t.Errorf("asked for %q, want the whole, then the rest", b.ranges)
	}
}
