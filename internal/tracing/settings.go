package tracing

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/telemetry"
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
		return status.Reasonf(status.NotEnabled, "the server does not support tracing")
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

// maxBuffered bounds the traces that are buffered, in bytes; at that size they are written to the trace file.
const maxBuffered = 1 << 20

// setting is the setting of a scope with the traces it has sampled. A setting is immutable and is replaced as a
// whole: a trace is written by the setting that sampled it.
type setting struct {
	values
	own     [numKeys]bool // the scope sets the value itself
	traces  bool          // it may trace a request
	follows bool          // reports whether requests with a client's trace context are always traced
	file    *file         // nil where traces are not written to a file

	seen atomic.Uint64 // number of requests
	left atomic.Int64  // remaining part of the count

	mu        sync.Mutex
	buf       []byte // guarded by mu; encoded traces, separated by commas
	buffered  int64  // guarded by mu; number of traces in buf
	collected int64  // guarded by mu; number of collected traces
	retired   bool   // guarded by mu; replaced: traces are written at once
}

func newSetting(t *Tracer, v values, own [numKeys]bool) *setting {
	s := &setting{values: v, own: own}
	if t.mode == ModeTriton {
		s.file = t.file
	}
	s.left.Store(v[keyCount])
	s.traces = v[keyLevel] != 0 && t.check(v) == nil
	s.follows = s.traces && t.mode == ModeOpenTelemetry
	return s
}

func (s *setting) current() values {
	v := s.values
	v[keyCount] = s.left.Load()
	return v
}

// sample reports whether one more request is traced: it is one in rate, and count is not used up.
//
// hot: no lock, no allocation.
func (s *setting) sample() bool {
	if !s.traces || s.values[keyRate] == 0 || s.left.Load() == 0 || s.seen.Add(1)%uint64(s.values[keyRate]) != 0 {
		return false
	}
	for {
		left := s.left.Load()
		if left <= 0 {
			return left < 0
		}
		if s.left.CompareAndSwap(left, left-1) {
			return true
		}
	}
}

// collect takes one finished trace for the trace file. The buffered traces are written to an indexed file when the
// log frequency or the count is reached, and to the trace file when they exceed maxBuffered.
func (s *setting) collect(t *Trace) {
	if s.file == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.buffered > 0 {
		s.buf = append(s.buf, ',')
	}
	s.buf = t.encode(s.buf)
	s.buffered++
	s.collected++
	switch {
	case s.left.Load() == 0 && s.collected == s.values[keyCount], s.values[keyFrequency] != 0 && s.buffered >= s.values[keyFrequency]:
		s.flush(true)
	case s.retired, s.values[keyFrequency] == 0 && len(s.buf) >= maxBuffered:
		s.flush(s.values[keyFrequency] != 0)
	}
}

// retire writes the buffered traces; later ones are written at once.
func (s *setting) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	if s.buffered > 0 {
		s.flush(s.values[keyFrequency] != 0)
	}
}

// flush writes the buffered traces. The caller holds mu.
func (s *setting) flush(indexed bool) {
	if indexed {
		s.file.writeIndexed(s.buf)
	} else {
		s.file.write(s.buf)
	}
	s.buf, s.buffered = s.buf[:0], 0
}

// quota limits a rate to a number per stretch of time. Above the limit it reads the clock only once in clockEveryN
// calls.
type quota struct {
	each  int64 // per stretch, 0 for no limit
	left  atomic.Int64
	until atomic.Int64 // end of the stretch
}

const (
	stretch     = int64(10_000_000) // ns
	stretches   = 100               // in a second
	clockEveryN = 64
)

func (q *quota) open(perSecond int) {
	if perSecond > 0 {
		q.each = int64(max(perSecond/stretches, 1))
		q.left.Store(q.each)
	}
}

// take reports whether one more is within the quota.
//
// hot: no lock, no allocation.
func (q *quota) take() bool {
	if q.each == 0 {
		return true
	}
	left := q.left.Add(-1)
	if left >= 0 {
		return true
	}
	if left%clockEveryN != -1 {
		return false
	}
	now, until := telemetry.Now(), q.until.Load()
	if now < until || !q.until.CompareAndSwap(until, now+stretch) {
		return false
	}
	q.left.Store(q.each - 1)
	return true
}

// maxRetained limits the requests whose clients ask for their traces to be retained: the size of a burst, and the
// rate per second. People send few; the limit protects the store.
const maxRetained = 20

// allowance enforces maxRetained. A quota would be too coarse: above its limit it rarely reads the clock.
type allowance struct{ due atomic.Int64 }

func (a *allowance) take(now int64) bool {
	const second, each = int64(1_000_000_000), int64(1_000_000_000) / maxRetained
	for {
		at := a.due.Load()
		due := max(at, now) + each
		if due > now+second {
			return false
		}
		if a.due.CompareAndSwap(at, due) {
			return true
		}
	}
}

const maxRefusedText = 256 // bounds the client's texts in the record of a refused request, in bytes

// RecordRefusal sends the sinks the record of a request that failed before a model accepted it, at the end of
// o.Read. For example, its body could not be decoded, or it names an unknown model. Version is 0 if it is unknown.
// The record has no RequestStart.
func (t *Tracer) RecordRefusal(model string, version int64, id string, o *Origin, err error) {
	if t == nil || o.Read.Ended == 0 || !t.all.Load() {
		return
	}
	x := t.newTrace(nil, refusedText(model), version, refusedText(id))
	x.rec.Began, x.rec.BeganAt = t.epoch+o.Read.Began, o.Read.Began
	x.SetOrigin(o)
	x.Fail(err)
	x.End()
}

// refusedText returns a client's text for a record: shortened, and valid UTF-8.
func refusedText(s string) string {
	if len(s) > maxRefusedText {
		s = s[:maxRefusedText]
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// Failure returns a trace for a request that was not sampled and fails, which has no steps; nil where failures are not recorded. The
// caller must End it.
func (t *Tracer) Failure(model string, version int64, id string, o *Origin) *Trace {
	if t == nil || !t.all.Load() {
		return nil
	}
	x := t.newTrace(nil, model, version, id)
	x.SetOrigin(o)
	return x
}
