package capture

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// Settings are what a Store is made from.
type Settings struct {
	// Bytes bounds all that is kept, RequestBytes the contents of a request.
	Bytes, RequestBytes int64
	// RedactTensors and RedactModels are patterns of what nobody is to see.
	RedactTensors, RedactModels []string
	// Now is a clock in nanoseconds, nil for telemetry.Now.
	Now func() int64

	_ struct{}
}

// Bounds of what is remembered.
const (
	maxActive = 16
	maxEnded  = 64
)

// Store keeps tensors. It is a tracing.Camera and an inspect.Captures.
type Store struct {
	set    Settings
	active atomic.Pointer[[]*session]

	mu       sync.Mutex
	used     int64      // guarded by mu
	shots    []*shot    // oldest first; guarded by mu
	sessions []*session // oldest first; guarded by mu
	ids      uint64     // guarded by mu
}

var (
	_ tracing.Recorder = (*Store)(nil)
	_ inspect.Captures = (*Store)(nil)
)

// shot is a request that has ended. It does not change any more.
type shot struct {
	session *session
	id      tracing.TraceID
	cost    int64
	frames  []frame
	more    int
	view    inspect.SnapshotView
}

// New returns a store that keeps nothing yet.
func New(set Settings) *Store {
	if set.Now == nil {
		set.Now = telemetry.Now
	}
	set.RequestBytes = min(set.RequestBytes, set.Bytes)
	s := &Store{set: set}
	s.active.Store(new([]*session))
	return s
}

// On implements tracing.Camera.
//
// hot: one load.
func (s *Store) Active() bool { return len(*s.active.Load()) > 0 }

// Pick implements tracing.Camera.
func (s *Store) Select(model, request string, id tracing.TraceID) tracing.Snapshot {
	for _, x := range *s.active.Load() {
		if s.set.Now() >= x.ends {
			s.end(x)
			continue
		}
		if x.fits(model, request, id) && x.turn() && s.pick(x) {
			return &film{s: s, session: x, cost: filmCost}
		}
	}
	return nil
}

// pick chooses a request if the rule asks for one more and there is the memory that it
// needs at least. The last one ends the session.
func (s *Store) pick(x *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case x.over:
		return false
	case !s.take(filmCost):
		x.missed++
		return false
	}
	x.picked++
	if x.picked == uint64(x.rule.Count) { //nolint:gosec // not negative
		s.retire(x)
	}
	return true
}

// reserve takes memory and reports whether there was enough.
func (s *Store) reserve(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(n)
}

// take takes memory, from the oldest requests if it must; mu is held.
func (s *Store) take(n int64) bool {
	if n > s.set.Bytes {
		return false
	}
	dropped := 0
	for s.used+n > s.set.Bytes && dropped < len(s.shots) {
		old := s.shots[dropped]
		s.used -= old.cost
		old.session.dropped++
		dropped++
	}
	s.shots = slices.Delete(s.shots, 0, dropped)
	if s.used+n > s.set.Bytes {
		return false
	}
	s.used += n
	return true
}

// develop takes a request that has ended; what it takes is reserved.
func (s *Store) develop(x *shot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.session.taken++
	s.shots = append(s.shots, x)
}

// end has a session choose no more.
func (s *Store) end(x *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retire(x)
}

// retire is end with mu held.
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

// expire ends the sessions whose time is over.
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
		return nil, status.Errorf(status.Unavailable, "%d captures go on, at most %d may", len(all), maxActive)
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
