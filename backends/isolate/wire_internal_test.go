//go:build cgo

package isolate

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/status"
)

// TestErrors checks that an error keeps what it says on its way from a child, that a long one is cut, and that nothing of a child that lies is
// taken for a reason.
func TestErrors(t *testing.T) {
	t.Parallel()
	pass := func(err error) error {
		c := control{make([]byte, controlSize)}
		w := c.response()
		w.put(1)
		w.putError(err)
		r := c.response()
		r.next()
		return r.error()
	}
	for _, err := range []error{
		&status.Error{Code: status.Unavailable, Msg: "no room\nfor it", Reason: status.MemoryLimit, Step: "detect", RetryAfter: 120 * time.Millisecond, Finish: time.Second},
		status.Errorf(status.InvalidArg, "wrong"), status.ErrDeadline,
	} {
		got := pass(err)
		if diff := cmp.Diff(status.DetailsOf(err), status.DetailsOf(got)); diff != "" || got.Error() != err.Error() || status.CodeOf(got) != status.CodeOf(err) {
			t.Errorf("%v became %v (-want +got):\n%s", err, got, diff)
		}
	}
	if got := pass(status.Errorf(status.Internal, "%s", strings.Repeat("x", controlSize))).Error(); len(got) < controlSize/4 || strings.Trim(got, "x") != "" {
		t.Errorf("a long text became one of %d bytes", len(got))
	}
	c := control{make([]byte, controlSize)}
	w := c.response()
	for _, v := range []uint64{uint64(status.Unavailable), 1 << 63, 1 << 63} {
		w.put(v)
	}
	w.putText("X\r: y\n\n")
	r := c.response()
	if d := status.DetailsOf(r.error()); d.Reason != "UNAVAILABLE" || d.RetryAfter != 24*time.Hour {
		t.Errorf("an error of a child that lies says %+v", d)
	}
}
