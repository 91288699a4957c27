package tracing

import (
	"math"
	"strconv"

	"github.com/tutti-server/tutti/core/status"
)

// The names of the settings in requests and responses.
const (
	keyFile      = "trace_file"
	keyLevel     = "trace_level"
	keyRate      = "trace_rate"
	keyCount     = "trace_count"
	keyFrequency = "log_frequency"
)

// level is a set of trace levels, as bits; 0 is OFF.
type level uint8

const (
	timestamps level = 1 << iota
	tensors
)

func (l level) names() []string {
	var all []string
	if l&timestamps != 0 {
		all = append(all, "TIMESTAMPS")
	}
	if l&tensors != 0 {
		all = append(all, "TENSORS")
	}
	if all == nil {
		all = append(all, "OFF")
	}
	return all
}

// values are the settings of a scope.
type values struct {
	level     level
	rate      uint32
	count     int32
	frequency uint32
}

// keys are those of values, as bits.
type keys uint8

const (
	hasLevel keys = 1 << iota
	hasRate
	hasCount
	hasFrequency
)

// change returns v with the changes that have a value applied, and their keys.
func (v values) change(changes map[string][]string) (values, keys, error) {
	var made keys
	if list := changes[keyLevel]; len(list) > 0 {
		l, err := parseLevel(list)
		if err != nil {
			return v, 0, err
		}
		v.level, made = l, made|hasLevel
	}
	for _, n := range []struct {
		key      string
		bit      keys
		min, max int64
		set      func(int64)
	}{
		{keyRate, hasRate, 0, math.MaxUint32, func(n int64) { v.rate = uint32(n) }},
		{keyCount, hasCount, -1, math.MaxInt32, func(n int64) { v.count = int32(n) }},
		{keyFrequency, hasFrequency, 0, math.MaxUint32, func(n int64) { v.frequency = uint32(n) }},
	} {
		list := changes[n.key]
		if len(list) == 0 {
			continue
		}
		x, err := parseNumber(n.key, list, n.min, n.max)
		if err != nil {
			return v, 0, err
		}
		n.set(x)
		made |= n.bit
	}
	return v, made, nil
}

func parseLevel(list []string) (level, error) {
	var l level
	for _, s := range list {
		switch s {
		case "OFF":
			if len(list) > 1 {
				return 0, status.Errorf(status.InvalidArg, "Expect only one trace level 'OFF' is specified")
			}
		case "TIMESTAMPS":
			l |= timestamps
		case "TENSORS":
			l |= tensors
		default:
			return 0, status.Errorf(status.InvalidArg,
				"Unable to parse '%s', got: %s, expected OFF, TIMESTAMPS or TENSORS", keyLevel, s)
		}
	}
	return l, nil
}

func parseNumber(key string, list []string, low, high int64) (int64, error) {
	if len(list) > 1 {
		return 0, status.Errorf(status.InvalidArg, "expect only 1 value for '%s'", key)
	}
	n, err := strconv.ParseInt(list[0], 10, 64)
	switch {
	case err != nil && !isNumber(list[0]):
		return 0, status.Errorf(status.InvalidArg, "Unable to parse '%s', got: %s", key, list[0])
	case key == keyCount && err == nil && n < low:
		return 0, status.Errorf(status.InvalidArg, "Unable to parse '%s'. Expecting value >= %d, got: %s", key, low, list[0])
	case err != nil || n < low || n > high:
		return 0, status.Errorf(status.InvalidArg,
			"Unable to parse '%s', value is out of range [ %d, %d ], got: %s", key, low, high, list[0])
	}
	return n, nil
}

// isNumber reports whether s is an integer of any size.
func isNumber(s string) bool {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		s = s[1:]
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
