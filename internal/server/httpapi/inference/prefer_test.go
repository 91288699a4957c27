package inference

import (
	"testing"
	"time"
)

func TestParsePrefer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list    []string
		want    preferences
		applied string
	}{
		{[]string{"respond-async"}, preferences{later: true}, "respond-async"},
		{[]string{"Respond-Async, wait=10"}, preferences{later: true, wait: 10 * time.Second, waits: true}, "respond-async, wait=10"},
		{[]string{"return=minimal", " wait = \"7\" ; a=b , respond-async;x"}, preferences{later: true, wait: 7 * time.Second, waits: true}, "respond-async, wait=7"},
		{[]string{"wait=5, wait=9, respond-async"}, preferences{later: true, wait: 5 * time.Second, waits: true}, "respond-async, wait=5"},
		{[]string{"respond-async, wait=soon"}, preferences{later: true}, "respond-async"},
		{[]string{"respond-async, wait=-1"}, preferences{later: true}, "respond-async"},
		{[]string{"respond-async, wait=0"}, preferences{later: true, waits: true}, "respond-async, wait=0"},
		{[]string{"respond-async, wait=100000"}, preferences{later: true, wait: maxWait, waits: true}, "respond-async, wait=300"},
		{[]string{`foo="a, respond-async \", wait=3"`}, preferences{}, ""},
		{[]string{"respond-asynchronously", "", ",;=,"}, preferences{}, ""},
		{[]string{"wait=3"}, preferences{wait: 3 * time.Second, waits: true}, ""},
	} {
		got := parsePrefer(tt.list)
		if got != tt.want {
			t.Errorf("%q: %+v, want %+v", tt.list, got, tt.want)
		}
		if got.later && got.applied() != tt.applied {
			t.Errorf("%q: applied %q, want %q", tt.list, got.applied(), tt.applied)
		}
	}
}
