package tensor_test

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/core/tensor/tensortest"
)

// owner records freed buffers.
type owner struct{ freed []*tensor.Buffer }

func (o *owner) Free(b *tensor.Buffer) { o.freed = append(o.freed, b) }

func TestNewBuffer(t *testing.T) {
	t.Parallel()
	mem, other := []byte("abcdefgh"), []byte("xyz")
	var first, second owner
	b := tensor.NewBuffer(&first, tensor.Place{Kind: tensor.Pinned}, unsafe.Pointer(&mem[0]), len(mem))
	if got := string(b.Bytes()); got != "abcdefgh" || b.Len() != 8 || b.Place().Kind != tensor.Pinned {
		t.Errorf("%d bytes %q at %s", b.Len(), got, b.Place())
	}
	reset := func() { b.Reset(&second, tensor.Place{}, unsafe.Pointer(&other[0]), len(other)) }
	if got := panicOf(reset); !strings.Contains(got, "still held") {
		t.Errorf("Reset of a held buffer: %q", got)
	}
	b.Retain()
	b.Release()
	if len(first.freed) != 0 {
		t.Error("freed while it was held")
	}
	b.Release()
	if len(first.freed) != 1 || first.freed[0] != b {
		t.Errorf("freed %d times, want once", len(first.freed))
	}
	reset()
	if got := string(b.Bytes()); got != "xyz" || b.Place() != (tensor.Place{}) {
		t.Errorf("after Reset: %q at %s", got, b.Place())
	}
	b.Release()
	if len(first.freed) != 1 || len(second.freed) != 1 {
		t.Errorf("after Reset: the owners got %d and %d buffers", len(first.freed), len(second.freed))
	}
}

// TestBrokenOwnership checks that a panic leaves the reference count unchanged, so that the header can be reused.
func TestBrokenOwnership(t *testing.T) {
	t.Parallel()
	var mem [8]byte
	var o owner
	b := tensor.NewBuffer(&o, tensor.Place{}, unsafe.Pointer(&mem), len(mem))
	b.Release()
	for range 2 {
		if got := panicOf(b.Release); got != "tensor: release of a released buffer" {
			t.Errorf("Release: %q", got)
		}
		if got := panicOf(func() { b.Retain() }); got != "tensor: retain of a released buffer" {
			t.Errorf("Retain: %q", got)
		}
	}
	b.Reset(&o, tensor.Place{}, unsafe.Pointer(&mem), len(mem))
	b.Release()
	if len(o.freed) != 2 {
		t.Errorf("freed %d times, want 2", len(o.freed))
	}
}

// panicOf runs f and returns the text of its panic, empty when it did not panic.
func panicOf(f func()) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}

func TestPlace(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]tensor.Place{
		"host": {}, "pinned": {Kind: tensor.Pinned, ID: 1}, "device:3": {Kind: tensor.Device, ID: 3},
	} {
		if got := p.String(); got != want {
			t.Errorf("%v is %q, want %q", [2]any{p.Kind, p.ID}, got, want)
		}
	}
	var mem [1]byte
	b := tensor.NewBuffer(&owner{}, tensor.Place{Kind: tensor.Device, ID: 2}, unsafe.Pointer(&mem), 1)
	if got := panicOf(func() { b.Bytes() }); got != "tensor: host access to memory at device:2" {
		t.Errorf("Bytes of device memory: %q", got)
	}
}

// recorder is a testing.TB that records errors and cleanups.
type recorder struct {
	errors []string
	ends   []func()
}

func (*recorder) Helper()            {}
func (r *recorder) Cleanup(f func()) { r.ends = append(r.ends, f) }
func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestCheckedReports(t *testing.T) {
	t.Parallel()
	var r recorder
	p := tensor.NewPool()
	c := tensortest.NewChecked(&r, p)
	kept, given := alloc(t, c, 7), alloc(t, c, 8)
	if c.Held() != 2 || c.Place() != p.Place() {
		t.Errorf("%d buffers held at %s, want 2 at %s", c.Held(), c.Place(), p.Place())
	}
	given.Release()
	for _, end := range r.ends {
		end()
	}
	if len(r.errors) != 1 || !strings.Contains(r.errors[0], "7 bytes is still held") || !strings.Contains(r.errors[0], "TestCheckedReports") {
		t.Errorf("reported %q, want the buffer of 7 bytes and its allocation", r.errors)
	}
	kept.Release()
	if diff := cmp.Diff([]int64{0, 0}, []int64{int64(c.Held()), p.InUse()}); diff != "" {
		t.Errorf("held and in use at the end (-want +got):\n%s", diff)
	}
}
