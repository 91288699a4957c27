package shm_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-server/tutti/internal/shm"
)

// FuzzRegister registers regions with arbitrary names, keys and sizes over an object of 16 bytes, opens windows in them and writes there.
// Nothing outside the region may be read or changed, and nothing outside of shared memory opened.
func FuzzRegister(f *testing.F) {
	const content = "0123456789abcdef"
	object, err := os.CreateTemp("/dev/shm", "tutti_shm_fuzz_")
	if err != nil {
		f.Skipf("no POSIX shared memory: %v", err)
	}
	f.Cleanup(func() { os.Remove(object.Name()) })
	key := filepath.Base(object.Name())
	f.Add("a", "/"+key, uint64(0), uint64(16), uint64(0), uint64(16))
	f.Add("a", key, uint64(4), uint64(8), uint64(2), uint64(6))
	f.Add("", "/../../etc/passwd", uint64(1<<63), uint64(1<<63), uint64(1), ^uint64(0))
	f.Add("a", "", uint64(15), uint64(1), ^uint64(0), uint64(2))
	f.Fuzz(func(t *testing.T, name, given string, offset, size, at, n uint64) {
		if given == "" || len(given)%2 == 0 {
			given = "/" + key // most inputs shall get further than the key
		}
		if err := os.WriteFile(object.Name(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		r := shm.NewRegistry(true)
		defer r.Close() // it closes the object
		err := r.RegisterSystem(name, given, offset, size)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without a text")
			}
			return
		}
		if filepath.Base(given) != key { // another object of this machine, which stays as it is
			return
		}
		if size == 0 || offset > 16 || size > 16-offset {
			t.Fatalf("a region of %d bytes at %d of 16 bytes is registered", size, offset)
		}
		w, err := r.Open(name, at, n)
		if err != nil {
			return
		}
		defer w.Close()
		if at > size || n > size-at {
			t.Fatalf("a window of %d bytes at %d of %d bytes is open", n, at, size)
		}
		got := make([]byte, n)
		if err := w.Read(got); err != nil || string(got) != content[offset+at:offset+at+n] {
			t.Errorf("%d bytes at %d: %q, %v", n, offset+at, got, err)
		}
		if err := w.Write(bytes.Repeat([]byte{'X'}, int(n))); err != nil { //nolint:gosec // at most 16
			t.Error(err)
		}
		want := []byte(content)
		copy(want[offset+at:offset+at+n], "XXXXXXXXXXXXXXXX")
		if after, err := os.ReadFile(object.Name()); err != nil || !bytes.Equal(after, want) {
			t.Errorf("the object is %q, %v; want %q", after, err, want)
		}
	})
}
