//go:build cgo

package cmd

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/caffe2"
	"github.com/tutti-server/tutti/backends/onnx"
	"github.com/tutti-server/tutti/backends/openvino"
	"github.com/tutti-server/tutti/backends/pytorch"
	"github.com/tutti-server/tutti/backends/tensorflow"
	"github.com/tutti-server/tutti/backends/tensorrt"
	"github.com/tutti-server/tutti/backends/tritonlib"
)

// libraryBackend returns the backend that loads libraries made for Triton, for which it needs cgo.
func libraryBackend() backends.Factory { return tritonlib.NewFactory() }

// host runs the process of such a library, if the program was started as one. It returns the exit status.
func host(args []string) (status int, started bool) {
	if !tritonlib.Hidden(args) {
		return 0, false
	}
	return tritonlib.Serve(), true
}

// nativeBackends returns the backends that call native libraries, for which they need cgo.
func nativeBackends() []backends.Factory {
	return []backends.Factory{
		onnx.NewFactory(),
		openvino.NewFactory(),
		pytorch.NewFactory(),
		pytorch.NewPackageFactory(),
		tensorflow.NewFactory(),
		tensorrt.NewFactory(),
		caffe2.NewFactory(onnx.NewFactory()),
	}
}
