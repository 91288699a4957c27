package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// run is one run of chaos.
type run struct {
	set    *settings
	repo   *repository
	server *server
	c      *clients
	redis  *redis
	bucket *bucket
	trace  string          // the file of traces, which the server opens when it first writes some
	have   map[string]bool // what is there: redis, s3, isolation

	models, disk, memory sync.Mutex // one event at a time for each
	full                 atomic.Bool

	mu     sync.Mutex
	faults []string       // guarded by mu
	events map[string]int // that were made; guarded by mu
}

// summary is what a run writes to summary.json.
type summary struct {
	Date     string                    `json:"date"`
	Seed     uint64                    `json:"seed"`
	Plan     string                    `json:"plan"`
	CPUs     int                       `json:"cpus"`
	Duration string                    `json:"duration"`
	Capacity float64                   `json:"capacity_per_s"`
	Rate     float64                   `json:"rate_per_s"`
	Sent     int64                     `json:"sent"`
	Unsent   int64                     `json:"not_sent"`
	Slowest  string                    `json:"slowest"`
	Requests map[string]map[string]int `json:"requests"`
	Errors   map[string]int            `json:"errors"`
	Events   map[string]int            `json:"events"`
	Before   state                     `json:"before"`
	After    state                     `json:"after"`
	Leaked   string                    `json:"leaked_goroutines"`
	Faults   []string                  `json:"faults"`
	FirstBad []string                  `json:"first_wrong_requests"`
	LeftOut  []string                  `json:"left_out"`
}

func (x *run) fault(text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.faults = append(x.faults, text)
	logf("FAULT: %s", text)
}

// runChaos runs the plan of the seed.
func (s *settings) runChaos(ctx context.Context) (err error) {
	x := &run{set: s, events: map[string]int{}}
	scratch, err := os.MkdirTemp("", "tutti-chaos-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	defer x.stopOutside()
	if x.have, err = x.prepare(ctx, scratch); err != nil {
		return err
	}
	plan := s.makePlan(x.have)
	sum := &summary{Date: time.Now().UTC().Format(time.RFC3339), Seed: s.seed, CPUs: runtime.NumCPU(), Duration: s.duration.String(), LeftOut: leftOut(x.have)}
	if sum.Plan, err = savePlan(s.out, plan); err != nil {
		return err
	}
	logf("seed %d: plan %s of %d events in %s", s.seed, sum.Plan, len(plan), s.duration)
	if x.c, err = dial(x.server); err != nil {
		return errors.Join(err, x.server.Stop())
	}
	err = x.execute(ctx, plan, sum)
	return errors.Join(err, x.finish(sum), x.server.Stop())
}

// traceStore has the server retain the traces of recent requests in so little memory that the warm-up fills it. Otherwise it grows with the
// requests to its bound, 64 MB, which would hide a leak and look like one.
const traceStore = "--trace-store-bytes=1048576"

// prepare makes the repository and starts everything. It returns what is there.
func (x *run) prepare(ctx context.Context, scratch string) (map[string]bool, error) {
	have := map[string]bool{}
	x.trace = filepath.Join(scratch, "trace.json")
	var err error
	if x.repo, err = makeRepository(filepath.Join(scratch, "models")); err != nil {
		return nil, err
	}
	args := []string{
		"--model-repository=" + x.repo.dir, "--model-control-mode=explicit", "--load-model=*", "--allow-client-shm=true", "--model-cache-directory=" + filepath.Join(scratch, "cache"),
		"--trace-config=triton,file=" + x.trace, "--trace-config=level=TIMESTAMPS", "--trace-config=rate=100",
		"--log-file=" + filepath.Join(x.set.out, "server-file.log"), traceStore,
	}
	if readable(x.set.redis) {
		if x.redis, err = startRedis(x.set.redis, scratch); err != nil {
			return nil, err
		}
		have["redis"] = true
		args = append(args, "--cache-config=redis,host=127.0.0.1", "--cache-config=redis,port="+x.redis.port)
	} else {
		args = append(args, "--cache-config=local,size=1048576")
	}
	if readable(x.set.s3) {
		if x.bucket, err = startBucket(x.set.s3, "chaos"); err != nil {
			return nil, err
		}
		have["s3"] = true
		address := x.bucket.address("chaos/models")
		if err := x.repo.push(ctx, x.set.tutti, scratch, address); err != nil {
			return nil, err
		}
		args = append(args, "--model-repository="+address)
	}
	have["isolation"] = x.repo.isolated
	x.server, err = serve(ctx, x.set, scratch, args...)
	return have, err
}

func leftOut(have map[string]bool) (list []string) {
	for _, k := range []string{"redis", "s3", "isolation"} {
		if !have[k] {
			list = append(list, k)
		}
	}
	return list
}

func (x *run) stopOutside() {
	if x.redis != nil {
		_ = x.redis.stop()
	}
	if x.bucket != nil {
		x.bucket.close()
	}
}

// judged is the length from which a run's resident memory is judged: in shorter ones it is what the warm-up left to pools by chance.
const judged = 3 * time.Minute

const (
	warmUp   = time.Minute
	measured = 10 * time.Second
	idle     = 45 * time.Second // after which the server has returned the memory of tensors that it keeps for reuse
)

// execute measures the capacity, runs the events under traffic, and compares the states.
func (x *run) execute(ctx context.Context, plan []event, sum *summary) error {
	flows := slices.DeleteFunc(x.repo.flows(), func(f flow) bool { return !wants(x.set.only.flows, f.name) })
	if len(flows) == 0 {
		return fmt.Errorf("no requests begin with -flows %v", x.set.only.flows)
	}
	name := fmt.Sprintf("%d-%d", os.Getpid(), x.set.seed)
	if err := openRegion(ctx, x.c, name); err != nil {
		return err
	}
	before, rate, err := x.settle(ctx, flows, sum)
	if err != nil {
		return err
	}
	sum.Before = before
	logf("before: %d goroutines, %d descriptors, %d children, %d MB resident, %d KB of Go's heap", before.Goroutines, before.Descriptors, before.Children, before.RSS>>20, before.Heap>>10)
	logf("capacity %.0f requests/s, offered %.0f", sum.Capacity, rate)
	t := newTraffic(flows, x.c, x.set.seed)
	t.slow = func() { x.saveStacks(ctx, "slow") }
	over, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { t.run(over, rate) })
	wg.Go(func() { x.progress(over, t) })
	x.playAll(ctx, plan)
	stop()
	wg.Wait()
	sum.Sent, sum.Unsent, sum.Slowest = t.sent.Load(), t.late.Load(), t.tally.slow.Round(time.Millisecond).String()
	sum.Requests, sum.Errors, sum.FirstBad = t.tally.counts, t.tally.texts, t.tally.first
	for _, o := range outcomes {
		if n := t.tally.totals()[o]; isFault(o) && n > 0 {
			x.fault(fmt.Sprintf("%d requests ended %s", n, o))
		}
	}
	fmt.Println(t.tally.table())
	x.calm(ctx, flows)
	return x.compare(ctx, before, sum)
}

