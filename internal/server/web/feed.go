package web

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/tutti-server/tutti/internal/inspect"
)

// modelFeed has the encoded models for all event streams, which get those that changed since their last update. It is safe for concurrent
// use.
type modelFeed struct {
	mu      sync.Mutex
	at      time.Time // of the last look
	turn    uint64    // counts the looks
	list    []*feedModel
	known   map[feedKey]*feedModel
	removed uint64 // the turn in which models were gone; who has not seen it needs them all
}

type feedKey struct{ name, version string }

// feedModel is a model as it is sent.
type feedModel struct {
	view inspect.ModelView
	json []byte
	turn uint64 // in which it changed
	seen uint64 // in which it was listed
}

// look reads the models, at most every half of updateInterval.
func (m *modelFeed) look(o inspect.Overview) {
	if m.turn > 0 && time.Since(m.at) < updateInterval/2 {
		return
	}
	m.at = time.Now()
	m.turn++
	views := o.Models()
	if m.known == nil {
		m.known = make(map[feedKey]*feedModel, len(views))
	}
	m.list = m.list[:0]
	for i := range views {
		v := &views[i]
		key := feedKey{v.Name, v.Version}
		x := m.known[key]
		if x == nil {
			x = &feedModel{}
			m.known[key] = x
		}
		if x.json == nil || !stillIdle(&x.view, v) {
			if b, err := json.Marshal(v); err == nil && !bytes.Equal(b, x.json) {
				x.json, x.turn = b, m.turn
			}
			x.view = *v
		}
		x.seen = m.turn
		m.list = append(m.list, x)
	}
	if len(m.known) > len(m.list) {
		m.removed = m.turn
		for key, x := range m.known {
			if x.seen != m.turn {
				delete(m.known, key)
			}
		}
	}
}

// stillIdle reports whether a model had no requests in the last minute, before and now, and nothing else of it changed.
func stillIdle(was, now *inspect.ModelView) bool {
	idle := func(v *inspect.ModelView) bool {
		return v.Rate == 0 && v.Errors == 0 && v.Queue == 0 && len(v.Rates) == 0 && v.Due == nil && v.Refused == nil
	}
	return idle(was) && idle(now) && was.State == now.State && was.Reason == now.Reason && was.Platform == now.Platform &&
		was.Requests == now.Requests && was.Failures == now.Failures && was.Copied == now.Copied
}

// since appends the models that changed after a turn as a JSON list, all if the turn is 0 or models are gone since. It returns the name of the
// event, empty when nothing changed, and the present turn.
func (m *modelFeed) since(turn uint64, o inspect.Overview, b []byte) (event string, list []byte, now uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.look(o)
	event = "changed"
	if turn == 0 || turn < m.removed {
		event, turn = "models", 0
	}
	b = append(b, '[')
	for _, x := range m.list {
		if x.turn > turn {
			b = append(append(b, x.json...), ',')
		}
	}
	if len(b) == 1 && event == "changed" {
		return "", nil, m.turn
	}
	return event, append(bytes.TrimSuffix(b, []byte{','}), ']'), m.turn
}

// minCompressed is the size from which a JSON response is compressed.
const minCompressed = 1 << 10

var packers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level exists
	return w
}}

// packer compresses what is written to a response. Close returns its memory.
type packer struct{ *gzip.Writer }

// pack returns the writer of a response, which compresses if the client accepts that. The caller must close it.
func pack(w http.ResponseWriter, r *http.Request) (io.Writer, *packer) {
	w.Header().Add("Vary", "Accept-Encoding")
	if !acceptsGzip(r.Header.Get("Accept-Encoding")) {
		return w, nil
	}
	w.Header().Set("Content-Encoding", "gzip")
	z, _ := packers.Get().(*gzip.Writer)
	z.Reset(w)
	p := &packer{Writer: z}
	return p, p
}

// flush sends what was written so far. p may be nil.
func (p *packer) flush() error {
	if p == nil {
		return nil
	}
	return p.Flush()
}

// close ends the response. p may be nil.
func (p *packer) close() error {
	if p == nil {
		return nil
	}
	err := p.Close()
	p.Reset(io.Discard)
	packers.Put(p.Writer)
	return err
}
