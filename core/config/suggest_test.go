package config_test

import (
	"strings"
	"testing"

	"github.com/tutti-server/tutti/core/config"
)

func TestNearest(t *testing.T) {
	t.Parallel()
	names := []string{"http-port", "grpc-port", "id"}
	for _, tt := range []struct {
		written string
		most    int
		want    string
	}{
		{"htp-port", 1, "http-port"},
		{"hhttp-port", 1, "http-port"},
		{"httpport", 1, "http-port"},
		{"grpc-post", 1, "grpc-port"},
		{"id", 0, "id"},
		{"ID", 1, ""},
		{"i", 0, ""},
		{"h-port", 4, "http-port"},
		{"-port", 4, "http-port"}, // as near as grpc-port
		{"", 1, ""},
		{"", 2, "id"},
		{strings.Repeat("x", 1<<16), 3, ""},
	} {
		if got := config.Nearest(tt.written, names, tt.most); got != tt.want {
			t.Errorf("Nearest(%.20q, %d) = %q, want %q", tt.written, tt.most, got, tt.want)
		}
	}
}