// settle warms the server up, measures its capacity and its state. What bounded pools keep (the tensors', the schedulers' workers, the
// C library's arenas) is there afterwards: each kind of event happens before. As at the end of the run, each model is then loaded again, and
// little is sent before the measurement: the memory of an ONNX session grows with the largest batch since it was opened.
func (x *run) settle(ctx context.Context, flows []flow, sum *summary) (state, float64, error) {
	x.warmUp(ctx, flows)
	t := newTraffic(flows, x.c, x.set.seed+1)
	sum.Capacity = t.capacity(ctx, min(measured, x.set.duration), callers)
	sum.Rate = x.set.load * sum.Capacity
	for _, o := range outcomes {
		if n := t.tally.totals()[o]; o != right && n > 0 {
			return state{}, 0, fmt.Errorf("%d requests ended %s before any event: %v", n, o, slices.Collect(maps.Keys(t.tally.texts)))
		}
	}
	if err := x.writeTraces(ctx); err != nil {
		return state{}, 0, err
	}
	x.calm(ctx, flows)
	if err := x.leave(ctx); err != nil {
		return state{}, 0, err
	}
	s, err := x.stable(ctx, nil)
	if err != nil {
		return state{}, 0, err
	}
	x.server.saveMemory(ctx, x.set.out, "before")
	return s, sum.Rate, x.enter(ctx)
}

// writeTraces has the server write its traces, with a change of their rate, so that before the events and after them their file is open, and
// none are buffered. Otherwise they are written when there is 1 MiB of them.
func (x *run) writeTraces(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.c.url+"/v2/trace/setting", strings.NewReader(`{"trace_rate":"200"}`))
	if err != nil {
		return err
	}
	resp, err := x.c.web.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !readable(x.trace) {
		return fmt.Errorf("the traces are not in '%s': %s", x.trace, resp.Status)
	}
	return nil
}

