package shm_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/shm"
)

// gpu is a device whose handles name memory of a test, by their first byte.
type gpu struct {
	tensor.Accelerator
	id       int16
	memories [][]byte

	mu     sync.Mutex
	mapped map[*tensor.Buffer]int // guarded by mu
	fail   error
}

var _ tensor.Importer = (*gpu)(nil)

func newGPU(id int16, sizes ...int) *gpu {
	g := &gpu{id: id, mapped: map[*tensor.Buffer]int{}}
	for _, n := range sizes {
		g.memories = append(g.memories, make([]byte, n))
	}
	return g
}

func (g *gpu) Place() tensor.Place { return tensor.Place{Kind: tensor.Device, ID: g.id} }

func (g *gpu) Import(handle []byte) (*tensor.Buffer, error) {
	if g.fail != nil {
		return nil, g.fail
	}
	if len(handle) != 64 || int(handle[0]) >= len(g.memories) {
		return nil, status.Errorf(status.InvalidArg, "no such handle")
	}
	m := g.memories[handle[0]]
	g.mu.Lock()
	defer g.mu.Unlock()
	b := tensor.NewBuffer(g, g.Place(), unsafe.Pointer(unsafe.SliceData(m)), len(m))
	g.mapped[b] = int(handle[0])
	return b, nil
}

// Free unmaps, when the last uses have ended.
func (g *gpu) Free(b *tensor.Buffer) {
	for _, e := range b.TakeOrder() {
		_ = e.Wait()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.mapped, b)
}

func (g *gpu) held() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.mapped)
}

func handle(n byte) []byte { return slices.Insert(make([]byte, 63), 0, n) }

// event is one that the test ends.
type event struct{ done chan struct{} }

func (e event) Done() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

func (e event) Wait() error { <-e.done; return nil }

func (event) WaitOn(tensor.Stream) error { return errors.New("no stream") }

// TestCUDARefuses pins the errors of invalid registrations of device memory.
func TestCUDARefuses(t *testing.T) {
	t.Parallel()
	g := newGPU(3, 64)
	key, _ := object(t, "0123456789")
	const invalid = "failed to register shared memory region 'n': invalid args"
	for _, tt := range []struct {
		name    string
		devices []tensor.Accelerator
		why     error
		handle  []byte
		device  int64
		size    uint64
		code    status.Code
		text    string
	}{
		{"no device", nil, nil, handle(0), 0, 8, status.InvalidArg, invalid + ", GPUs not supported"},
		{"no device with a reason", nil, errors.New("no driver"), handle(0), 0, 8, status.InvalidArg, invalid + ", GPUs not supported: no driver"},
		{"other device", []tensor.Accelerator{g}, nil, handle(0), 0, 8, status.InvalidArg, invalid + ": there is no device_id 0, expected the number of one of the 1 GPUs that the server uses"},
		{"plain device", []tensor.Accelerator{struct{ tensor.Accelerator }{g}}, nil, handle(0), 3, 8, status.InvalidArg, invalid + ": device:3 cannot map memory of other processes"},
		{"bad handle", []tensor.Accelerator{g}, nil, handle(9), 3, 8, status.InvalidArg, invalid + ": no such handle"},
		{"too large", []tensor.Accelerator{g}, nil, handle(0), 3, 65, status.InvalidArg, invalid + ": expected a byte_size of 1 to 64, the size of the memory at device:3, found 65"},
		{"empty", []tensor.Accelerator{g}, nil, handle(0), 3, 0, status.InvalidArg, invalid + ": expected a byte_size of 1 to 64, the size of the memory at device:3, found 0"},
		{"full", []tensor.Accelerator{&gpu{id: 3, fail: status.Errorf(status.Unavailable, "out of memory")}}, nil, handle(0), 3, 8, status.Unavailable, "failed to register shared memory region 'n': out of memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := shm.NewRegistry(true)
			r.SetDevices(tt.devices, tt.why)
			wantError(t, r.RegisterCUDA("n", tt.handle, tt.device, tt.size), tt.code, tt.text)
			if g.held() != 0 {
				t.Error("memory is mapped")
			}
		})
	}
	r := shm.NewRegistry(true)
	r.SetDevices([]tensor.Accelerator{g}, nil)
	must(t, r.RegisterSystem("n", key, 0, 10))
	wantError(t, r.RegisterCUDA("n", handle(0), 3, 8), status.AlreadyExists, "shared memory region 'n' already in manager")
	must(t, r.RegisterCUDA("c", handle(0), 3, 8))
	must(t, r.RegisterSystem("m", key, 0, 10)) // beside a CUDA region
	wantError(t, r.RegisterSystem("c", key, 0, 8), status.AlreadyExists, "shared memory region 'c' already in manager")
	must(t, r.Close())
	off := shm.NewRegistry(false)
	off.SetDevices([]tensor.Accelerator{g}, nil)
	if err := off.RegisterCUDA("n", handle(0), 3, 8); status.CodeOf(err) != status.Unsupported {
		t.Errorf("a disabled registry: %v", err)
	}
}

