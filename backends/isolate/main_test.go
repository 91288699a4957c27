//go:build cgo

package isolate_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/isolate"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/backends/openvino"
	"github.com/tutti-server/tutti/backends/pytorch"
	"github.com/tutti-server/tutti/backends/tensorflow"
)

// TestMain runs this program as a child too. Afterwards no goroutine may be left.
func TestMain(m *testing.M) {
	if isolate.Hidden(os.Args) {
		os.Exit(isolate.Serve([]backends.Factory{onnx.NewFactory(), openvino.NewFactory(), pytorch.NewFactory(), tensorflow.NewFactory()})) //nolint:forbidigo // this is a main function
	}
	goleak.VerifyTestMain(m)
}
