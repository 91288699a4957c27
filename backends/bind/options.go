package bind

import (
	"math"
	"strconv"

	"github.com/tutti-server/tutti/core/status"
)

// KeyMaxBatch is the backend setting that DefaultMaxBatch reads.
const KeyMaxBatch = "default-max-batch-size"

// defaultMaxBatch is what autocompletion gives a model that can batch.
const defaultMaxBatch = 4

// DefaultMaxBatch reads the max_batch_size of models that can batch and whose configuration is left to autocompletion
// from the settings of the named backend.
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
