package cuda_test

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// sharedVariable makes the test's program the other process of TestShared. It holds a handle.
const sharedVariable = "TUTTI_TEST_CUDA_SHARED"

// TestShared checks that another process reads and writes exported memory, that its mapping ends with the buffer, and
// that the handle of a process that has ended is refused.
func TestShared(t *testing.T) { //nolint:paralleltest // it counts the memory of the process
	if h := os.Getenv(sharedVariable); h != "" {
		useShared(t, h)
		return
	}
	d := open(t, 1)[0]
	s := stream(t, d, "shared")
	const n = 5000
	first, _, err := d.AllocShared(100)
	must(t, err)
	shared, handle, err := d.AllocShared(n)
	must(t, err)
	must(t, s.Fill(shared, 0, n, []byte{7}))
	must(t, s.Record().Wait())
	child := exec.Command(os.Args[0], "-test.run=^TestShared$", "-test.v") //nolint:gosec,noctx // this program
	child.Env = append(os.Environ(), sharedVariable+"="+hex.EncodeToString(handle[:]))
	out, err := child.CombinedOutput()
	if err != nil {
		t.Fatalf("the other process: %v\n%s", err, out)
	}
	back := alloc(t, tensor.NewPool(), n)
	must(t, s.Copy(back, 0, shared, 0, n))
	must(t, s.Record().Wait())
	if want := append(bytes.Repeat([]byte{7}, n/2), bytes.Repeat([]byte{9}, n/2)...); !bytes.Equal(back.Bytes(), want) {
		t.Errorf("the other process wrote %v... and %v...", back.Bytes()[:4], back.Bytes()[n/2:n/2+4])
	}
	back.Release()
	_, text, _ := strings.Cut(string(out), "handle ")
	text, _, _ = strings.Cut(text, "\n")
	theirs, err := hex.DecodeString(text)
	must(t, err)
	h, err := cuda.ParseHandle(theirs)
	must(t, err)
	if _, err := d.OpenHandle(h); status.CodeOf(err) != status.InvalidArg {
		t.Errorf("the handle of a process that has ended: %v", err)
	}
	if _, err := d.OpenHandle(handle); status.CodeOf(err) != status.InvalidArg {
		t.Errorf("the handle of this process: %v", err)
	}
	if _, err := cuda.ParseHandle(theirs[1:]); status.CodeOf(err) != status.InvalidArg {
		t.Errorf("a handle of 63 bytes: %v", err)
	}
	first.Release()
	shared.Release()
	if used := d.InUse(); used != 0 {
		t.Errorf("%d bytes are in use", used)
	}
}

// useShared is the other process: it reads the memory, writes its second half, and exports memory of its own.
func useShared(t *testing.T, text string) {
	t.Helper()
	raw, err := hex.DecodeString(text)
	must(t, err)
	h, err := cuda.ParseHandle(raw)
	must(t, err)
	d := open(t, 1)[0]
	s := stream(t, d, "other")
	b, err := d.OpenHandle(h)
	must(t, err)
	if b.Len() < 5000 {
		t.Errorf("%d bytes are mapped", b.Len())
	}
	host := alloc(t, tensor.NewPool(), 5000)
	must(t, s.Copy(host, 0, b, 0, 5000))
	must(t, s.Fill(b, 2500, 2500, []byte{9}))
	must(t, s.Record().Wait())
	if !bytes.Equal(host.Bytes(), bytes.Repeat([]byte{7}, 5000)) {
		t.Errorf("read %v...", host.Bytes()[:4])
	}
	host.Release()
	b.Release()
	own := alloc(t, d, 1<<20) // must not be in the memory of the other process
	must(t, s.Fill(own, 0, 1<<20, []byte{1}))
	must(t, s.Record().Wait())
	own.Release()
	shared, mine, err := d.AllocShared(64)
	must(t, err)
	shared.Release()
	os.Stdout.WriteString("handle " + hex.EncodeToString(mine[:]) + "\n")
}

// TestSharedOutOfMemory checks that memory for other processes fails as other memory does.
func TestSharedOutOfMemory(t *testing.T) { //nolint:paralleltest // it changes the driver
	d := open(t, 1)[0]
	if d.UUID() == "" || d.Library() != cudatest.Library(t) {
		t.Errorf("UUID %q, library %q", d.UUID(), d.Library())
	}
	cudatest.Set(t, "oom", 1)
	defer cudatest.Set(t, "oom", 0)
	_, _, err := d.AllocShared(1 << 20)
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "cuMemAlloc at device:0: out of memory") {
		t.Errorf("AllocShared without memory: %v", err)
	}
	if used := d.InUse(); used != 0 {
		t.Errorf("%d bytes are in use", used)
	}
}
