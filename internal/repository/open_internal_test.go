package repository

import (
	"log/slog"
	"strings"
	"testing"
)

// TestPanicWhileOpening checks that a panic while configurations are read becomes an error.
func TestPanicWhileOpening(t *testing.T) {
	t.Parallel()
	s := &source{log: slog.New(slog.DiscardHandler)}
	f := &folder{name: "m", versions: []int64{1}}
	s.check(f, nil)
	if f.err == nil || !strings.HasPrefix(f.err.Error(), "opening model 'm' failed: panic: ") || f.cfg != nil || f.versions != nil {
		t.Errorf("opening left %+v", f)
	}
}