// TestCUDAWindow checks the memory of windows, and that it is unmapped after the last use, whatever ends first.
func TestCUDAWindow(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"use close buffer unregister", "close buffer unregister use", "close unregister buffer use", "close unregister use buffer", "use buffer close unregister"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			g := newGPU(0, 64)
			r := shm.NewRegistry(true)
			r.SetDevices([]tensor.Accelerator{g}, nil)
			must(t, r.RegisterCUDA("a", handle(0), 0, 48))
			w, err := r.Open("a", 16, 8)
			must(t, err)
			if !w.Device() || w.Size() != 8 {
				t.Error("it is no window of 8 bytes at a device")
			}
			b := w.Buffer()
			if b.Place() != g.Place() || b.Len() != 8 || b.Pointer() != unsafe.Pointer(&g.memories[0][16]) {
				t.Errorf("the buffer is %d bytes at %s", b.Len(), b.Place())
			}
			wantError(t, r.Unregister(shm.CUDA, "a"), status.Internal, "Cannot unregister shared memory region 'a', it is currently in use.")
			use := event{make(chan struct{})}
			b.UsedUntil(use)
			steps := map[string]func(){
				"use": func() { close(use.done) }, "close": w.Close, "buffer": b.Release,
				"unregister": func() {
					if strings.HasPrefix(order, "close buffer unregister use") {
						go func() { _ = r.Unregister(shm.CUDA, "a") }() // it waits for the use
						for list, _ := r.Status(shm.CUDA, ""); len(list) > 0; list, _ = r.Status(shm.CUDA, "") {
							runtime.Gosched()
						}
						return
					}
					must(t, r.Unregister(shm.CUDA, "a"))
				},
			}
			for i, step := range strings.Fields(order) {
				if g.held() != 1 {
					t.Fatalf("unmapped before %s", strings.Fields(order)[i])
				}
				steps[step]()
			}
			must(t, r.Close())
			for g.held() != 0 { // Unregister on the other goroutine is about to end
				runtime.Gosched()
			}
		})
	}
}

// TestCUDACloseWaits checks that a closed window has no use left: the client may write its memory then.
func TestCUDACloseWaits(t *testing.T) {
	t.Parallel()
	g := newGPU(0, 64)
	r := shm.NewRegistry(true)
	r.SetDevices([]tensor.Accelerator{g}, nil)
	must(t, r.RegisterCUDA("a", handle(0), 0, 64))
	w, err := r.Open("a", 0, 64)
	must(t, err)
	b, use, closed := w.Buffer(), event{make(chan struct{})}, make(chan struct{})
	b.UsedUntil(use)
	b.Release()
	go func() { w.Close(); close(closed) }()
	select {
	case <-closed:
		t.Error("Close did not wait")
	default:
	}
	close(use.done)
	<-closed
	must(t, r.Close())
}

// TestCUDARegistryRaces registers, uses and unregisters the same names from many goroutines.
func TestCUDARegistryRaces(t *testing.T) {
	t.Parallel()
	g := newGPU(0, 64, 64)
	r := shm.NewRegistry(true)
	r.SetDevices([]tensor.Accelerator{g}, nil)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			name := fmt.Sprint("r", i%7)
			for n := range 30 {
				if err := r.RegisterCUDA(name, handle(byte(n%2)), 0, 64); err != nil && status.CodeOf(err) != status.AlreadyExists {
					t.Error(err)
				}
				if w, err := r.Open(name, 0, 32); err == nil {
					b := w.Buffer()
					if n%3 == 0 {
						w.Close()
						b.Release()
					} else {
						b.Release()
						w.Close()
					}
				} else if status.CodeOf(err) != status.NotFound {
					t.Error(err)
				}
				if err := r.Unregister(shm.CUDA, name); err != nil && status.CodeOf(err) != status.Internal {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	must(t, r.Close())
	if n := g.held(); n != 0 {
		t.Errorf("%d regions are mapped", n)
	}
}
