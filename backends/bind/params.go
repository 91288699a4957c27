package bind

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// EachParam calls parse with the parameters of a configuration in the order of their keys, until it returns an error.
func EachParam(cfg *modelconfig.ModelConfig, parse func(key, value string) error) error {
	params := cfg.GetParameters()
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if err := parse(key, params[key].GetStringValue()); err != nil {
			return err
		}
	}
	return nil
}

// Words are the accepted values of boolean parameters, in lower case. Each runtime has its own, which are those of Triton's
// backend for it. For example, ENABLE_BATCH_PADDING of OpenVINO is YES or NO.
type Words struct {
	True, False []string
	// Expected lists the values in the error for any other.
	Expected string
}

// Parse returns the value of a boolean parameter.
func (w *Words) Parse(key, value string) (bool, error) {
	word := strings.ToLower(value)
	on := slices.Contains(w.True, word)
	if !on && !slices.Contains(w.False, word) {
		return false, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected %s", value, key, w.Expected)
	}
	return on, nil
}

// MaxThreads is the most threads of a pool that a configuration may request.
const MaxThreads = 1024

// ParseThreads returns the value of a parameter that is a number of threads.
func ParseThreads(key, value string) (int, error) {
	return ParseInt(key, value, 0, MaxThreads, "a number of threads")
}

// ParseInt returns the value of an integer parameter. what names the quantity in the error.
func ParseInt(key, value string, least, most int, what string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < least || n > most {
		return 0, status.Errorf(status.InvalidArg, "unexpected value '%s' of parameter '%s': expected %s from %d to %d", value, key, what, least, most)
	}
	return n, nil
}
