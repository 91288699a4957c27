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

// Parameters of config.pbtxt with a meaning for the backend.
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

// handed are the parameters that are passed to the runtime unchanged.
var handed = []string{
	keyCache, "CACHE_MODE", "COMPILATION_NUM_THREADS", "CPU_DENORMALS_OPTIMIZATION", "CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE",
	"DEVICE_ID", "DYNAMIC_QUANTIZATION_GROUP_SIZE", keyPinning, "ENABLE_CPU_RESERVATION", "ENABLE_HYPER_THREADING",
	"ENABLE_MMAP", "EXECUTION_MODE_HINT", keyThreads, keyPrecision, "KV_CACHE_PRECISION", "MODEL_DISTRIBUTION_POLICY",
	"MODEL_PRIORITY", keyStreams, keyHint, "PERFORMANCE_HINT_NUM_REQUESTS", "SCHEDULING_CORE_TYPE",
}

// settings are the parameters of config.pbtxt for one model.
type settings struct {
	device     string
	extension  string
	fixed      bool // keep the batch size of the file
	pad        bool // pad smaller batches to it
	reshape    bool // reshape inputs to the shapes of config.pbtxt
	properties map[string]string
}

// modelSettings parses the settings of a model's configuration.
//
// The default precision is f32, because the runtime's default is bf16 on some processors, which changes results. By default the
// instances together use each core once, and threads are not pinned to cores, because other models use the cores too.
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

// parse applies one parameter. It ignores unknown ones.
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

// share sets the defaults that divide the cores among the instances.
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

// beside resolves a path relative to the model's folder.
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

// marshal copies the properties to C memory. The caller must call free.
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
