package benchmark_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-server/tutti/internal/benchmark"
	"github.com/tutti-server/tutti/internal/load"
)

// open returns a session of a server with a handler.
func open(t *testing.T, l benchmark.Load, handle http.HandlerFunc) (*benchmark.Session, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	s, err := benchmark.Open(load.Target{HTTP: strings.TrimPrefix(server.URL, "http://")}, load.JSON, []load.Request{{Model: "m"}}, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, server
}

func respond(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") }

// TestClosedLoop checks that each client has one request under way, and that all responses are counted.
func TestClosedLoop(t *testing.T) {
	t.Parallel()
	var now, most, all atomic.Int64
	s, _ := open(t, benchmark.Load{Clients: 3}, func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		all.Add(1)
		now.Add(-1)
		respond(w, r)
	})
	r, err := s.Measure(t.Context(), &benchmark.Plan{Warmup: 20 * time.Millisecond, Window: 50 * time.Millisecond, Windows: 4, Tolerance: 1e-9})
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests < 1 || r.Requests > all.Load() || r.Failed != 0 || most.Load() > 3 {
		t.Errorf("%d requests of %d, %d failed, %d at once", r.Requests, all.Load(), r.Failed, most.Load())
	}
	if len(r.Windows) != 4 || r.Stable == nil || *r.Stable {
		t.Errorf("%d windows, stable %v; expected 4 that do not agree to 1e-9", len(r.Windows), r.Stable)
	}
	sum := 0.0
	for _, w := range r.Windows[1:] {
		sum += w.Throughput * w.Seconds
	}
	if math.Abs(sum-float64(r.Requests)) > 0.5 {
		t.Errorf("the last three windows have %v requests, the result %d", sum, r.Requests)
	}
}

// TestStable checks that a measurement ends when three windows agree.
func TestStable(t *testing.T) {
	t.Parallel()
	s, _ := open(t, benchmark.Load{Clients: 1}, respond)
	r, err := s.Measure(t.Context(), &benchmark.Plan{Window: 20 * time.Millisecond, Tolerance: 1e9})
	if err != nil || len(r.Windows) != 3 || !*r.Stable {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestNoCoordinatedOmission checks that requests count from their intended arrival. The server holds the first request for
// half a second; the only client cannot send the others meanwhile, yet they count as late.
func TestNoCoordinatedOmission(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{100, 10000} {
		var first sync.Once
		s, _ := open(t, benchmark.Load{Clients: 1, Rate: rate, Constant: true}, func(w http.ResponseWriter, r *http.Request) {
			first.Do(func() { <-time.After(500 * time.Millisecond) })
			respond(w, r)
		})
		r, err := s.Measure(t.Context(), &benchmark.Plan{Window: 600 * time.Millisecond, Windows: 1})
		if err != nil {
			t.Fatal(err)
		}
		// Of 60 arrivals at 100/s 41 were due 100 ms or more before the first response.
		if r.Requests < 1 || r.Latency.P50 < 1e5 {
			t.Errorf("%v/s: %d requests with p50 %v us, expected at least 100 ms", rate, r.Requests, r.Latency.P50)
		}
	}
}

// TestBacklog checks that a rate that the server cannot serve shows as a backlog.
func TestBacklog(t *testing.T) {
	t.Parallel()
	s, _ := open(t, benchmark.Load{Clients: 1, Rate: 1e6}, respond)
	r, err := s.Measure(t.Context(), &benchmark.Plan{Duration: 100 * time.Millisecond, Window: 50 * time.Millisecond})
	if err != nil || r.Backlog <= 0 || len(r.Windows) != 2 || r.Stable != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	var turn atomic.Int64
	s, _ := open(t, benchmark.Load{Clients: 2}, func(w http.ResponseWriter, r *http.Request) {
		switch turn.Add(1) % 4 {
		case 0:
			http.Error(w, `{"error":"too many"}`, http.StatusServiceUnavailable)
		case 1:
			http.Error(w, `{"error":"bad"}`, http.StatusBadRequest)
		default:
			respond(w, r)
		}
	})
	r, err := s.Measure(t.Context(), &benchmark.Plan{Window: 50 * time.Millisecond, Windows: 1})
	if err != nil || len(r.Failures) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	texts := map[string]string{"HTTP 503": "too many", "HTTP 400": "bad"}
	total := int64(0)
	for _, f := range r.Failures {
		if total += f.Count; !strings.Contains(f.Example, texts[f.Kind]) || texts[f.Kind] == "" {
			t.Errorf("%+v", f)
		}
	}
	if total != r.Failed || r.Requests == 0 {
		t.Errorf("%d requests, %d failed, of all kinds %d", r.Requests, r.Failed, total)
	}
}

// TestLostServer checks that a measurement ends with what there is when the server stops.
func TestLostServer(t *testing.T) {
	t.Parallel()
	for _, l := range []benchmark.Load{{Clients: 2}, {Clients: 2, Rate: 500}, {Clients: 2, Rate: 20000}} {
		var once sync.Once
		served := make(chan struct{})
		s, server := open(t, l, func(w http.ResponseWriter, r *http.Request) {
			once.Do(func() { close(served) })
			respond(w, r)
		})
		go func() {
			<-served
			server.CloseClientConnections()
			server.Close()
		}()
		r, err := s.Measure(t.Context(), &benchmark.Plan{Window: 20 * time.Millisecond, Windows: 1e6, Tolerance: 1e-12, Lost: 50 * time.Millisecond})
		if _, lost := errors.AsType[*benchmark.LostError](err); !lost || r == nil {
			t.Errorf("%+v: %+v, %v", l, r, err)
		}
	}
}

// TestInterrupted checks that a measurement that is cancelled ends at once, with what there is, even if the server hangs.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, l := range []benchmark.Load{{Clients: 2}, {Clients: 2, Rate: 1000}, {Clients: 2, Rate: 20000}} {
		ctx, cancel := context.WithCancel(t.Context())
		var counted atomic.Bool
		hang := make(chan struct{})
		s, _ := open(t, l, func(w http.ResponseWriter, r *http.Request) {
			if counted.Load() {
				cancel()
				<-hang
			}
			respond(w, r)
		})
		r, err := s.Measure(ctx, &benchmark.Plan{
			Window: 20 * time.Millisecond, Windows: 1e6, Tolerance: 1e-12,
			Progress: func(p benchmark.Progress) {
				if p.Rate > 0 {
					counted.Store(true)
				}
			},
		})
		close(hang)
		if err != nil || !r.Interrupted || r.Requests == 0 {
			t.Errorf("%+v: %+v, %v", l, r, err)
		}
	}
}

func TestArrivals(t *testing.T) {
	t.Parallel()
	const n = 100000
	poisson := benchmark.Schedule(&benchmark.Load{Rate: 1000, Seed: 7}, n, 0)
	again := benchmark.Schedule(&benchmark.Load{Rate: 1000, Seed: 7}, n, 0)
	below := 0
	for i := 1; i < n; i++ {
		if poisson[i] != again[i] || poisson[i] < poisson[i-1] {
			t.Fatalf("arrival %d is at %v, and %v in the second run", i, poisson[i], again[i])
		}
		if poisson[i]-poisson[i-1] < time.Millisecond {
			below++
		}
	}
	if mean := poisson[n-1].Seconds() / (n - 1); math.Abs(mean-0.001) > 0.00002 {
		t.Errorf("the mean gap is %v", mean)
	}
	if share := float64(below) / n; math.Abs(share-(1-1/math.E)) > 0.01 {
		t.Errorf("%v of the gaps are below their mean, expected 1-1/e", share)
	}
	for i, at := range benchmark.Schedule(&benchmark.Load{Rate: 200, Constant: true}, 10, 0) {
		if at != time.Duration(i)*5*time.Millisecond {
			t.Errorf("arrival %d is at %v", i, at)
		}
	}
}

// TestArrivalsOnGrid checks that a fast open loop has the arrivals of its Poisson process, each at the end of its tick.
func TestArrivalsOnGrid(t *testing.T) {
	t.Parallel()
	const n = 1000
	l := &benchmark.Load{Rate: 20000, Seed: 7}
	exact := benchmark.Schedule(l, n, 0)
	for i, at := range benchmark.Schedule(l, n, benchmark.Tick) {
		if at%benchmark.Tick != 0 || at < exact[i] || at >= exact[i]+benchmark.Tick {
			t.Fatalf("arrival %d is at %v instead of %v", i, at, exact[i])
		}
	}
}

// TestFastOpenLoop checks that a fast open loop sends each arrival once, and that its clients can be measured again.
func TestFastOpenLoop(t *testing.T) {
	t.Parallel()
	var all, connections atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all.Add(1)
		respond(w, r)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	target := load.Target{HTTP: strings.TrimPrefix(server.URL, "http://")}
	s, err := benchmark.Open(target, load.JSON, []load.Request{{Model: "m"}}, benchmark.Load{Clients: 3, Rate: 10000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	measured := int64(0)
	for range 2 {
		r, err := s.Measure(t.Context(), &benchmark.Plan{Window: 50 * time.Millisecond, Windows: 1})
		if err != nil || r.Requests == 0 || r.Failed != 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		measured += r.Requests
	}
	if n := connections.Load(); measured > all.Load() || n > 3 {
		t.Errorf("%d responses to %d requests over %d connections", measured, all.Load(), n)
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for i := range 1000 {
		all = append(all, time.Duration(i+1)*time.Millisecond)
	}
	got := benchmark.Summary(all...)
	for _, tt := range []struct {
		name      string
		got, want float64
	}{
		{"mean", got.Mean, 500500},
		{"min", got.Min, 1000},
		{"p50", got.P50, 500000},
		{"p99", got.P99, 990000},
		{"p999", got.P999, 999000},
		{"max", got.Max, 1e6},
	} {
		if math.Abs(tt.got-tt.want) > tt.want/1000 {
			t.Errorf("%s is %v us, expected %v", tt.name, tt.got, tt.want)
		}
	}
	if empty := benchmark.Summary(); empty != (benchmark.Latency{}) {
		t.Errorf("without responses it is %+v", empty)
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&load.ResponseError{Code: "503"}, "HTTP 503"},
		{&load.ResponseError{Code: "Unavailable"}, "Unavailable"},
		{fmt.Errorf("dial: %w", syscall.ECONNREFUSED), "connection refused"},
		{io.EOF, "connection lost"},
		{syscall.ECONNRESET, "connection lost"},
		{context.DeadlineExceeded, "timeout"},
		{errors.New("else"), "no response"},
	} {
		if got := benchmark.KindOf(tt.err); got != tt.want {
			t.Errorf("%v is '%s', expected '%s'", tt.err, got, tt.want)
		}
	}
}

func TestBadLoads(t *testing.T) {
	t.Parallel()
	for _, l := range []benchmark.Load{{}, {Clients: -1}, {Clients: 1, Rate: -1}, {Clients: 1, Rate: math.NaN()}, {Clients: 1, Rate: math.Inf(1)}} {
		if s, err := benchmark.Open(load.Target{HTTP: "x"}, load.JSON, []load.Request{{}}, l); err == nil {
			t.Errorf("%+v is accepted: %v", l, s)
		}
	}
}
