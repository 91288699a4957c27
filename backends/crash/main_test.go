package crash_test

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/internal/subprocess"
)

// mode is that of a child that waits until its socket is closed.
var mode = subprocess.Mode{Argument: "__kept", Guard: "TUTTI_TEST_KEPT"}

// TestMain runs this program as a child too. Afterwards no goroutine may be left.
func TestMain(m *testing.M) {
	if mode.Hidden(os.Args) {
		_, _ = io.Copy(io.Discard, mode.Begin(0).Socket)
		os.Exit(0) //nolint:forbidigo // this is a main function
	}
	goleak.VerifyTestMain(m)
}
