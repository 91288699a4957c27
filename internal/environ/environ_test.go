package environ_test

import (
	"slices"
	"testing"

	"github.com/tutti-server/tutti/internal/environ"
)

// TestWithoutTelemetry checks that telemetry is off unless the user has chosen.
func TestWithoutTelemetry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ env, want []string }{
		{nil, []string{"ORT_DISABLE_TELEMETRY=1"}},
		{[]string{"A=b", "ORT_DISABLE_TELEMETRY="}, []string{"A=b", "ORT_DISABLE_TELEMETRY=1"}},
		{[]string{"ORT_DISABLE_TELEMETRY=0", "A=b"}, []string{"ORT_DISABLE_TELEMETRY=0", "A=b"}},
	} {
		if got := environ.WithoutTelemetry(c.env); !slices.Equal(got, c.want) {
			t.Errorf("%q became %q, want %q", c.env, got, c.want)
		}
	}
}
