package onnx

import (
	"math"
	"strconv"

	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
)

// Keys of --backend-config=onnxruntime,KEY=VALUE.
const (
	keyShared = "enable-global-threadpool"
	keyIntra  = "intra_op_thread_count"
	keyInter  = "inter_op_thread_count"
	keyMemory = "memory-limit"
)

// startSettings parses the settings of the process. With enable-global-threadpool all models share two thread pools, of
// intra_op_thread_count and inter_op_thread_count threads. Without it these are the defaults of each model. memory-limit is the
// most host memory of all models together, in bytes.
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

// number parses an integer from 0 to most into to. A missing key changes nothing.
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
