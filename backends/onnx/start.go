package onnx

import (
	"math"
	"strconv"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
)

// The settings of --backend-config=onnxruntime,KEY=VALUE.
const (
	keyLibrary = "library-path"
	keyShared  = "enable-global-threadpool"
	keyIntra   = "intra_op_thread_count"
	keyInter   = "inter_op_thread_count"
	keyMemory  = "memory-limit"
)

// startSettings reads how the runtime is started: enable-global-threadpool has all models share one pool of threads
// within operators, of intra_op_thread_count, and one over operators, of inter_op_thread_count. Without it these two
// are what a model gets that says nothing. memory-limit bounds, in bytes, the memory on the host of all models together.
func startSettings(values map[string]string) (start, error) {
	var s start
	if v, ok := values[keyShared]; ok {
		on, err := boolean.Parse(keyShared, v)
		if err != nil {
			return s, err
		}
		s.shared = on
	}
	err := number(values, keyIntra, bind.MaxThreads, &s.intra)
	if err == nil {
		err = number(values, keyInter, bind.MaxThreads, &s.inter)
	}
	if err == nil {
		err = number(values, keyMemory, math.MaxInt64, &s.memory)
	}
	return s, err
}

// number reads an integer from 0 to most; a key that is not there leaves to as it is.
func number[T int | int64](values map[string]string, key string, most int64, to *T) error {
	v, ok := values[key]
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > most {
		return status.Errorf(status.InvalidArg, "unexpected value '%s' of onnxruntime setting '%s': expected an integer of at least 0", v, key)
	}
	*to = T(n)
	return nil
}
