//go:build !race

package logs_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/tutti-server/tutti/internal/logs"
)

// TestDisabledAllocBudget checks that a disabled line does not allocate. It is not parallel: the runtime counts the
// allocations of all goroutines.
func TestDisabledAllocBudget(t *testing.T) {
	l, err := logs.New(logs.Settings{Info: true}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	logger, ctx := l.Logger(), t.Context()
	if got := testing.AllocsPerRun(200, func() {
		if logger.Enabled(ctx, slog.LevelDebug) || !logger.Enabled(ctx, slog.LevelInfo) {
			t.Error("wrong levels")
		}
	}); got != 0 {
		t.Errorf("%v allocations to find out what is logged, want none", got)
	}
}
