//go:build cgo

package tritonlib_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/backends/tritonlib"
)

// TestMain runs this program as a child too. Afterwards no goroutine may be left.
func TestMain(m *testing.M) {
	if tritonlib.Hidden(os.Args) {
		os.Exit(tritonlib.Serve()) //nolint:forbidigo // this is a main function
	}
	goleak.VerifyTestMain(m)
}
