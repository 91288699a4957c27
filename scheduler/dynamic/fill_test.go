package dynamic_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/dynamic"
)

// learned returns a policy that has observed executions of 1 to 8 rows of 10 elements.
func learned(r dynamic.Rules, fixed, perRow time.Duration) scheduler.Filler {
	p := r.Policy().(scheduler.Filler)
	for i := range 200 {
		rows := int64(1 + i%8)
		x := scheduler.Executed{Rows: rows, Elements: 10 * rows, Duration: fixed + time.Duration(rows)*perRow}
		if r.Padded {
			x.Unpadded = x.Elements
		}
		p.(scheduler.Learner).Observe(x)
	}
	return p
}

// TestFill checks that background tasks fill a batch up where its time grows little, and not where each row costs as much as the first.
func TestFill(t *testing.T) {
	t.Parallel()
	rules := dynamic.Rules{MaxBatch: 8, MaxElements: 1 << 40}
	preferred, padded, few := rules, rules, rules
	preferred.Preferred = []int32{4}
	padded.Padded = true
	few.Padded, few.MaxElements = true, 30
	const fixed, cheap, dear = 10 * time.Millisecond, time.Microsecond, 5 * time.Millisecond
	for _, c := range []struct {
		name   string
		rules  dynamic.Rules
		perRow time.Duration
		length int32 // of the background tasks; the online one has 10
		want   int
	}{
		{"fixed cost", rules, cheap, 0, 6},
		{"preferred size", preferred, cheap, 0, 2},
		{"cost per row", rules, dear, 0, 0},
		{"a fiftieth per row", rules, 200 * time.Microsecond, 0, 2},
		{"padded", padded, cheap, 7, 6},
		{"longer than the batch", padded, cheap, 11, 0},
		{"max_batch_elements", few, cheap, 7, 1},
	} {
		p := learned(c.rules, fixed, c.perRow)
		items := slices.Repeat([]scheduler.Item{{Rows: 1, Elements: 10, Length: c.length}}, 20)
		got := p.Fill(scheduler.Formed{Rows: 2, Length: 10, Elements: 20, Unpadded: 20}, items, nil)
		if len(got) != c.want {
			t.Errorf("%s: %d tasks join a batch of 2 rows, want %d", c.name, len(got), c.want)
		}
	}
}

// TestFillExplores checks that a policy without an estimate lets a task join one batch in 16, and one that knows better one in 256.
func TestFillExplores(t *testing.T) {
	t.Parallel()
	rules := dynamic.Rules{MaxBatch: 8, MaxElements: 1 << 40}
	items := []scheduler.Item{{Rows: 1, Elements: 100}, {Rows: 1, Elements: 10}}
	for _, c := range []struct {
		policy scheduler.Filler
		want   int
	}{{rules.Policy().(scheduler.Filler), 32}, {learned(rules, 0, time.Millisecond), 2}} {
		joined := 0
		for range 512 {
			take := c.policy.Fill(scheduler.Formed{Rows: 1, Elements: 10}, items, nil)
			if joined += len(take); len(take) > 0 && take[0] != 1 {
				t.Errorf("a task larger than the batch joins to learn its cost")
			}
		}
		if joined != c.want {
			t.Errorf("tasks joined %d of 512 batches, want %d", joined, c.want)
		}
	}
}

// TestOnlineBatchesStay checks that online requests are executed in the same order, in the same batches and at the same times whether or
// not background requests wait, with random rules and arrivals. Executions take the same time for any number of rows here.
func TestOnlineBatchesStay(t *testing.T) {
	t.Parallel()
	seeds := uint64(200)
	if testing.Short() {
		seeds = 40
	}
	filled := 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // a test wants the same numbers again
		commands := randomScript(rng)
		var alone, both string
		synctest.Test(t, func(t *testing.T) {
			<-time.After(time.Duration(max(1-telemetry.Now(), 1)))
			alone = playScript(t, commands, 0)
		})
		synctest.Test(t, func(t *testing.T) {
			<-time.After(time.Duration(max(1-telemetry.Now(), 1)))
			both = playScript(t, commands, 3)
		})
		alone, _ = onlineEvents(alone)
		online, joined := onlineEvents(both)
		filled += joined
		if online != alone {
			t.Errorf("seed %d: with background requests:\n%s\nwithout:\n%s\nscript:\n%s", seed, online, alone, strings.Join(commands, "\n"))
		}
	}
	if filled == 0 {
		t.Error("no background request joined a batch")
	}
}

// randomScript returns the commands of a script for TestQueueScripts, online requests only. It has no delay: its end would not be at a
// multiple of 5 ms.
func randomScript(rng *rand.Rand) []string {
	queue := fmt.Sprintf("queue max=%d takes=%dus", 1+rng.IntN(8), 3017+rng.IntN(20000)) // with one instance, and no two events at a time
	if rng.IntN(2) == 0 {
		queue += fmt.Sprintf(" preferred=%d", 1+rng.IntN(8))
	}
	if rng.IntN(3) == 0 {
		queue += " ordered"
	}
	list := []string{queue}
	if rng.IntN(2) == 0 {
		list = append(list, "level size=6 timeout=40ms", "level timeout=30ms delay")
	}
	for i := range 30 {
		list = append(list, fmt.Sprintf("enqueue id=o%d shape=%d priority=%d", i, 1+rng.IntN(2), rng.IntN(3)))
		if rng.IntN(2) == 0 {
			list = append(list, fmt.Sprintf("step %dus", 1013+rng.IntN(20000)))
		}
	}
	return list
}

// playScript executes a script beside an online request that never ends, with n background requests before each command.
func playScript(t *testing.T, commands []string, n int) string {
	t.Helper()
	var out strings.Builder
	s := newVirtual(t, strings.Fields(commands[0])[1:])
	process := s.Workers.Background()
	process.Begin(telemetry.Now())
	process.Arrive(telemetry.Now())
	for i, line := range commands[1:] {
		if !strings.HasPrefix(line, "level") {
			for k := range n {
				if err := s.do(strings.Fields(fmt.Sprintf("enqueue id=b%d-%d background shape=%d", i, k, 1+k%2))); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := s.do(strings.Fields(line)); err != nil {
			t.Fatal(err)
		}
		s.flush(&out)
	}
	<-time.After(10 * time.Second)
	s.flush(&out)
	process.Leave(telemetry.Now())
	s.finish(t, &out)
	return out.String()
}

// onlineEvents returns the events of online requests, and how many background requests joined their batches. The end of each request is
// an event: how many ends one goroutine reports together depends on the goroutines.
func onlineEvents(events string) (online string, joined int) {
	var list []string
	for line := range strings.Lines(events) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		at, what, ids := words[0], words[1], slices.DeleteFunc(slices.Clone(words[2:]), func(w string) bool { return strings.HasPrefix(w, "b") })
		switch {
		case len(ids) == 0 || what == "refused" && strings.HasPrefix(words[2], "b"): // of background requests alone
		case what == "done":
			for _, id := range ids {
				list = append(list, strings.Join([]string{at, what, id}, " "))
			}
		default:
			joined += len(words) - 2 - len(ids)
			list = append(list, strings.Join(append([]string{at, what}, ids...), " "))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "\n"), joined
}
