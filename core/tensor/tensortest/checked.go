package tensortest

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/tutti-server/tutti/core/tensor"
)

// TB is the part of testing.TB that NewChecked needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Cleanup(f func())
}

// Checked wraps an allocator in a test: a buffer that is still held when the test ends fails it, with the place that
// allocated it.
type Checked struct {
	inner tensor.Allocator
	mu    sync.Mutex
	live  map[*tensor.Buffer]allocation // guarded by mu
}

// allocation is a buffer of the inner allocator, and who asked for it.
type allocation struct {
	inner *tensor.Buffer
	site  string
}

var _ tensor.Allocator = (*Checked)(nil)

// NewChecked returns a checking allocator over a (a new Pool when nil) that reports to tb when the test ends.
func NewChecked(tb TB, a tensor.Allocator) *Checked {
	if a == nil {
		a = tensor.NewPool()
	}
	c := &Checked{inner: a, live: map[*tensor.Buffer]allocation{}}
	tb.Cleanup(func() {
		tb.Helper()
		c.mu.Lock()
		defer c.mu.Unlock()
		for b, x := range c.live {
			tb.Errorf("buffer of %d bytes is still held; allocated at\n%s", b.Len(), x.site)
		}
	})
	return c
}

// Place returns the inner allocator's place.
func (c *Checked) Place() tensor.Place { return c.inner.Place() }

// Held returns how many buffers are held now.
func (c *Checked) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}

// Alloc allocates from the inner allocator and notes the caller.
func (c *Checked) Alloc(n int) (*tensor.Buffer, error) {
	inner, err := c.inner.Alloc(n)
	if err != nil {
		return nil, err
	}
	b := tensor.NewBuffer(c, inner.Place(), inner.Pointer(), n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[b] = allocation{inner, callers()}
	return b, nil
}

// Free gives the memory of b back to the inner allocator, with the device work on it.
func (c *Checked) Free(b *tensor.Buffer) {
	c.mu.Lock()
	inner := c.live[b].inner
	delete(c.live, b)
	c.mu.Unlock()
	for _, e := range b.TakeOrder() {
		inner.UsedUntil(e)
	}
	inner.Release()
}

func callers() string {
	var pcs [12]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	var s strings.Builder
	for {
		f, more := frames.Next()
		fmt.Fprintf(&s, "\t%s (%s:%d)\n", f.Function, f.File, f.Line)
		if !more {
			return s.String()
		}
	}
}
