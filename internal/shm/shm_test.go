package shm_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/shm"
)

// object creates a POSIX shared-memory object and returns its key and its path.
func object(t *testing.T, content string) (key, path string) {
	t.Helper()
	f, err := os.CreateTemp("/dev/shm", "tutti_shm_test_")
	if err != nil {
		t.Skipf("no POSIX shared memory: %v", err)
	}
	t.Cleanup(func() { os.Remove(f.Name()) })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return "/" + filepath.Base(f.Name()), f.Name()
}

func wantError(t *testing.T, err error, code status.Code, text string) {
	t.Helper()
	if err == nil || status.CodeOf(err) != code || err.Error() != text {
		t.Errorf("error is %q (%v), want %q (%v)", err, status.CodeOf(err), text, code)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadWrite checks reads and writes through windows of a region.
// shows: shm.system
func TestReadWrite(t *testing.T) {
	t.Parallel()
	key, path := object(t, "0123456789")
	r := shm.NewRegistry(true)
	must(t, r.RegisterSystem("a", key, 2, 6))
	w, err := r.Open("a", 1, 4)
	must(t, err)
	defer w.Close()
	got := make([]byte, 4)
	must(t, w.Read(got))
	if string(got) != "3456" || w.Size() != 4 {
		t.Errorf("a window of %d bytes holds %q", w.Size(), got)
	}
	must(t, w.Write([]byte("ab")))
	if b, _ := os.ReadFile(path); string(b) != "012ab56789" {
		t.Errorf("the object holds %q", b)
	}
	const text = " of shared memory region 'a' are out of the 4 bytes that the request names"
	wantError(t, w.Read(make([]byte, 5)), status.InvalidArg, "5 bytes at offset 0"+text)
	wantError(t, w.Write(make([]byte, 6)), status.InvalidArg, "6 bytes at offset 0"+text)
}

// TestRegisterRefuses pins the errors of invalid registrations.
func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	key, _ := object(t, "0123456789")
	folder := filepath.Base(t.TempDir())
	must(t, os.Mkdir("/dev/shm/"+folder, 0o700))
	t.Cleanup(func() { os.Remove("/dev/shm/" + folder) })
	link := key + "_link"
	must(t, os.Symlink("/etc/passwd", "/dev/shm"+link))
	t.Cleanup(func() { os.Remove("/dev/shm" + link) })
	const invalid = "failed to register shared memory region 'n': invalid args"
	tests := []struct {
		name, key    string
		offset, size uint64
		code         status.Code
		text         string
	}{
		{"too long", key, 0, 11, status.InvalidArg, invalid},
		{"beyond the end", key, 8, 3, status.InvalidArg, invalid},
		{"offset beyond", key, 11, 1, status.InvalidArg, invalid},
		{"empty", key, 0, 0, status.InvalidArg, invalid},
		{"overflow", key, 2, math.MaxUint64, status.InvalidArg, invalid},
		{"overflow of the offset", key, math.MaxUint64, 2, status.InvalidArg, invalid},
		{"no key", "", 0, 1, status.Internal, "Unable to open shared memory region: ''"},
		{"slash", "/", 0, 1, status.InvalidArg, "cannot register shared memory region 'n' - invalid shm key '/'"},
		{"slashes", "//", 0, 1, status.InvalidArg, "cannot register shared memory region 'n' - invalid shm key '//'"},
		{
			"reserved", "/triton_python_backend_shm_region_1", 0, 1, status.InvalidArg,
			"cannot register shared memory region 'n' with key '/triton_python_backend_shm_region_1'" +
				" as the key contains the reserved prefix 'triton_python_backend_shm_region_'",
		},
		{"unknown", "/tutti_no_such_key", 0, 1, status.Internal, "Unable to open shared memory region: '/tutti_no_such_key'"},
		{"traversal", "/../../etc/hosts", 0, 1, status.Internal, "Unable to open shared memory region: '/../../etc/hosts'"},
		{"parent", "..", 0, 1, status.Internal, "Unable to open shared memory region: '..'"},
		{"zero byte", "a\x00b", 0, 1, status.Internal, "Unable to open shared memory region: 'a\x00b'"},
		{"long name", strings.Repeat("x", 5000), 0, 1, status.Internal, "Unable to open shared memory region: '" + strings.Repeat("x", 5000) + "'"},
		{"folder", folder, 0, 1, status.Internal, "Unable to open shared memory region: '" + folder + "'"},
		{"link", link, 0, 1, status.Internal, "Unable to open shared memory region: '" + link + "'"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := shm.NewRegistry(true)
			wantError(t, r.RegisterSystem("n", tt.key, tt.offset, tt.size), tt.code, tt.text)
			if all, err := r.Status(shm.System, ""); err != nil || len(all) != 0 {
				t.Errorf("regions %v, error %v", all, err)
			}
		})
	}
}

