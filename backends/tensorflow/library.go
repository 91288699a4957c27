package tensorflow

/*
#cgo CFLAGS: -O2
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/tutti-server/tutti/backends/dylib"
	"github.com/tutti-server/tutti/core/status"
)

// library is an opened TensorFlow. It is never closed: objects that the runtime retains may call its functions at any time.
type library struct {
	f       *C.TF_Functions
	path    string
	version string
}

const (
	// framework is a library that the main one needs. The loader does not search beside the main library, so it is opened first.
	framework = "libtensorflow_framework.so.2"
	logLevel  = "TF_CPP_MIN_LOG_LEVEL"
	errorsToo = "2" // log levels: 0 information, 1 warnings, 2 errors, 3 what ends the process
)

// opening serialises opening a library, which changes the environment.
var opening sync.Mutex

// openLibrary loads the runtime at path, with the framework library beside it.
func openLibrary(path string) (*library, error) {
	opening.Lock()
	defer opening.Unlock()
	if os.Getenv(logLevel) == "" {
		if err := os.Setenv(logLevel, errorsToo); err != nil {
			return nil, status.Errorf(status.Internal, "unable to set the log level of TensorFlow: %w", err)
		}
	}
	beside := filepath.Join(filepath.Dir(path), framework)
	if _, err := os.Stat(beside); err == nil {
		if _, err := dylib.Open(beside, nil); err != nil {
			return nil, status.Errorf(status.Unavailable, "unable to open TensorFlow: %w", err)
		}
	}
	so, err := dylib.Open(path, nil)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "unable to open TensorFlow: %w", err)
	}
	l := &library{f: (*C.TF_Functions)(C.calloc(1, C.sizeof_TF_Functions)), path: path}
	for i := C.int(0); ; i++ {
		name := C.ttf_function(i)
		if name == nil {
			break
		}
		address, err := so.Symbol(C.GoString(name))
		if err != nil {
			return nil, status.Errorf(status.Unavailable, "'%s' is not a TensorFlow 2 library: %w", path, err)
		}
		C.ttf_set_function(l.f, i, address)
	}
	l.version = C.GoString(C.ttf_version(l.f))
	return l, nil
}

// Error codes of the runtime that map to a status code. All others are internal errors, even INVALID_ARGUMENT, which refers to
// arguments of the model's operations.
const (
	tfNotFound      = 5
	tfUnimplemented = 12
)

// failure converts an error code of the runtime and its text to an error.
func failure(code C.int, text *C.char) error {
	class := status.Internal
	switch code {
	case tfNotFound:
		class = status.NotFound
	case tfUnimplemented:
		class = status.Unsupported
	}
	return status.Errorf(class, "tensorflow error %d: %s", code, C.GoString(text))
}
