package pool_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/tutti-server/tutti/internal/pool"
)

func Example() {
	var buffers pool.Of[bytes.Buffer]
	b := buffers.Get()
	b.WriteString("hello")
	fmt.Println(b)
	b.Reset()
	buffers.Put(b)
	// Output: hello
}

func TestNewMakesTheValuesOfAnEmptyPool(t *testing.T) {
	p := pool.Of[int]{New: func() *int { n := 7; return &n }}
	if got := *p.Get(); got != 7 {
		t.Errorf("Get of an empty pool returned %d, want the 7 that New makes", got)
	}
	var zero pool.Of[int]
	if got := *zero.Get(); got != 0 {
		t.Errorf("Get of an empty pool without New returned %d, want 0", got)
	}
}

func TestNamesKeepsRecentStrings(t *testing.T) {
	var names pool.Names
	long := bytes.Repeat([]byte("n"), 1000)
	for _, b := range [][]byte{nil, []byte("INPUT0"), []byte("INPUT1"), long, []byte("INPUT0")} {
		if got := names.Get(b); got != string(b) {
			t.Errorf("Get(%q) returned %q", b, got)
		}
	}
	name := []byte("INPUT0")
	if n := testing.AllocsPerRun(100, func() { names.Get(name) }); n > 0 {
		t.Errorf("Get of a recent name allocated %v times", n)
	}
}