// TestOneNamespace checks that both kinds of regions share one namespace.
func TestOneNamespace(t *testing.T) {
	t.Parallel()
	key, _ := object(t, "0123456789")
	r := shm.NewRegistry(true)
	must(t, r.RegisterSystem("b", key, 4, 2))
	must(t, r.RegisterSystem("a", strings.TrimPrefix(key, "/"), 0, 10))
	wantError(t, r.RegisterSystem("a", key, 0, 1), status.AlreadyExists, "shared memory region 'a' already in manager")
	wantError(t, r.RegisterCUDA("c", make([]byte, 64), 0, 8), status.InvalidArg,
		"failed to register shared memory region 'c': invalid args, GPUs not supported")

	want := []shm.Region{{Name: "a", Key: key[1:], Size: 10}, {Name: "b", Key: key, Offset: 4, Size: 2}}
	got, err := r.Status(shm.System, "")
	must(t, err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("all regions (-want +got):\n%s", diff)
	}
	got, err = r.Status(shm.System, "b")
	must(t, err)
	if diff := cmp.Diff(want[1:], got); diff != "" {
		t.Errorf("region b (-want +got):\n%s", diff)
	}
	if got, err := r.Status(shm.CUDA, ""); err != nil || got == nil || len(got) != 0 {
		t.Errorf("CUDA regions: %v, %v", got, err)
	}
	_, err = r.Status(shm.System, "x")
	wantError(t, err, status.NotFound, "Unable to find system shared memory region: 'x'")
	_, err = r.Status(shm.CUDA, "x")
	wantError(t, err, status.NotFound, "Unable to find cuda shared memory region: 'x'")
	_, err = r.Status(shm.CUDA, "a")
	wantError(t, err, status.NotFound, "The region named 'a' is registered as system shared memory, not CUDA shared memory")

	must(t, r.Unregister(shm.CUDA, "a"))
	must(t, r.Unregister(shm.CUDA, ""))
	must(t, r.Unregister(shm.System, "x"))
	if got, _ := r.Status(shm.System, ""); len(got) != 2 {
		t.Errorf("%d regions are left, want both", len(got))
	}
	must(t, r.Unregister(shm.System, "a"))
	must(t, r.RegisterSystem("a", key, 0, 1))
	must(t, r.Unregister(shm.System, ""))
	if got, _ := r.Status(shm.System, ""); len(got) != 0 {
		t.Errorf("%d regions are left, want none", len(got))
	}
}

// TestOpenRefuses pins the errors of windows outside a region.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	key, _ := object(t, "0123456789")
	r := shm.NewRegistry(true)
	must(t, r.RegisterSystem("a", key, 4, 4))
	tests := []struct {
		region       string
		offset, size uint64
		code         status.Code
		text         string
	}{
		{"x", 0, 1, status.NotFound, "Unable to find shared memory region: 'x'"},
		{"a", 4, 0, status.InvalidArg, "Invalid offset for shared memory region: 'a'"},
		{"a", math.MaxUint64, 1, status.InvalidArg, "Invalid offset for shared memory region: 'a'"},
		{"a", 0, 5, status.InvalidArg, "Invalid offset + byte size for shared memory region: 'a'"},
		{"a", 3, 2, status.InvalidArg, "Invalid offset + byte size for shared memory region: 'a'"},
		{
			"a", 1, math.MaxUint64, status.InvalidArg,
			"Integer overflow detected: byte_size (18446744073709551615) + offset (1) exceeds maximum value (18446744073709551615) for region 'a'",
		},
	}
	for _, tt := range tests {
		_, err := r.Open(tt.region, tt.offset, tt.size)
		wantError(t, err, tt.code, tt.text)
	}
	w, err := r.Open("a", 3, 0)
	must(t, err)
	must(t, w.Read(nil))
	w.Close()
}

func TestDisabled(t *testing.T) {
	t.Parallel()
	r := shm.NewRegistry(false)
	for _, kind := range []shm.Kind{shm.System, shm.CUDA} {
		if all, err := r.Status(kind, ""); err != nil || len(all) > 0 {
			t.Errorf("regions %v, error %v", all, err)
		}
	}
	_, openErr := r.Open("a", 0, 1)
	for _, err := range []error{
		r.RegisterSystem("a", "/a", 0, 1), r.RegisterCUDA("a", nil, 0, 1), r.Unregister(shm.System, ""), r.Unregister(shm.System, "a"), openErr,
	} {
		wantError(t, err, status.Unsupported,
			"Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable.")
	}
}

