package device_test

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/scheduler/device"
)

// TestConcurrentAcquire checks that instances of random needs never hold more together than exists, and that each
// executes.
func TestConcurrentAcquire(t *testing.T) {
	t.Parallel()
	const names, turns = "RST", 200
	a := device.New(device.Settings{RateLimit: true, Limits: []device.Limit{
		{Name: "R", Count: 3, Device: device.EveryDevice}, {Name: "S", Count: 4, Device: 0}, {Name: "T", Count: 2, Device: device.EveryDevice},
	}})
	most := map[string]int64{"R": 3, "S": 4, "T": 2}
	r := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	held := map[string]int64{} // guarded by mu
	var wg sync.WaitGroup
	for range 12 {
		ask := device.Demand{Priority: uint32(r.IntN(4))}
		for _, name := range names {
			if n := r.Int64N(most[string(name)] + 1); n > 0 {
				ask.Resources = append(ask.Resources, device.Resource{Name: string(name), Count: n, Shared: name == 'T'})
			}
		}
		g, err := a.Register([]device.Demand{ask})
		if err != nil {
			t.Fatal(err)
		}
		hold := func(sign int64) {
			mu.Lock()
			defer mu.Unlock()
			for _, x := range ask.Resources {
				if held[x.Name] += sign * x.Count; held[x.Name] > most[x.Name] {
					t.Errorf("%d of %s are held", held[x.Name], x.Name)
				}
			}
		}
		wg.Go(func() {
			let := make(chan struct{}, 1)
			for range turns {
				if !g.Limiters[0].Acquire(func() { let <- struct{}{} }) {
					<-let
				}
				hold(1)
				hold(-1)
				g.Limiters[0].Release()
			}
			g.Close()
		})
	}
	wg.Wait()
	if n := a.Waiting(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// TestClosedLimiter checks that the limiter of a removed model blocks no execution.
func TestClosedLimiter(t *testing.T) {
	t.Parallel()
	a := device.New(device.Settings{RateLimit: true})
	one := device.Demand{Resources: []device.Resource{{Name: "R", Count: 1}}}
	g, err := a.Register([]device.Demand{one, one})
	if err != nil {
		t.Fatal(err)
	}
	in := g.Limiters[0].Acquire(nil)
	resumed := 0
	if g.Limiters[1].Acquire(func() { resumed++ }) {
		t.Error("two have what there is once")
	}
	g.Limiters[0].Close()
	g.Limiters[0].Close()
	if resumed != 1 || a.Waiting() > 0 {
		t.Errorf("the other one was let in %d times, %d wait", resumed, a.Waiting())
	}
	g.Close()
	g.Limiters[0].Release()
	if again := g.Limiters[0].Acquire(nil); !in || !again {
		t.Errorf("let in %t and, closed, %t", in, again)
	}
	g.Limiters[0].Release()
	var none *device.Group
	none.Close()
	var nobody *device.Limiter
	nobody.Close()
}

// TestNoAllocation checks that the limiter allocates nothing. It is not parallel: other tests' allocations would count.
func TestNoAllocation(t *testing.T) {
	a := device.New(device.Settings{RateLimit: true})
	demands := []device.Demand{{Resources: []device.Resource{{Name: "R", Count: 1}}}, {Resources: []device.Resource{{Name: "R", Count: 1}}}}
	g, err := a.Register(demands)
	if err != nil {
		t.Fatal(err)
	}
	resume := func() {}
	turn := func() {
		g.Limiters[0].Acquire(resume)
		g.Limiters[1].Acquire(resume)
		g.Limiters[0].Release()
		g.Limiters[1].Release()
	}
	if n := testing.AllocsPerRun(100, turn); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestLogsResources checks the log of the resource amounts, which change with the instances.
func TestLogsResources(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	const text = `"\nMax Resource Map===>\n\tDevice: 0\n\t\tResource: R\t Count: COUNT\n\tDevice: GLOBAL\n\t\tResource: S\t Count: 1\n"`
	said := func(count string) {
		t.Helper()
		if got := lines.String(); count == "" && got != "" || !strings.Contains(got, strings.Replace(text, "COUNT", count, 1)) && count != "" {
			t.Errorf("got %s, want count '%s'", got, count)
		}
		lines.Reset()
	}
	a := device.New(device.Settings{RateLimit: true, Log: slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	register := func(count int64) *device.Group {
		g, err := a.Register([]device.Demand{{Resources: []device.Resource{{Name: "R", Count: count}, {Name: "S", Shared: true, Count: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	large := register(4)
	said("4")
	small := register(3)
	said("")
	large.Close()
	said("3")
	small.Close()
}
