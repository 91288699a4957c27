// Package capture records the tensors of selected requests: the inputs and the outputs of each step, copied into
// memory of a fixed size in which new requests replace the oldest. Nothing is recorded until a capture is started,
// and every capture ends.
//
// Redacted contents are never copied. Only type and shape are recorded of a tensor that has a redacted name (in an
// ensemble, nested ones included, or as an input that reads it), or that a redacted model produces or reads. A
// tensor that a step computes from a redacted one is another tensor: it needs its own rule. The patterns of tensors are
// also those of the request's parameters.
//
// - store.go: Store, its memory, its captures and the selection of requests
// - snapshot.go: recording the tensors of one request, the views that the dashboard and the CLI read, and NumPy files
// - crash.go: requests that have ended the process of their model
// - read.go: reading the NumPy files
// - preview.go: previews of contents
//
// # Files
//
// An .npz file has one array for each tensor with content, under its name STEP.TENSOR, and loads without pickle.
// FP16 is float16. BF16, which NumPy lacks, is the uint16 of its bits: shifted left by 16 they are the bits of a
// float32. A BYTES tensor is an array of fixed-width bytes (S) when that preserves every byte and is not much
// larger; else it is three arrays: NAME.data, all elements as uint8, NAME.offsets, where each begins and the last
// ends, and NAME.shape. Content that does not match its type and shape is a flat uint8 array. __capture__ is the
// list of all tensors, including redacted ones, as the UTF-8 bytes of JSON, with what the request said besides them.
package capture

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Settings configure a Store.
type Settings struct {
	// Bytes bounds the memory of all captures, RequestBytes the contents of one request.
	Bytes, RequestBytes int64
	// RedactTensors and RedactModels are patterns of tensors whose contents must not be recorded.
	RedactTensors, RedactModels []string
	Now                         func() int64 // a clock in nanoseconds, nil for telemetry.Now

	_ struct{}
}

// Limits of remembered captures.
const (
	maxActive = 16
	maxEnded  = 64
)

// Store records tensors. It is a tracing.Recorder and an inspect.Captures, safe for concurrent use.
type Store struct {
	set    Settings
	active atomic.Pointer[[]*session]

	mu        sync.Mutex
	used      int64       // guarded by mu
	snapshots []*snapshot // oldest first; guarded by mu
	sessions  []*session  // oldest first; guarded by mu
	ids       uint64      // guarded by mu
	crashes   *session    // of RecordCrash, nil before the first; guarded by mu
}

// snapshot holds the tensors of a finished request. It is immutable.
type snapshot struct {
	session *session
	id      tracing.TraceID
	cost    int64
	tensors []capturedTensor
	more    int
	sent    *inspect.SentView
	view    inspect.SnapshotView
}

// New returns an empty store.
func New(set Settings) *Store {
	if set.Now == nil {
		set.Now = telemetry.Now
	}
	set.RequestBytes = min(set.RequestBytes, set.Bytes)
	s := &Store{set: set}
	s.active.Store(new([]*session))
	return s
}

// Active implements tracing.Recorder.
//
// hot: one load.
func (s *Store) Active() bool { return len(*s.active.Load()) > 0 }

// Select implements tracing.Recorder.
func (s *Store) Select(model, request string, id tracing.TraceID) tracing.Snapshot {
	s.expire()
	for _, x := range *s.active.Load() {
		if x.matches(model, request, id) && (x.matched.Add(1)-1)%uint64(x.rule.Every) == 0 && s.admit(x) {
			return &recording{s: s, session: x, model: model, cost: snapshotCost}
		}
	}
	return nil
}

// admit selects one more request for a session, unless the session is over or memory is short. It ends the session
// when its count is reached.
func (s *Store) admit(x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case x.over:
		return false
	case !s.allocate(snapshotCost):
		x.missed++
		return false
	}
	x.selected++
	if x.selected == uint64(x.rule.Count) { //nolint:gosec // not negative
		s.retire(x)
	}
	return true
}

func (s *Store) reserve(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.allocate(n)
}

// allocate is reserve with mu held. It drops the oldest snapshots if necessary.
func (s *Store) allocate(n int64) bool {
	if n > s.set.Bytes {
		return false
	}
	dropped := 0
	for s.used+n > s.set.Bytes && dropped < len(s.snapshots) {
		old := s.snapshots[dropped]
		s.used -= old.cost
		old.session.dropped++
		dropped++
	}
	s.snapshots = slices.Delete(s.snapshots, 0, dropped)
	if s.used+n > s.set.Bytes {
		return false
	}
	s.used += n
	return true
}

func (s *Store) end(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retire(x)
}

// retire is end with mu held. It also forgets the oldest ended sessions beyond maxEnded.
func (s *Store) retire(x *session) {
	x.over = true
	rest := slices.DeleteFunc(slices.Clone(*s.active.Load()), func(y *session) bool { return y == x })
	s.active.Store(&rest)
	ended := 0
	for _, y := range s.sessions {
		if y.over {
			ended++
		}
	}
	s.sessions = slices.DeleteFunc(s.sessions, func(y *session) bool {
		if !y.over || ended <= maxEnded {
			return false
		}
		ended--
		return true
	})
}

