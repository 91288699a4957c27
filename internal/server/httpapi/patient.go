package httpapi

import (
	"net/http"
	"time"
)

const (
	// slowWrite is the size from which an answer can stay in memory because its
	// client does not take it.
	slowWrite = 256 << 10
	// slowPart is how much of an answer a client must take within the time.
	slowPart = 1 << 20
)

// patient writes a large answer for as long as the client takes it.
type patient struct {
	w     http.ResponseWriter
	stall time.Duration // 0 for ever
}

// Write gives every part of b the whole time.
func (p *patient) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		part := b[:min(len(b), slowPart)]
		p.until(p.stall)
		var wrote int
		wrote, err = p.w.Write(part)
		n += wrote
		b = b[len(part):]
	}
	return n, err
}

// end lets the connection serve the next request.
func (p *patient) end() { p.until(0) }

func (p *patient) until(d time.Duration) {
	if p.stall == 0 {
		return
	}
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	// What cannot set a deadline is no connection.
	_ = http.NewResponseController(p.w).SetWriteDeadline(t)
}
