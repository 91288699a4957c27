package async

import (
	"context"
	"io"
	"strings"
	"testing"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/tutti-server/tutti/core/status"
)

// TestLostAttempt checks that the stored request stays when an attempt was lost, because Temporal could not be reached for longer than its heartbeats
// may be apart: the next attempt needs it. One that was cancelled is removed.
func TestLostAttempt(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cause error
		kept  bool
	}{
		"lost":      {context.DeadlineExceeded, true},
		"cancelled": {temporal.NewCanceledError(), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &Worker{records: &records{uri: t.TempDir()}}
			o := &order{ID: "r"}
			if err := w.records.put(t.Context(), o.ID+kindRequest, &storedRequest{}, []byte("body")); err != nil {
				t.Fatal(err)
			}
			env := new(testsuite.WorkflowTestSuite).NewTestActivityEnvironment()
			f := func(ctx context.Context) error {
				ctx, cancel := context.WithCancelCause(ctx)
				cancel(tc.cause)
				return w.ended(ctx, o, ctx.Err())
			}
			env.RegisterActivityWithOptions(f, activity.RegisterOptions{Name: "f"})
			_, err := env.ExecuteActivity("f")
			if err == nil || tc.kept && !strings.Contains(err.Error(), "the attempt was lost") {
				t.Error(err)
			}
			var req storedRequest
			rest, err := w.records.get(t.Context(), o.ID+kindRequest, &req)
			if err == nil {
				_, err = io.Copy(io.Discard, rest)
				_ = rest.Close()
			}
			if tc.kept && err != nil || !tc.kept && status.CodeOf(err) != status.NotFound {
				t.Error(err)
			}
		})
	}
}
