package python

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSends queues responses while another one is passed on: they leave in the order in which they came, by one goroutine.
func TestSends(t *testing.T) {
	t.Parallel()
	var q sendQueue
	if !q.push(queuedSend{packet: &packet{id: 0}}) {
		t.Error("nobody passes on the first response")
	}
	for id := range uint32(3) {
		if q.push(queuedSend{packet: &packet{id: id + 1}}) {
			t.Error("a second goroutine passes on responses")
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
		t.Error("nobody passes on a response that came later")
	}
}