func (s *Store) expire() {
	for _, x := range *s.active.Load() {
		if s.set.Now() >= x.ends {
			s.end(x)
		}
	}
}

// StartCapture implements inspect.Captures.
func (s *Store) StartCapture(rule inspect.CaptureRule) (*inspect.CaptureView, error) {
	if err := s.complete(&rule); err != nil {
		return nil, err
	}
	s.expire()
	x := &session{
		rule: rule, ends: s.set.Now() + rule.Seconds*int64(time.Second),
		endsUs: time.Now().Add(time.Duration(rule.Seconds) * time.Second).UnixMicro(),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := *s.active.Load()
	if len(all) == maxActive {
		return nil, status.Reasonf(status.LimitReached, "%d captures are active, at most %d may be", len(all), maxActive)
	}
	s.ids++
	x.id = s.ids
	s.sessions = append(s.sessions, x)
	all = append(slices.Clone(all), x)
	s.active.Store(&all)
	return s.view(x), nil
}

// StopCapture implements inspect.Captures.
func (s *Store) StopCapture(id uint64) error {
	x, err := s.session(id)
	if err == nil {
		s.end(x)
	}
	return err
}

func (s *Store) session(id uint64) (*session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.sessions, func(x *session) bool { return x.id == id })
	if i < 0 {
		return nil, status.Errorf(status.NotFound, "there is no capture %d", id)
	}
	return s.sessions[i], nil
}

// Bounds of a rule.
const (
	defaultSeconds = 600
	maxSeconds     = 86400
	maxPatterns    = 64
	maxPattern     = 512
)

func (s *Store) complete(r *inspect.CaptureRule) error {
	for _, n := range []struct {
		name       string
		value      *int64
		other, max int64
	}{
		{"every", &r.Every, 1, 1 << 31},
		{"count", &r.Count, 0, 1 << 31},
		{"seconds", &r.Seconds, defaultSeconds, maxSeconds},
		{"request_bytes", &r.RequestBytes, s.set.RequestBytes, s.set.RequestBytes},
	} {
		if *n.value = cmp.Or(*n.value, n.other); *n.value < 0 || *n.value > n.max {
			return status.Errorf(status.InvalidArg, "'%s' of a capture is %d, expected 0 to %d", n.name, *n.value, n.max)
		}
	}
	if len(r.RedactTensors)+len(r.RedactModels) > maxPatterns {
		return status.Errorf(status.InvalidArg, "a capture redacts at most %d patterns", maxPatterns)
	}
	for _, p := range slices.Concat([]string{r.Model, r.Request, r.Trace}, r.RedactTensors, r.RedactModels) {
		if len(p) > maxPattern {
			return status.Errorf(status.InvalidArg, "a pattern of a capture has %d bytes, expected at most %d", len(p), maxPattern)
		}
	}
	r.RedactTensors = slices.Concat(s.set.RedactTensors, r.RedactTensors)
	r.RedactModels = slices.Concat(s.set.RedactModels, r.RedactModels)
	return nil
}

// session is a started capture.
type session struct {
	id      uint64
	rule    inspect.CaptureRule
	ends    int64 // on the store's clock
	endsUs  int64
	matched atomic.Uint64

	over bool // guarded by the store's mu
	// Numbers of requests: selected, finished, dropped for newer ones, and rejected for lack of memory.
	selected, taken, dropped, missed uint64 // guarded by the store's mu
}

func (s *session) matches(model, request string, id tracing.TraceID) bool {
	r := &s.rule
	fits := func(pattern, text string) bool { return pattern == "" || MatchGlob(pattern, text) }
	return fits(r.Model, model) && fits(r.Request, request) && (r.Trace == "" || MatchGlob(r.Trace, id.String()))
}

func (s *session) redacts(e *tracing.TensorEdge) bool {
	hit := func(patterns, names []string) bool {
		for _, p := range patterns {
			if slices.ContainsFunc(names, func(name string) bool { return MatchGlob(p, name) }) {
				return true
			}
		}
		return false
	}
	return hit(s.rule.RedactTensors, e.Names) || hit(s.rule.RedactTensors, []string{e.Tensor}) || hit(s.rule.RedactModels, e.Models)
}

// redactsParam reports whether a parameter of a request to a model must not be recorded.
func (s *session) redactsParam(model, key string) bool {
	return s.redacts(&tracing.TensorEdge{Tensor: key, Models: []string{model}})
}

// MatchGlob reports whether text matches a pattern, in which * matches any text and ? any byte. It backtracks to
// the last star only, so that its time is at most the product of the lengths.
func MatchGlob(pattern, text string) bool {
	p, t, star, mark := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}
