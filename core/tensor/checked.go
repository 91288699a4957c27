package tensor

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
)

// TB is the part of testing.TB that NewChecked needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Cleanup(f func())
}

// Checked wraps an allocator in a test: a buffer that is still held when the test
// ends fails it, with the place that allocated it.
type Checked struct {
	inner Allocator
	mu    sync.Mutex
	live  map[*Buffer]string // allocation sites, guarded by mu
}

var _ Allocator = (*Checked)(nil)

// NewChecked returns a checking allocator over a (a new Pool when nil) that reports to tb when the test ends.
func NewChecked(tb TB, a Allocator) *Checked {
	if a == nil {
		a = NewPool()
	}
	c := &Checked{inner: a, live: map[*Buffer]string{}}
	tb.Cleanup(func() {
		tb.Helper()
		c.mu.Lock()
		defer c.mu.Unlock()
		for b, site := range c.live {
			tb.Errorf("buffer of %d bytes is still held; allocated at\n%s", b.n, site)
		}
	})
	return c
}

// Place returns the inner allocator's place.
func (c *Checked) Place() Place { return c.inner.Place() }

// Held returns how many buffers are held now.
func (c *Checked) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live)
}

// Alloc allocates from the inner allocator and notes the caller.
func (c *Checked) Alloc(n int) (*Buffer, error) {
	b, err := c.inner.Alloc(n)
	if err != nil {
		return nil, err
	}
	b.owner = c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live[b] = callers()
	return b, nil
}

// Free gives b back to the inner allocator.
func (c *Checked) Free(b *Buffer) {
	c.mu.Lock()
	delete(c.live, b)
	c.mu.Unlock()
	b.owner = c.inner
	c.inner.Free(b)
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
