package openvino

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/backends/bind"
	"github.com/tutti-server/tutti/core/status"
)

// Parameters of config.pbtxt that are not handed to the runtime as they are.
const (
	keyDevice    = "TARGET_DEVICE"
	keyExtension = "CPU_EXTENSION_PATH"
	keyFixed     = "SKIP_OV_DYNAMIC_BATCHSIZE"
	keyPad       = "ENABLE_BATCH_PADDING"
	keyReshape   = "RESHAPE_IO_LAYOUT"
	keyBF16      = "HINT_BF16"
	keyThreads   = "INFERENCE_NUM_THREADS"
	keyStreams   = "NUM_STREAMS"
	keyHint      = "PERFORMANCE_HINT"
	keyPrecision = "INFERENCE_PRECISION_HINT"
	keyCache     = "CACHE_DIR"
	keyPinning   = "ENABLE_CPU_PINNING"
)

// handed are the parameters that the runtime gets under the same name.
var handed = []string{
	keyCache, "CACHE_MODE", "COMPILATION_NUM_THREADS", "CPU_DENORMALS_OPTIMIZATION", "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE",
	"DEVICE_ID", "DYNAMIC_QUANTIZATION_GROUP_SIZE", keyPinning, "ENABLE_CPU_RESERVATION", "ENABLE_HYPER_THREADING",
	"ENABLE_MMAP", "EXECUTION_MODE_HINT", keyThreads, keyPrecision, "KV_CACHE_PRECISION", "MODEL_DISTRIBUTION_POLICY",
	"MODEL_PRIORITY", keyStreams, keyHint, "PERFORMANCE_HINT_NUM_REQUESTS", "SCHEDULING_CORE_TYPE",
}

// settings say how a model is loaded and run: the parameters of config.pbtxt.
type settings struct {
	device     string
	extension  string
	fixed      bool // the file's batch size stays as it is
	pad        bool // batches are made up to it
	reshape    bool // inputs take the shapes of config.pbtxt
	properties map[string]string
}

// modelSettings reads the settings out of a model's configuration.
//
// By default it is computed in f32: the runtime's own choice is bf16 on some processors, which changes results. The
// instances together use each core once, and threads are not bound to cores, which other models use too.
func modelSettings(s *backends.Settings) (settings, error) {
	o := settings{device: "CPU", properties: map[string]string{keyPrecision: "f32"}}
	if err := bind.EachParam(s.Config, func(key, value string) error { return o.parse(key, value, s.ModelDir) }); err != nil {
		return o, err
	}
	if o.device == "CPU" {
		o.share(max(1, s.Instances))
	}
	for _, a := range s.Config.GetOptimization().GetExecutionAccelerators().GetCpuExecutionAccelerator() {
		return o, status.Errorf(status.Unsupported, "execution accelerator '%s' is not supported", a.GetName())
	}
	return o, nil
}

// parse applies one parameter. A key it does not know belongs to another layer.
func (o *settings) parse(key, value, modelDir string) (err error) {
	switch key {
	case keyDevice:
		o.device = value
	case keyExtension:
		o.extension = beside(modelDir, value)
	case keyFixed:
		o.fixed, err = boolean.Parse(key, value)
	case keyPad:
		o.pad, err = boolean.Parse(key, value)
	case keyReshape, keyReshape + "S":
		o.reshape, err = boolean.Parse(key, value)
	case keyBF16:
		var on bool
		if on, err = boolean.Parse(key, value); on {
			o.properties[keyPrecision] = "bf16"
		}
	case keyCache:
		o.properties[key] = beside(modelDir, value)
	case keyThreads:
		o.properties[key], err = threads(key, value)
	default:
		if slices.Contains(handed, key) {
			o.properties[key] = value
		}
	}
	if err == nil && value == "" && (key == keyDevice || slices.Contains(handed, key)) {
		err = status.Errorf(status.InvalidArg, "parameter '%s' has no string_value", key)
	}
	if strings.IndexByte(value, 0) >= 0 {
		err = status.Errorf(status.InvalidArg, "parameter '%s' has a value with a zero byte", key)
	}
	return err
}

// share splits the processor between the instances where nothing is said about it.
func (o *settings) share(instances int) {
	p := o.properties
	if p[keyPinning] == "" {
		p[keyPinning] = "NO"
	}
	if p[keyHint] != "" {
		return
	}
	if p[keyStreams] == "" {
		p[keyStreams] = strconv.Itoa(instances)
	}
	if p[keyThreads] == "" {
		p[keyThreads] = strconv.Itoa(max(instances, runtime.GOMAXPROCS(0)))
	}
}

// beside returns a path that is meant relative to the model's folder.
func beside(modelDir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(modelDir, path)
}

// boolean has the values of Triton's openvino backend for boolean parameters.
var boolean = bind.Words{True: []string{"yes", "1", "true"}, False: []string{"no", "0", "false"}, Expected: "YES or NO"}

// threads checks a number of threads, which the runtime receives as text.
func threads(key, value string) (string, error) {
	if _, err := bind.ParseThreads(key, value); err != nil {
		return "", err
	}
	return value, nil
}

// marshal returns the properties in C memory and a function that frees it.
func (o *settings) marshal() (keys, values **C.char, free func()) {
	var owned []unsafe.Pointer
	size := C.size_t(len(o.properties)+1) * C.size_t(unsafe.Sizeof(uintptr(0)))
	keys, values = (**C.char)(C.calloc(1, size)), (**C.char)(C.calloc(1, size))
	owned = append(owned, unsafe.Pointer(keys), unsafe.Pointer(values))
	ks, vs := unsafe.Slice(keys, len(o.properties)), unsafe.Slice(values, len(o.properties))
	for i, key := range slices.Sorted(maps.Keys(o.properties)) {
		ks[i], vs[i] = C.CString(key), C.CString(o.properties[key])
		owned = append(owned, unsafe.Pointer(ks[i]), unsafe.Pointer(vs[i]))
	}
	return keys, values, func() {
		for _, p := range owned {
			C.free(p)
		}
	}
}
