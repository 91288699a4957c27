package options_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/options"
)

// TestIntegerBounds checks that each option accepts its largest and smallest value and refuses the values beyond.
func TestIntegerBounds(t *testing.T) {
	t.Parallel()
	tests := []struct{ flag, least, below, most, above string }{
		{"model-load-thread-count", "1", "0", "2147483647", "2147483648"},
		{"model-load-retry-count", "0", "-1", "2147483647", "2147483648"},
		{"cpu-threads", "0", "-1", "65536", "65537"},
		{"max-device-executions", "0", "-1", "65536", "65537"},
		{"trace-store-every", "0", "-1", "2147483647", "2147483648"},
		{"trace-store-rate", "0", "-1", "2147483647", "2147483648"},
		{"http-port", "0", "-1", "65535", "65536"},
	}
	for _, tt := range tests {
		t.Run(tt.flag, func(t *testing.T) {
			t.Parallel()
			for value, refused := range map[string]bool{tt.least: false, tt.most: false, tt.below: true, tt.above: true, "9223372036854775808": true} {
				_, err := options.Parse([]string{"--model-repository=m", "--" + tt.flag + "=" + value}, nil)
				if refused != (err != nil && strings.Contains(err.Error(), "out of bound. Got "+value)) || !refused && err != nil {
					t.Errorf("--%s=%s: %v", tt.flag, value, err)
				}
			}
		})
	}
}
