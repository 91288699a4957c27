package transport

import (
	"sync"
	"time"

	"github.com/tutti-server/tutti/core/status"
)

// ErrCut is the last event of a stream that is cut off because the server stops.
var ErrCut = status.Reasonf(status.Draining, "the server stopped before this request was complete: send it again, to another server")

// Streams are the open streams of responses of a server, which get a last event before the server cuts them off. The zero value
// is ready. It is safe for concurrent use.
//
// Each stream calls Enter once, and what that returns once. Cut is called at most once.
type Streams struct {
	mu   sync.Mutex
	open int           // guarded by mu
	cut  chan struct{} // closed by Cut; guarded by mu
	none chan struct{} // closed without open streams after Cut; guarded by mu
}

// Enter adds a stream. The channel is closed when the stream must end. The function removes the stream; further calls have no
// effect.
func (s *Streams) Enter() (cut <-chan struct{}, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.init()
	s.open++
	return s.cut, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.open--; s.open == 0 && isClosed(s.cut) {
			close(s.none)
		}
	})
}

// Cut ends all streams, and returns when they are gone, or after the limit.
func (s *Streams) Cut(limit time.Duration) {
	s.mu.Lock()
	s.init()
	close(s.cut)
	open, none := s.open, s.none
	s.mu.Unlock()
	if open == 0 {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-none:
	case <-timer.C:
	}
}

// init makes the channels. mu must be held.
func (s *Streams) init() {
	if s.cut == nil {
		s.cut, s.none = make(chan struct{}), make(chan struct{})
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
