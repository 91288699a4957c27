package repository

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
)

// TestWatchParameters checks values of the parameters that bound executions and memory: a wrong one is an error that names it.
func TestWatchParameters(t *testing.T) {
	t.Parallel()
	const seconds, bytes = "expected seconds from 0.001 to 1000000, or 0 for no limit", "expected a number of bytes up to 9223372036854775807, or 0 for no limit"
	for _, tt := range []struct{ key, value, want string }{
		{paramWatchdog, "0", ""},
		{paramWatchdog, "0.001", ""},
		{paramWatchdog, "1000000", ""},
		{paramWatchdog, "-1", seconds},
		{paramWatchdog, "1e-12", seconds}, // no nanosecond, which would be no limit
		{paramWatchdog, "1000001", seconds},
		{paramWatchdog, "NaN", seconds},
		{paramWatchdog, "10s", seconds},
		{paramMemory, "0", ""},
		{paramMemory, "9223372036854775807", ""},
		{paramMemory, "9223372036854775808", bytes},
		{paramMemory, "-1", bytes},
		{paramMemory, "2GB", bytes},
	} {
		r := &Repository{s: Settings{Log: slog.New(slog.DiscardHandler)}}
		w, err := r.watchOf(&version{sig: &config.Signature{Model: "m"}, stats: &telemetry.Model{}}, map[string]string{tt.key: tt.value})
		if (w != nil) != (tt.want == "" && tt.value != "0") {
			t.Errorf("%s '%s': watched: %v", tt.key, tt.value, w != nil)
		}
		w.Close()
		if tt.want == "" && err == nil {
			continue
		}
		if want := "model 'm' has the parameter " + tt.key + " '" + tt.value + "', "; err == nil || status.CodeOf(err) != status.InvalidArg || tt.want == "" || !strings.Contains(err.Error(), want+tt.want) {
			t.Errorf("%s '%s': %v, want %q", tt.key, tt.value, err, tt.want)
		}
	}
}
