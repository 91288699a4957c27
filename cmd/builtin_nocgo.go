//go:build !cgo

package cmd

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
)

// nativeBackends returns the backends that this program lacks because it was built without cgo. Each refuses to open.
func nativeBackends() []backends.Factory {
	return []backends.Factory{
		unsupported("onnxruntime", "model.onnx", "onnxruntime_onnx"),
		unsupported("openvino", "model.xml"),
		unsupported("pytorch", "model.pt", "pytorch_libtorch"),
		unsupported("torch_aoti", "model.pt2"),
		unsupported("tensorflow", "model.savedmodel", "tensorflow_savedmodel", "tensorflow_graphdef"),
		unsupported("tensorrt", "model.plan", "tensorrt_plan"),
		unsupported("caffe2", "model.netdef", "caffe2_netdef"),
	}
}

// libraryBackend returns the backend that would load libraries made for Triton.
func libraryBackend() backends.Factory {
	f := unsupported(backends.LibraryBackend, "")
	f.Native, f.ConfigKeys, f.Adopts = false, []string{backends.KeyDirectory}, backends.FindLibrary
	return f
}

// host does nothing: the program has no such processes.
func host([]string) (status int, started bool) { return 0, false }

// unsupported returns a factory with the name, the file and the platforms of a backend, so that its models are recognised.
func unsupported(name, file string, platforms ...string) backends.Factory {
	return backends.Factory{
		Name: name, Platforms: platforms, DefaultFile: file, Native: true,
		New: func(backends.Options) (backends.Backend, error) {
			return nil, status.Errorf(status.Unsupported, "backend '%s' is not in this program, which was built without cgo: "+
				"build it with a C compiler and CGO_ENABLED=1", name)
		},
	}
}
