package tracing

import (
	"maps"
	"slices"

	"github.com/tutti-server/tutti/core/status"
)

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
	for _, name := range slices.Sorted(maps.Keys(s.models)) {
		s.models[name].retire()
	}
	s.global.retire()
	return nil
}

// next returns the setting that replaces cur, nil for none. Values that it does not set itself come from fallback.
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

// cleared returns the keys that changes reset.
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

// check rejects values with which nothing could be traced. Any values are valid while the level is OFF.
func (t *Tracer) check(v values) error {
	const invalid = "Attempting to set invalid trace setting :"
	switch {
	case v.level == 0:
		return nil
	case t.mode == ModeOpenTelemetry && v.level&tensors != 0:
		return status.Errorf(status.Unsupported, "trace level TENSORS is not supported in trace mode '%s', only OFF and TIMESTAMPS are", t.mode)
	case t.mode == ModeOpenTelemetry: // with rate 0 only requests with a client's trace context are traced
		return nil
	case v.rate == 0:
		return status.Errorf(status.InvalidArg, invalid+"sample rate must be non-zero")
	case t.file.name == "":
		return status.Errorf(status.InvalidArg, invalid+"trace file name is not given")
	}
	return nil
}