// warmUp sends as much traffic as the server can take, while each kind of event happens once, and then some more. At its end as many requests
// are in flight as the run may have at once, without events: after their most, Go's heap keeps its records of pages and partly used spans.
func (x *run) warmUp(ctx context.Context, flows []flow) {
	t := newTraffic(flows, x.c, x.set.seed+2)
	t.slow = func() { x.saveStacks(ctx, "slow-in-warm-up") }
	d := min(warmUp, x.set.duration)
	over, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { t.capacity(over, time.Hour, callers) })
	for i, k := range kinds {
		if (k.needs == "" || x.have[k.needs]) && wants(x.set.only.events, k.name) {
			wg.Go(func() {
				if !pause(ctx, d*time.Duration(i)/time.Duration(len(kinds))) {
					return
				}
				if err := x.play(ctx, &event{Kind: k.name, Draw: uint64(i), For: k.most}); err != nil { //nolint:gosec // a small number
					x.fault(fmt.Sprintf("event %s of the warm-up: %v", k.name, err))
				}
			})
		}
	}
	pause(ctx, d+d/4)
	stop()
	wg.Wait()
	t.capacity(ctx, min(measured, d), mostAtOnce)
	for _, o := range outcomes {
		if n := t.tally.totals()[o]; isFault(o) && n > 0 {
			x.fault(fmt.Sprintf("%d requests of the warm-up ended %s", n, o))
		}
	}
	x.calm(ctx, flows)
}

// reload unloads each model and loads it again. Those of Python get new workers then.
func (x *run) reload(ctx context.Context) error {
	for _, m := range x.repo.models {
		if err := errors.Join(x.c.http.Unload(ctx, m, false), x.c.http.Load(ctx, m)); err != nil {
			return err
		}
	}
	return nil
}

// leave closes all connections of the traffic, and takes Redis and the bucket away, so that only what the server holds for itself is left. It
// keeps idle connections to them: one to a bucket for a minute, and to Redis as many as were needed since it last came back.
func (x *run) leave(ctx context.Context) error {
	err := errors.Join(x.c.shared.close(ctx, x.c), x.c.close())
	if x.bucket != nil {
		x.bucket.set(true)
	}
	if x.redis != nil {
		err = errors.Join(err, x.redis.stop())
	}
	if x.set.duration >= judged {
		pause(ctx, idle)
	}
	return err
}

// enter undoes leave.
func (x *run) enter(ctx context.Context) (err error) {
	if x.redis != nil {
		if err := x.redis.start(); err != nil {
			return err
		}
	}
	if x.bucket != nil {
		x.bucket.set(false)
	}
	if x.c, err = dial(x.server); err != nil {
		return err
	}
	return openRegion(ctx, x.c, fmt.Sprintf("%d-%d-x", os.Getpid(), x.set.seed))
}

// stable measures until two states agree, or, when there is one to compare with, until they agree with it.
func (x *run) stable(ctx context.Context, want *state) (state, error) {
	last, err := x.server.measure(ctx)
	for until := time.Now().Add(90 * time.Second); err == nil && time.Now().Before(until); {
		if want != nil && len(last.compare(want, x.set.duration >= judged)) == 0 {
			return last, nil
		}
		if !pause(ctx, 3*time.Second) {
			return last, ctx.Err()
		}
		now, failed := x.server.measure(ctx)
		same := now.Goroutines == last.Goroutines && now.Descriptors == last.Descriptors && now.Children == last.Children
		last, err = now, failed
		if want == nil && same && len(now.Active) == 0 {
			return now, err
		}
	}
	return last, err
}

// playAll plays the events at their times, each in a goroutine of its own.
func (x *run) playAll(ctx context.Context, plan []event) {
	began := time.Now()
	var wg sync.WaitGroup
	defer wg.Wait()
	wait := func(at time.Duration) bool { return pause(ctx, time.Until(began.Add(at))) }
	for i := range plan {
		e := &plan[i]
		if !wait(e.At) {
			return
		}
		wg.Go(func() {
			err := x.play(ctx, e)
			x.mu.Lock()
			x.events[e.Kind]++
			x.mu.Unlock()
			if err != nil {
				x.fault(fmt.Sprintf("event %s at %s: %v", e.Kind, e.At, err))
			}
		})
	}
	wait(x.set.duration)
}