// TestUnregisterInUse checks that a region in use stays and that the others are removed.
func TestUnregisterInUse(t *testing.T) {
	t.Parallel()
	key, _ := object(t, "0123456789")
	r := shm.NewRegistry(true)
	for _, name := range []string{"b", "a", "free"} {
		must(t, r.RegisterSystem(name, key, 0, 10))
	}
	first, err := r.Open("a", 0, 10)
	must(t, err)
	second, err := r.Open("a", 2, 3)
	must(t, err)
	other, err := r.Open("b", 0, 1)
	must(t, err)
	wantError(t, r.Unregister(shm.System, "a"), status.Internal, "Cannot unregister shared memory region 'a', it is currently in use.")
	must(t, r.Unregister(shm.CUDA, "a"))
	must(t, r.Unregister(shm.CUDA, ""))
	wantError(t, r.Unregister(shm.System, ""), status.Internal, "Failed to unregister the following system shared memory regions: a ,b ,")
	first.Close()
	other.Close()
	wantError(t, r.Unregister(shm.System, ""), status.Internal, "Failed to unregister the following system shared memory regions: a ,")
	if got, err := r.Status(shm.System, ""); err != nil || len(got) != 1 || got[0].Name != "a" {
		t.Errorf("while a request uses one: %v, %v", got, err)
	}
	got := make([]byte, 3)
	must(t, second.Read(got))
	if string(got) != "234" {
		t.Errorf("read %q", got)
	}
	second.Close()
	must(t, r.Unregister(shm.System, "a"))
	_, err = r.Status(shm.System, "a")
	wantError(t, err, status.NotFound, "Unable to find system shared memory region: 'a'")
	must(t, r.RegisterSystem("a", key, 0, 1))
}

// TestTruncated checks accesses after the client has truncated its object.
func TestTruncated(t *testing.T) {
	t.Parallel()
	key, path := object(t, strings.Repeat("x", 10000))
	r := shm.NewRegistry(true)
	must(t, r.RegisterSystem("a", key, 0, 10000))
	w, err := r.Open("a", 0, 10000)
	must(t, err)
	defer w.Close()
	must(t, os.Truncate(path, 100))
	const text = " 10000 bytes of shared memory region 'a': the memory of key '"
	for verb, err := range map[string]error{"read": w.Read(make([]byte, 10000)), "write": w.Write(make([]byte, 10000))} {
		wantError(t, err, status.InvalidArg,
			"unable to "+verb+text+key+"' has become smaller than the registered offset 0 and byte size 10000")
	}
	if st, err := os.Stat(path); err != nil || st.Size() != 100 {
		t.Errorf("the object was made longer again: %v, %v", st, err)
	}
	must(t, w.Write(bytes.Repeat([]byte("y"), 100)))
	must(t, os.Remove(path))
	must(t, w.Read(make([]byte, 100)))
}

func TestLimit(t *testing.T) {
	t.Parallel()
	key, _ := object(t, "0123456789")
	r := shm.NewRegistry(true)
	const limit = 4096
	for i := range limit {
		must(t, r.RegisterSystem(strconv.Itoa(i), key, 0, 1))
	}
	wantError(t, r.RegisterSystem("more", key, 0, 1), status.Unavailable,
		"failed to register shared memory region 'more': 4096 regions are registered, which is the limit")
	must(t, r.Unregister(shm.System, ""))
	must(t, r.RegisterSystem("more", key, 0, 1))
}

func TestConcurrent(t *testing.T) {
	t.Parallel()
	key, _ := object(t, "0123456789")
	r := shm.NewRegistry(true)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			name, buf := strconv.Itoa(g%3), make([]byte, 4)
			for i := range 200 {
				_ = r.RegisterSystem(name, key, 0, 10) // fails when another goroutine was first
				if w, err := r.Open(name, uint64(i%6), 4); err == nil {
					if err := w.Read(buf); err != nil {
						t.Error(err)
					}
					if err := w.Write(buf[:0]); err != nil {
						t.Error(err)
					}
					w.Close()
				}
				if _, err := r.Status(shm.System, ""); err != nil {
					t.Error(err)
				}
				if err := r.Unregister(shm.System, name); err != nil && !strings.HasSuffix(err.Error(), "it is currently in use.") {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	must(t, r.Unregister(shm.System, ""))
	if all, _ := r.Status(shm.System, ""); len(all) != 0 {
		t.Errorf("%v are left", all)
	}
}
