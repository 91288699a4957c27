package tensor_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// TestSplitLost checks that errors of lost devices are told from others, however they are joined and wrapped.
func TestSplitLost(t *testing.T) {
	t.Parallel()
	gone := status.Errorf(status.Unavailable, "device:1 is lost: %w", tensor.LostError{Err: errors.New("cuLaunch")})
	other := errors.New("a file")
	for name, tc := range map[string]struct {
		err          error
		lost, others string
	}{
		"none":     {nil, "<nil>", "<nil>"},
		"lost":     {gone, "device:1 is lost: cuLaunch", "<nil>"},
		"other":    {other, "<nil>", "a file"},
		"wrapped":  {fmt.Errorf("%w: %w", gone, other), "device:1 is lost: cuLaunch: a file", "<nil>"},
		"prefixed": {status.Prefixf(gone, "closing: "), "closing: device:1 is lost: cuLaunch", "<nil>"},
		"joined":   {errors.Join(other, errors.Join(gone, nil, other)), "device:1 is lost: cuLaunch", "a file\na file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lost, others := tensor.SplitLost(tc.err)
			if fmt.Sprint(lost) != tc.lost || fmt.Sprint(others) != tc.others {
				t.Errorf("%q and %q", fmt.Sprint(lost), fmt.Sprint(others))
			}
			if lost != nil && status.CodeOf(lost) != status.Unavailable {
				t.Errorf("the code is %s", status.CodeOf(lost))
			}
		})
	}
}
