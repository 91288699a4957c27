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
)

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
