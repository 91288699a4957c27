package tracing

import (
	"maps"
	"slices"

	"github.com/tutti-server/tutti/core/status"
)

// Update changes the settings of a model, or those of all models that have none of
// their own when the name is empty. A key whose list is empty goes back to the value
// of the server, or to the start-up value. Keys that are not settings are left alone,
// as in Triton. An update is made whole or, with an error, not at all.
//
// A change starts the sampling anew, and what the old settings have collected is
// written. The caller checks that the model exists.
func (t *Tracer) Update(model string, changes map[string][]string) error {
	if t == nil {
		return status.Errorf(status.Unavailable, "the server does not support tracing")
	}
	if _, ok := changes[keyFile]; ok {
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
	if next.own == 0 {
		delete(models, model)
	}
	t.store(s.global, models)
	if old := s.models[model]; old != nil {
		old.retire()
	}
	return nil
}

// updateGlobal also has the models follow in what they do not set themselves.
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
	for _, name := range slices.Sorted(maps.Keys(s.models)) {
		s.models[name].retire()
	}
	s.global.retire()
	return nil
}

// next returns the setting that follows cur, nil for none, where fallback is what it
// does not set itself.
func (t *Tracer) next(cur *setting, fallback values, changes map[string][]string) (*setting, error) {
	v, own := fallback, keys(0)
	if cur != nil {
		own = cur.own &^ cleared(changes)
		v = cur.current().over(fallback, own)
	}
	v, made, err := v.change(changes)
	if err != nil {
		return nil, err
	}
	if err := t.check(v); err != nil {
		return nil, err
	}
	return newSetting(t, v, own|made), nil
}

// cleared returns the keys that changes take back.
func cleared(changes map[string][]string) keys {
	var k keys
	for key, bit := range map[string]keys{keyLevel: hasLevel, keyRate: hasRate, keyCount: hasCount, keyFrequency: hasFrequency} {
		if list, ok := changes[key]; ok && len(list) == 0 {
			k |= bit
		}
	}
	return k
}

// over returns fallback with v's values of the given keys.
func (v values) over(fallback values, own keys) values {
	if own&hasLevel != 0 {
		fallback.level = v.level
	}
	if own&hasRate != 0 {
		fallback.rate = v.rate
	}
	if own&hasCount != 0 {
		fallback.count = v.count
	}
	if own&hasFrequency != 0 {
		fallback.frequency = v.frequency
	}
	return fallback
}

// check refuses values that cannot be traced with. Anything goes while the level is
// OFF.
func (t *Tracer) check(v values) error {
	const invalid = "Attempting to set invalid trace setting :"
	switch {
	case v.level == 0:
		return nil
	case t.mode == ModeOpenTelemetry && v.level&tensors != 0:
		return status.Errorf(status.Unsupported, "trace level TENSORS is not supported in trace mode '%s', only OFF and TIMESTAMPS are", t.mode)
	case t.mode == ModeOpenTelemetry: // with rate 0 only what follows a client's trace
		return nil
	case v.rate == 0:
		return status.Errorf(status.InvalidArg, invalid+"sample rate must be non-zero")
	case t.file.name == "":
		return status.Errorf(status.InvalidArg, invalid+"trace file name is not given")
	}
	return nil
}
