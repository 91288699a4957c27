package cuda_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/cuda/cudatest"
)

// TestImport reads and writes memory of another process, which sees it, and maps it twice.
func TestImport(t *testing.T) {
	t.Parallel()
	list := open(t, 2)
	c := cudatest.NewClient(t)
	for i, v := range list {
		m := c.Alloc(i, 100)
		m.Write(10, []byte("hello"))
		b, err := v.Import(m.Handle)
		must(t, err)
		again, err := v.Import(m.Handle)
		must(t, err)
		if b.Len() != 100 || b.Place() != v.Place() || again.Pointer() != b.Pointer() {
			t.Errorf("%d bytes at %s", b.Len(), b.Place())
		}
		again.Release()
		s := stream(t, v, "s")
		host := alloc(t, tensor.NewPool(), 5)
		must(t, s.Copy(host, 0, b, 10, 5))
		must(t, s.Copy(b, 50, b, 10, 5))
		must(t, s.Record().Wait())
		if got := m.Read(50, 5); string(host.Bytes()) != "hello" || string(got) != "hello" {
			t.Errorf("the server reads %q, the client %q", host.Bytes(), got)
		}
		must(t, s.Fill(b, 0, 100, nil))
		b.Release() // waits for the fill
		if got := m.Read(0, 100); !bytes.Equal(got, make([]byte, 100)) {
			t.Errorf("after the release the client reads %v", got)
		}
		host.Release()
		m.Free()
	}
}

// TestImportRefused checks handles of dead processes, of this process and of none.
func TestImportRefused(t *testing.T) {
	t.Parallel()
	v := open(t, 1)[0]
	c := cudatest.NewClient(t)
	dead := c.Alloc(0, 64).Handle
	c.Kill()
	mine, own, err := v.AllocShared(64)
	must(t, err)
	defer mine.Release()
	for name, tt := range map[string]struct {
		handle []byte
		want   string
	}{
		"dead process": {dead, "the IPC handle names no memory of a running process at device:0"},
		"own process":  {own[:], "invalid device context"},
		"zeros":        {make([]byte, 64), "the IPC handle names no memory"},
		"short":        {dead[:63], "expected an IPC handle of 64 bytes, found 63"},
		"long":         {append(dead, 0), "expected an IPC handle of 64 bytes, found 65"},
	} {
		if b, err := v.Import(tt.handle); status.CodeOf(err) != status.InvalidArg || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v", name, b, err)
		}
	}
}

// TestImportWithoutMemory fails the mapping once. It is not parallel: the setting holds for the process.
func TestImportWithoutMemory(t *testing.T) {
	v := open(t, 1)[0]
	m := cudatest.NewClient(t).Alloc(0, 64)
	cudatest.Set(t, "oom", 1)
	_, err := v.Import(m.Handle)
	cudatest.Set(t, "oom", 0)
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), "cuIpcOpenMemHandle at device:0: out of memory") {
		t.Error(err)
	}
	b, err := v.Import(m.Handle)
	must(t, err)
	b.Release()
}
