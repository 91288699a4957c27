package python_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/backends/backendtest"
	"github.com/tutti-server/tutti/backends/python"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// BenchmarkBare compares a request of a model with the least that two processes need for the same work: one writes the input to
// shared memory and sends a packet of 16 bytes, the other one computes with numpy and sends it back. The model "plus" returns a new array,
// which has to be copied; "into" writes over its input (out=), which needs no copy. For example:
//
//	go test -run '^$' -bench Bare -benchtime 40x ./backends/python
func BenchmarkBare(b *testing.B) {
	for _, bc := range []struct {
		name, model, mode string
		n                 int
	}{
		{"16 floats", "plus", "new", 16},
		{"1 MiB", "plus", "new", 1 << 18},
		{"1 MiB, out=", "into", "out", 1 << 18},
	} {
		b.Run(bc.name, func(b *testing.B) {
			s := settings(b, bc.model, &modelconfig.ModelConfig{
				Input:  []*modelconfig.ModelInput{input("IN", tensor.FP32, -1)},
				Output: []*modelconfig.ModelOutput{output("OUT", tensor.FP32, -1)},
			})
			in, err := tensor.New(s.Alloc, tensor.FP32, tensor.Of(int64(bc.n)))
			if err != nil {
				b.Fatal(err)
			}
			clear(in.Bytes())
			once := execution(b, &s, []tensor.Tensor{in}, 1)
			backendtest.Pair(b, once, bare(b, bc.n, bc.mode))
		})
	}
}

// bare starts testdata/bare.py and returns a function that has it add one to n floats.
func bare(b *testing.B, n int, mode string) func() {
	b.Helper()
	memory, err := unix.MemfdCreate("bare", unix.MFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	file := os.NewFile(uintptr(memory), "bare")
	defer file.Close()
	if err := file.Truncate(int64(4 * n)); err != nil {
		b.Fatal(err)
	}
	shared, err := unix.Mmap(memory, 0, 4*n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		b.Fatal(err)
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	theirs := os.NewFile(uintptr(ends[1]), "bare")
	defer theirs.Close()
	cmd := exec.CommandContext(context.Background(), python.Interpreter(b), "testdata/bare.py", strconv.Itoa(n), mode)
	cmd.Env = append(os.Environ(), python.MallocEnv()...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs, file}, os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := unix.Close(ends[0]); err != nil {
			b.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
		if err := unix.Munmap(shared); err != nil {
			b.Error(err)
		}
	})
	from, packet := bytes.Repeat([]byte{1}, 4*n), make([]byte, 16) // memory that nothing was written to would be one page, in the cache
	return func() {
		copy(shared, from)
		if _, err := unix.Write(ends[0], packet); err != nil {
			b.Fatal(err)
		}
		if k, err := unix.Read(ends[0], packet); err != nil || k != len(packet) {
			b.Fatal(k, err)
		}
	}
}
