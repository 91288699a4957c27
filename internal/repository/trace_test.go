package repository_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/tracing"
)

// TestTrace checks that every second request of one model is traced, and no request of another.
func TestTrace(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "trace")
	tracer, err := tracing.New(tracing.Options{Settings: tracing.Settings{Rate: "2", File: file}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.more.Tracer = tracer
	r := w.repo(t, folder(t, doubleModel+ensemble("ens", step("plain", "-1", "IN", "X"))))
	if err := tracer.Update("ens", map[string][]string{"trace_level": {"TIMESTAMPS"}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "ens", "ens", "plain", "ens", "ens", "plain"} {
		if _, err := send(t.Context(), r, w.request(name, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{`"model_name":"ens","model_version":1}`: 2, `"model_name":"plain","model_version":2,"parent_id":`: 2, `"model_name"`: 4} {
		if n := strings.Count(string(b), text); n != want {
			t.Errorf("%s is %d times in the trace file, want %d: %s", text, n, want, b)
		}
	}
}
