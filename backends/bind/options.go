package bind

import (
	"math"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
)

// Keys of --backend-config that the framework backends share.
const (
	KeyMaxBatch = "default-max-batch-size"
	KeyLibrary  = "library-path"
)

// defaultMaxBatch is the default of KeyMaxBatch, as in Triton.
const defaultMaxBatch = 4

// DefaultMaxBatch returns the setting default-max-batch-size of the named backend: the max_batch_size that auto-completion gives
// to models that can batch.
func DefaultMaxBatch(backend string, values map[string]string) (int, error) {
	v, ok := values[KeyMaxBatch]
	if !ok {
		return defaultMaxBatch, nil
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 || n > math.MaxInt32 {
		return 0, status.Errorf(status.InvalidArg, "unexpected value '%s' of %s setting '%s': expected an integer of at least 0", v, backend, KeyMaxBatch)
	}
	return n, nil
}

// Library returns the path of a runtime's library, which find looks up (runtimes.Find), and the default max_batch_size, by the
// options of the backend.
func Library(backend string, o *backends.Options, find func(runtime, given string) (string, error)) (path string, maxBatch int, err error) {
	if maxBatch, err = DefaultMaxBatch(backend, o.Config); err != nil {
		return "", 0, err
	}
	path, err = find(backend, o.Config[KeyLibrary])
	return path, maxBatch, err
}
