package transport

import (
	"bytes"
	"compress/zlib"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestInflaterErrorStays checks that data behind the compressed body is an error also for a reader that drops the error of the read which
// fills its buffer, as io.ReadFull does.
func TestInflaterErrorStays(t *testing.T) {
	t.Parallel()
	const content = "the content"
	var packed bytes.Buffer
	w := zlib.NewWriter(&packed)
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		behind string
		want   string // of the error; empty for the end
	}{{"", ""}, {"x", "data follows the compressed body"}} {
		f := newInflater(strings.NewReader(packed.String() + tt.behind))
		p := make([]byte, len(content))
		if _, err := io.ReadFull(f, p); err != nil || string(p) != content {
			t.Fatalf("%q, %v", p, err)
		}
		for range 3 {
			n, err := f.Read(p)
			if n != 0 || tt.want == "" && !errors.Is(err, io.EOF) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("with %q behind it: %d bytes, %v, want %q", tt.behind, n, err, tt.want)
			}
		}
		f.release()
	}
}
