package guarded

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-server/tutti/core/config"
)

// TestBreakerScript runs scripts of results, one letter per second: "." an attempt that works, "x" one that fails, "i" one that is
// cancelled. The breaker's reaction is "." for an attempt, "p" for a probe and "-" for one that is refused.
func TestBreakerScript(t *testing.T) {
	t.Parallel()
	inRow := config.Breaker{Failures: 3, ProbeAfter: 2 * time.Second}
	share := config.Breaker{Share: 0.5, Window: 4, ProbeAfter: 2 * time.Second}
	for name, tc := range map[string]struct {
		rules           config.Breaker
		results, reacts string
	}{
		"in a row":           {inRow, "xxx...x", "...-p.."},
		"a success between":  {inRow, "xx.xx.", "......"},
		"a failed probe":     {inRow, "xxxxxx..", "...-p-p."},
		"a cancelled probe":  {inRow, "xxx.i..", "...-pp."},
		"cancelled":          {inRow, "xxixixx", "....-p-"},
		"window not full":    {share, "xxx", "..."},
		"share of a window":  {share, ".x.x...", "....-p."},
		"below the share":    {share, ".x...x..", "........"},
		"window starts anew": {share, "xxxx..xx..", "....-p...."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, now := newBreaker(&tc.rules, "s"), int64(0)
			var got strings.Builder
			for _, c := range tc.results {
				now += int64(time.Second)
				probe, err := b.allow(now)
				if err != nil {
					got.WriteByte('-')
					continue
				}
				got.WriteByte(map[bool]byte{false: '.', true: 'p'}[probe])
				b.record(now, map[rune]outcome{'.': worked, 'x': failed, 'i': neither}[c], probe, "why")
			}
			if got.String() != tc.reacts {
				t.Errorf("%s reacts %s, want %s", tc.results, got.String(), tc.reacts)
			}
		})
	}
}

// TestBreakerLate checks that results of attempts from before the breaker opened change nothing, and that one probe runs at a time.
func TestBreakerLate(t *testing.T) {
	t.Parallel()
	b := newBreaker(&config.Breaker{Failures: 1, ProbeAfter: time.Second}, "s")
	b.record(0, failed, false, "why")
	b.record(1, worked, false, "")
	if _, err := b.allow(2); err == nil || err.Error() != "the circuit breaker of step 's' is open, the next probe is in 1s; the last failure was: why" {
		t.Error(err)
	}
	if probe, err := b.allow(int64(2 * time.Second)); !probe || err != nil {
		t.Errorf("no probe: %v", err)
	}
	if _, err := b.allow(int64(3 * time.Second)); err == nil {
		t.Error("a second probe beside the first")
	}
	b.record(int64(3*time.Second), worked, true, "")
	if probe, err := b.allow(int64(3 * time.Second)); probe || err != nil {
		t.Errorf("not closed: %v %v", probe, err)
	}
}
