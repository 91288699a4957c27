package cloud

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// endless is a bucket whose listing has no end.
type endless struct{ name string }

func (e endless) pages(_ context.Context, _ string, yield func([]Object) bool) error {
	for n := 0; ; n++ {
		list := make([]Object, 1000)
		for i := range list {
			list[i].Key = fmt.Sprint(n, i) + e.name // not shared
		}
		if !yield(list) {
			return nil
		}
	}
}

// TestEndlessListing checks that a listing without an end is refused before it fills the memory.
func TestEndlessListing(t *testing.T) {
	t.Parallel()
	list, err := listAll(t.Context(), endless{strings.Repeat("n", 10<<10)}, "s3://bucket", "")
	if want := "listing s3://bucket: more than 256 MiB of names of objects"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d objects, %v; want %s", len(list), err, want)
	}
}
