package tracing

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/tutti-server/tutti/core/status"
)

const fileKey = "trace_file" // the name of the file's setting in requests and responses

// The settings of a scope, as indices of values.
const (
	keyLevel = iota
	keyRate
	keyCount
	keyFrequency
	numKeys
)

// keys are the names of the settings in requests and responses, and the bounds of numbers.
var keys = [numKeys]struct {
	name     string
	min, max int64
}{
	keyLevel:     {name: "trace_level"},
	keyRate:      {"trace_rate", 0, math.MaxUint32},
	keyCount:     {"trace_count", -1, math.MaxInt32},
	keyFrequency: {"log_frequency", 0, math.MaxUint32},
}

// values are the settings of a scope.
type values [numKeys]int64

// The trace levels, as bits of the level's value; 0 is OFF.
const (
	timestamps = 1 << iota
	tensors
)

var levelNames = []string{"TIMESTAMPS", "TENSORS"}

func (v *values) levels() (all []string) {
	for i, name := range levelNames {
		if v[keyLevel]>>i&1 != 0 {
			all = append(all, name)
		}
	}
	if all == nil {
		all = append(all, "OFF")
	}
	return all
}

// change applies the changes that have a value, and sets their keys in own.
func (v *values) change(changes map[string][]string, own *[numKeys]bool) error {
	for i := range keys {
		list := changes[keys[i].name]
		if len(list) == 0 {
			continue
		}
		parse := parseNumber
		if i == keyLevel {
			parse = parseLevel
		}
		n, err := parse(i, list)
		if err != nil {
			return err
		}
		v[i], own[i] = n, true
	}
	return nil
}

func parseLevel(key int, list []string) (l int64, err error) {
	for _, s := range list {
		switch i := slices.Index(levelNames, s); {
		case i >= 0:
			l |= 1 << i
		case s != "OFF":
			return 0, status.Errorf(status.InvalidArg, "Unable to parse '%s', got: %s, expected OFF, TIMESTAMPS or TENSORS", keys[key].name, s)
		case len(list) > 1:
			return 0, status.Errorf(status.InvalidArg, "Expect only one trace level 'OFF' is specified")
		}
	}
	return l, nil
}

func parseNumber(key int, list []string) (int64, error) {
	k := &keys[key]
	if len(list) > 1 {
		return 0, status.Errorf(status.InvalidArg, "expect only 1 value for '%s'", k.name)
	}
	n, err := strconv.ParseInt(list[0], 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, status.Errorf(status.InvalidArg, "Unable to parse '%s', got: %s", k.name, list[0])
	case key == keyCount && err == nil && n < k.min:
		return 0, status.Errorf(status.InvalidArg, "Unable to parse '%s'. Expecting value >= %d, got: %s", k.name, k.min, list[0])
	case err != nil || n < k.min || n > k.max:
		return 0, status.Errorf(status.InvalidArg, "Unable to parse '%s', value is out of range [ %d, %d ], got: %s", k.name, k.min, k.max, list[0])
	}
	return n, nil
}

// Update changes the settings of a model, or, for an empty name, those of all models without settings of their own.
// A key with an empty list is reset to the server's value, or to the start-up value. Unknown keys are ignored, as
// in Triton. On an error nothing changes.
//
// A change restarts the sampling and writes the collected traces of the old settings. The caller must check that
// the model exists.
func (t *Tracer) Update(model string, changes map[string][]string) error {
	if t == nil {
		return status.Errorf(status.Unavailable, "the server does not support tracing")
	}
	if _, ok := changes[fileKey]; ok {
		return status.Errorf(status.Unsupported, "trace file location can not be updated through network protocol")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.now.Load()
	if model == "" {
		return t.updateGlobal(s, changes)
	}
	next, err := t.next(s.models[model], s.global.current(), changes)
	if err != nil {
		return err
	}
	models := maps.Clone(s.models)
	models[model] = next
	if next.own == ([numKeys]bool{}) {
		delete(models, model)
	}
	t.store(s.global, models)
	if old := s.models[model]; old != nil {
		old.retire()
	}
	return nil
}

// updateGlobal updates the global settings and the inherited values of the models.
func (t *Tracer) updateGlobal(s *scopes, changes map[string][]string) error {
	global, err := t.next(s.global, t.initial, changes)
	if err != nil {
		return err
	}
	models := maps.Clone(s.models)
	for _, name := range slices.Sorted(maps.Keys(models)) {
		if models[name], err = t.next(models[name], global.values, nil); err != nil {
			return err
		}
	}
	t.store(global, models)
	s.retire()
	return nil
}

func (s *scopes) retire() {
	for _, name := range slices.Sorted(maps.Keys(s.models)) {
		s.models[name].retire()
	}
	s.global.retire()
}

// next returns the setting that replaces cur, nil for none. Values that it does not set itself come from fallback.
func (t *Tracer) next(cur *setting, v values, changes map[string][]string) (*setting, error) {
	var own [numKeys]bool
	for i := range keys {
		list, given := changes[keys[i].name]
		if cur != nil && cur.own[i] && (!given || len(list) > 0) {
			own[i], v[i] = true, cur.current()[i]
		}
	}
	if err := v.change(changes, &own); err != nil {
		return nil, err
	}
	if err := t.check(v); err != nil {
		return nil, err
	}
	return newSetting(t, v, own), nil
}

// check rejects values with which nothing could be traced. Any values are valid while the level is OFF.
func (t *Tracer) check(v values) error {
	const invalid = "Attempting to set invalid trace setting :"
	switch {
	case v[keyLevel] == 0:
		return nil
	case t.mode == ModeOpenTelemetry && v[keyLevel]&tensors != 0:
		return status.Errorf(status.Unsupported, "trace level TENSORS is not supported in trace mode '%s', only OFF and TIMESTAMPS are", t.mode)
	case t.mode == ModeOpenTelemetry: // with rate 0 only requests with a client's trace context are traced
		return nil
	case v[keyRate] == 0:
		return status.Errorf(status.InvalidArg, invalid+"sample rate must be non-zero")
	case t.file.name == "":
		return status.Errorf(status.InvalidArg, invalid+"trace file name is not given")
	}
	return nil
}