// progress prints a line a minute.
func (x *run) progress(ctx context.Context, t *traffic) {
	for pause(ctx, time.Minute) {
		logf("%d requests: %v, %d MB resident", t.sent.Load(), t.tally.totals(), fieldOf(x.server.PID(), "VmRSS:")>>10)
	}
}

// calm checks that after the events each model loads again, and that each flow is right again within patience.
func (x *run) calm(ctx context.Context, flows []flow) {
	if err := x.reload(ctx); err != nil {
		x.fault(fmt.Sprintf("a model does not load after the events: %v", err))
	}
	for i := range flows {
		one := newTraffic(flows[i:i+1], x.c, x.set.seed)
		var last error
		for until := time.Now().Add(patience); time.Now().Before(until); {
			ctx, cancel := context.WithTimeout(ctx, patience)
			last = one.flows[0].send(ctx, x.c, randomOf(x.set.seed))
			cancel()
			if last == nil || !pause(ctx, 200*time.Millisecond) {
				break
			}
		}
		if last != nil {
			x.fault(fmt.Sprintf("%s does not work after the events: %v", flows[i].name, last))
		}
	}
}

// compare compares the state with the one before.
func (x *run) compare(ctx context.Context, before state, sum *summary) error {
	if err := errors.Join(x.writeTraces(ctx), x.leave(ctx)); err != nil {
		return err
	}
	after, err := x.stable(ctx, &before)
	if err != nil {
		return err
	}
	sum.After = after
	x.server.saveMemory(ctx, x.set.out, "after")
	for _, f := range after.compare(&before, x.set.duration >= judged) {
		x.fault(f)
	}
	sum.Leaked = x.leaked(ctx)
	x.saveStacks(ctx, "goroutines")
	return nil
}

// saveStacks writes what each goroutine of the server and each of its processes waits for, to find out why a request has no response.
func (x *run) saveStacks(ctx context.Context, name string) {
	text, err := x.server.get(context.WithoutCancel(ctx), "/debug/pprof/goroutine?debug=2")
	if err != nil {
		return
	}
	var b strings.Builder
	b.WriteString(text)
	children, _ := x.server.children()
	for _, pid := range children {
		call, _ := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid)) // it may be gone
		fmt.Fprintf(&b, "\nprocess %d: %s: state %s, system call %s", pid, command(pid), stateOf(pid), call)
	}
	_ = os.WriteFile(filepath.Join(x.set.out, name+".txt"), []byte(b.String()), 0o600)
}

// leaked reads Go's profile of leaked goroutines. A server that was not built here may have none.
func (x *run) leaked(ctx context.Context) string {
	text, err := x.server.get(ctx, "/debug/pprof/goroutineleak?debug=1")
	if err != nil {
		return "not known: " + err.Error()
	}
	first, _, _ := strings.Cut(text, "\n")
	if !strings.HasSuffix(first, "total 0") {
		x.fault("goroutines have leaked: " + text[:min(len(text), 3000)])
	}
	return first
}

// finish writes the summary.
func (x *run) finish(sum *summary) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	sum.Events, sum.Faults = x.events, x.faults
	text, err := json.MarshalIndent(sum, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(x.set.out, "summary.json"), text, 0o644); err != nil { //nolint:gosec // no secret
		return err
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(x.events)) {
		fmt.Fprintf(&b, "%-22s%10d\n", name, x.events[name])
	}
	fmt.Printf("events\n%s\nerrors\n", &b)
	for _, text := range slices.Sorted(maps.Keys(sum.Errors)) {
		fmt.Printf("%8d  %s\n", sum.Errors[text], text)
	}
	fmt.Printf("\n%-22s%10s%10s\n%s", "state", "before", "after", rows(&sum.Before, &sum.After))
	if len(x.faults) > 0 {
		return fmt.Errorf("%d faults, with seed %d:\n%s", len(x.faults), sum.Seed, strings.Join(x.faults, "\n"))
	}
	return nil
}

func rows(a, b *state) string {
	return fmt.Sprintf("%-22s%10d%10d\n%-22s%10d%10d\n%-22s%10d%10d\n%-22s%10d%10d\n%-22s%10d%10d\n%-22s%10d%10d\n",
		"goroutines", a.Goroutines, b.Goroutines, "descriptors", a.Descriptors, b.Descriptors, "children", a.Children, b.Children,
		"shared memory", len(a.Shared), len(b.Shared), "resident MB", a.RSS>>20, b.RSS>>20, "Go's heap KB", a.Heap>>10, b.Heap>>10)
}
