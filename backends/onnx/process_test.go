package onnx

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
)

// child says which of the tests below runs: the runtime has one environment in a process, so each has its own.
const child = "TUTTI_ONNX_CHILD"

// inChild runs the calling test in a process of its own; it reports whether this is that process.
func inChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv(child) == t.Name() {
		return true
	}
	LibraryPath(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this test
	cmd.Env = append(os.Environ(), child+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

func threads(tb testing.TB) int {
	tb.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		tb.Skip(err)
	}
	return len(tasks)
}

// load20 loads twenty models and returns how many threads that started.
func load20(t *testing.T, values map[string]string) int {
	t.Helper()
	b := openBackend(t, values)
	before := threads(t)
	for range 20 {
		m, err := loadFile(t, b, "mlp.onnx", "max_batch_size: 2")
		if err != nil {
			t.Fatal(err)
		}
		x, err := m.NewInstance(t.Context(), tensor.Place{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = x.Close() })
	}
	return threads(t) - before
}

// Twenty models share one pool of eight threads.
func TestSharedThreads(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	if n := load20(t, map[string]string{"enable-global-threadpool": "1", "intra_op_thread_count": "8", "inter_op_thread_count": "1"}); n > 15 {
		t.Errorf("twenty models started %d threads, want them to share 8", n)
	}
}

// Without, each has a pool of its own, of the size that the backend's settings say.
func TestOwnThreads(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	if n := load20(t, map[string]string{"intra_op_thread_count": "8"}); n < 20*7 {
		t.Errorf("twenty models started %d threads, want 7 each", n)
	}
}

// What all models together take is bounded, and a run that asks for more fails alone.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	m, err := loadFile(t, openBackend(t, map[string]string{"memory-limit": "16777216"}), "fill.onnx", "")
	if err != nil {
		t.Fatal(err)
	}
	for elements, want := range map[int64]string{1 << 10: "", 1 << 26: "model 'm': onnx runtime error"} {
		err := runFill(t, m.(*model), elements)
		if got := fmt.Sprint(err); (want == "") != (err == nil) || !strings.Contains(got, want) {
			t.Errorf("%d elements: %v, want %q", elements, err, want)
		}
	}
}
