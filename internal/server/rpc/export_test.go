package rpc

import (
	"context"
	"fmt"
)

// Heads decodes header blocks as a connection does.
type Heads struct{ c *conn }

// NewHeads returns the decoder of a new connection.
func NewHeads(set Settings) *Heads {
	c := &conn{srv: New(set), base: context.Background()}
	c.heads.init(c)
	return &Heads{c}
}

// Decode returns what a header block says.
func (h *Heads) Decode(block []byte) (string, error) {
	got, err := h.c.heads.decode(block)
	if err != nil {
		return "", err
	}
	return fmt.Sprint(got.path, got.md, got.subtype, got.encoding, got.accepted, got.timed, got.timeout, got.reset, got.refusal, got.status, got.notPost, got.unknownS), nil
}

// Forget forgets the blocks that are remembered.
func (h *Heads) Forget() { h.c.heads.known = [knownHeads]knownHead{} }

// Paused returns how many calls are in the lists of those that have something to send.
func Paused(s *Server) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.mu.Lock()
		n += len(c.paused)
		c.mu.Unlock()
	}
	return n
}
