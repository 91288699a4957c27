package transport

import (
	"net/http"
	"time"
)

const (
	// SlowWrite is the size from which a response may stay in memory because its client does not read it.
	SlowWrite = 256 << 10
	// slowPart is how much of a response the client must read within the stall time.
	slowPart = 1 << 20
)

// Writer writes a response of any size for as long as the client reads it. End must follow the last Write.
type Writer struct {
	w     http.ResponseWriter
	stall time.Duration
}

// Writer returns a Writer to w.
func (l *Limits) Writer(w http.ResponseWriter) Writer { return Writer{w, l.Stall} }

// Write writes b in parts, each of which has the whole stall time.
func (p *Writer) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), slowPart)]
		p.deadline(p.stall)
		var wrote int
		wrote, err = p.w.Write(part)
		n += wrote
		b = b[len(part):]
	}
	return n, err
}

// End removes the deadline, so that the connection can serve the next request.
func (p *Writer) End() { p.deadline(0) }

func (p *Writer) deadline(d time.Duration) {
	if p.stall == 0 {
		return
	}
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	// A writer without deadlines, as in tests, has no connection.
	_ = http.NewResponseController(p.w).SetWriteDeadline(t)
}
