//go:build !faults

package faults_test

import (
	"testing"

	"github.com/tutti-server/tutti/internal/faults"
)

// TestDisabled checks that without the tag no call fails.
func TestDisabled(t *testing.T) {
	t.Parallel()
	for p := range faults.NumPoints {
		if err := faults.At(p); err != nil || faults.Enabled || p.String() == "" {
			t.Errorf("point %s: %v", p, err)
		}
	}
}
