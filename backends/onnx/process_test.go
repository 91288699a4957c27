//go:build cgo

package onnx

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/racetest"
)

// child is the variable that marks a child process. Each test below runs in one, because a process has one
// environment of the runtime.
const child = "TUTTI_ONNX_CHILD"

// inChild runs the calling test in a child process, and reports whether this is the child.
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

// load20 loads twenty models and returns the number of threads that this started.
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

// TestReloadBudget checks that a model that was unloaded leaves no memory of the runtime behind.
func TestReloadBudget(t *testing.T) {
	t.Parallel()
	if racetest.Enabled {
		t.Skip("the race detector keeps memory for each allocation")
	}
	if !inChild(t) {
		return
	}
	b := openBackend(t, nil)
	reload := func(n int) int64 {
		for range n {
			m, err := loadFile(t, b, "mlp.onnx", "max_batch_size: 2")
			if err != nil {
				t.Fatal(err)
			}
			x, err := m.NewInstance(t.Context(), tensor.Place{})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(x.Close(), m.Close()); err != nil {
				t.Fatal(err)
			}
		}
		debug.FreeOSMemory()
		return resident(t)
	}
	const times, most = 500, 4 << 20
	before := reload(100)
	if after := reload(times); after > before+most {
		t.Errorf("%d loads have added %d KB, expected at most %d", times, (after-before)>>10, most>>10)
	}
}

// resident returns the resident memory of the process that no file backs.
func resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	_, rest, _ := strings.Cut(string(text), "RssAnon:")
	kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb << 10
}

// TestSharedThreads checks that twenty models share one pool of eight threads.
func TestSharedThreads(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	if n := load20(t, map[string]string{"enable-global-threadpool": "1", "intra_op_thread_count": "8", "inter_op_thread_count": "1"}); n > 15 {
		t.Errorf("twenty models started %d threads, want them to share 8", n)
	}
}

// TestOwnThreads checks that without a shared pool each model has its own, of the configured size.
func TestOwnThreads(t *testing.T) {
	t.Parallel()
	if !inChild(t) {
		return
	}
	if n := load20(t, map[string]string{"intra_op_thread_count": "8"}); n < 20*7 {
		t.Errorf("twenty models started %d threads, want 7 each", n)
	}
}

// TestMemoryLimit checks that the memory of all models is bounded, and that only the run that exceeds it fails.
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
