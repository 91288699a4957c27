package python

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSends checks that responses that are queued during a send leave in order, sent by one goroutine.
func TestSends(t *testing.T) {
	t.Parallel()
	var q sendQueue
	if !q.push(queuedSend{packet: &packet{id: 0}}) {
		t.Error("the first response starts no sender")
	}
	for id := range uint32(3) {
		if q.push(queuedSend{packet: &packet{id: id + 1}}) {
			t.Error("a second goroutine sends responses")
		}
	}
	var got []uint32
	for x, ok := q.next(); ok; x, ok = q.next() {
		got = append(got, x.packet.id)
	}
	if diff := cmp.Diff([]uint32{0, 1, 2, 3}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if !q.push(queuedSend{packet: &packet{id: 4}}) {
		t.Error("a later response starts no sender")
	}
}
