//go:build cgo

package isolate_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/proctest"
)

// serverVariable makes TestHelperServer a server.
const serverVariable = "ISOLATED_SERVER"

// TestHelperServer is a server of its own process with an isolated model, which TestServerKilled kills.
func TestHelperServer(t *testing.T) { //nolint:paralleltest // it does not return
	if os.Getenv(serverVariable) == "" {
		t.Skip("run by TestServerKilled")
	}
	b := open(t, "orphan")
	b.right()
	fmt.Println("process", children(t, "orphan")[0]) //nolint:forbidigo // TestServerKilled reads it
	_, _ = io.Copy(io.Discard, os.Stdin)             // until it is killed
}

// TestServerKilled checks that the process of an isolated instance does not outlive a server that is killed.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	options(t)
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestHelperServer$")
	cmd.Env = append(os.Environ(), serverVariable+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, found := strings.CutPrefix(lines.Text(), "process "); found {
			pid, err = strconv.Atoi(text)
		}
	}
	if pid == 0 || err != nil {
		t.Fatalf("the server has no process: %v, %v", err, cmd.Wait())
	}
	proctest.KillServer(t, cmd, pid)
}

// sumModel is an ONNX model s = sum(zeros(n)): it needs n floats of memory.
func sumModel() []byte {
	port := func(name string, kind int, shape []byte) []byte {
		return slices.Concat(field(1, name), field(2, field(1, slices.Concat(field(1, kind), field(2, shape)))))
	}
	zeros := slices.Concat(field(1, "n"), field(2, "x"), field(4, "ConstantOfShape"))
	keep := slices.Concat(field(1, "keepdims"), field(3, 0), field(20, 2))
	sum := slices.Concat(field(1, "x"), field(2, "s"), field(4, "ReduceSum"), field(5, keep))
	one := field(1, field(1, 1))
	graph := slices.Concat(field(1, zeros), field(1, sum), field(2, "sum"), field(11, port("n", 7, one)), field(12, port("s", 1, nil)))
	return slices.Concat(field(1, 8), field(7, graph), field(8, field(2, 17)))
}

// TestOutOfMemory bounds the address space of a process, and has a request need more: it fails, and the model goes on, with the same process
// or with another one.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	b := openModel(t, "memory", sumModel())
	defer b.close()
	sum := func(n int64) error {
		in, err := tensor.New(b.pool, tensor.Int64, tensor.Of(1))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Release()
		tensor.Slice[int64](&in)[0] = n
		batch := &backends.Batch{Rows: 1, Requests: []backends.Request{{Ctx: t.Context(), Rows: 1}}, In: []tensor.Tensor{in}, Out: make([]tensor.Tensor, 1), Allocator: b.pool}
		defer tensor.ReleaseAll(batch.Out)
		return b.x.Execute(t.Context(), batch)
	}
	if err := sum(1000); err != nil {
		t.Fatal(err)
	}
	pid := children(t, "memory")[0]
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(text))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	most := pages*uint64(os.Getpagesize()) + 1<<28 //nolint:gosec // positive
	if err := unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
		t.Fatal(err)
	}
	err = sum(1 << 30)
	if err == nil || status.CodeOf(err) == status.Unavailable && status.RetryAfter(err) == 0 || status.CodeOf(err) != status.Unavailable && !strings.Contains(err.Error(), "alloc") {
		t.Errorf("a request beyond the memory of the process: %v; want an error that names the memory, or one to send it again", err)
	}
	if err := sum(1000); err != nil {
		t.Errorf("the request after it: %v", err)
	}
}
