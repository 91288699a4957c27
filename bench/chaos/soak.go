package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

// soakSummary is what a soak writes to summary.json.
type soakSummary struct {
	Date     string   `json:"date"`
	CPUs     int      `json:"cpus"`
	Requests int64    `json:"requests"`
	Checked  int64    `json:"checked"` // responses that were compared
	Duration string   `json:"duration"`
	Samples  int      `json:"samples"`
	Slope    float64  `json:"rss_bytes_per_request"`
	Growth   int64    `json:"rss_growth"` // the slope times the requests
	Bound    int64    `json:"rss_growth_bound"`
	Before   state    `json:"before"`
	After    state    `json:"after"`
	Leaked   string   `json:"leaked_goroutines"`
	Faults   []string `json:"faults"`
}

// The growth of the resident memory that is allowed, by its slope over the last three quarters of the requests: a byte for each of them,
// and what a single slab of a pool and the samples' noise make.
const (
	growthPerRequest = 1
	growthAlways     = 8 << 20
)

// soakClients is the number of clients of each protocol.
const soakClients = 4

// sample is the resident memory after a number of requests.
type sample struct{ requests, rss float64 }

// soak is one soak.
type soak struct {
	run
	sent, checked atomic.Int64
	samples       []sample
}

// runSoak sends requests of every protocol to a model in closed loops.
func (s *settings) runSoak(ctx context.Context) (err error) {
	scratch, err := os.MkdirTemp("", "tutti-soak-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	k := &soak{run: run{set: s, events: map[string]int{}}}
	k.repo = &repository{dir: scratch + "/models"}
	if err := k.repo.write("plain", own["plain"]); err != nil {
		return err
	}
	if k.server, err = serve(ctx, s, scratch, "--model-repository="+k.repo.dir, "--allow-client-shm=true"); err != nil {
		return err
	}
	sum := &soakSummary{Date: time.Now().UTC().Format(time.RFC3339), CPUs: runtime.NumCPU()}
	err = k.execute(ctx, sum)
	sum.Faults = k.faults
	text, failed := json.MarshalIndent(sum, "", "  ")
	if failed == nil {
		failed = os.WriteFile(filepath.Join(s.out, "summary.json"), text, 0o644) //nolint:gosec // no secret
	}
	fmt.Println(string(text))
	if len(k.faults) > 0 {
		err = errors.Join(err, fmt.Errorf("%d faults: %v", len(k.faults), k.faults))
	}
	return errors.Join(err, failed, k.server.Stop())
}

// execute warms up with a hundredth of the requests, sends all of them, and compares the states.
func (k *soak) execute(ctx context.Context, sum *soakSummary) error {
	if err := k.send(ctx, max(1000, k.set.soak/100), nil); err != nil {
		return err
	}
	before, err := k.stable(ctx, nil)
	if err != nil {
		return err
	}
	sum.Before = before
	began, sending := time.Now(), ctx
	if k.set.most > 0 {
		var cancel context.CancelFunc
		sending, cancel = context.WithTimeout(ctx, k.set.most)
		defer cancel()
	}
	if err := k.send(sending, k.set.soak, k.watch); err != nil {
		return err
	}
	sum.Duration, sum.Requests, sum.Checked = time.Since(began).Round(time.Second).String(), k.sent.Load(), k.checked.Load()
	tail := k.samples[len(k.samples)/4:]
	sum.Samples, sum.Slope = len(k.samples), slope(tail)
	sum.Growth, sum.Bound = int64(sum.Slope*float64(k.set.soak)), max(growthAlways, int64(growthPerRequest*k.set.soak))
	if sum.Growth > sum.Bound {
		k.fault(fmt.Sprintf("the resident memory grows by %d bytes over %d requests, expected at most %d", sum.Growth, k.set.soak, sum.Bound))
	}
	if sum.After, err = k.stable(ctx, &before); err != nil {
		return err
	}
	for _, f := range sum.After.compare(&before, false) {
		k.fault(f)
	}
	sum.Leaked = k.leaked(ctx)
	return nil
}

// watch samples the resident memory a hundred times, evenly over the requests.
func (k *soak) watch(ctx context.Context) {
	next := int64(0)
	for pause(ctx, 20*time.Millisecond) {
		if n := k.sent.Load(); n >= next {
			k.samples = append(k.samples, sample{float64(n), float64(fieldOf(k.server.PID(), "VmRSS:") << 10)})
			next = n + int64(k.set.soak/100)
		}
	}
}

// slope is that of the line of least squares.
func slope(list []sample) float64 {
	var x, y, xx, xy float64
	for _, s := range list {
		x, y = x+s.requests, y+s.rss
	}
	n := float64(len(list))
	for _, s := range list {
		dx := s.requests - x/n
		xx, xy = xx+dx*dx, xy+dx*(s.rss-y/n)
	}
	if xx == 0 {
		return 0
	}
	return xy / xx
}

// soakRequests are what each client sends in turn, with the right outputs.
func soakRequests() (list []load.Request, want [][]float64) {
	for _, n := range []int{1, 3, 16, 200} {
		data := make([]float32, n)
		right := make([]float64, n)
		for i := range data {
			data[i], right[i] = float32(n+i), float64(n+i)
		}
		list = append(list, load.Request{Model: "plain", Inputs: []load.Tensor{load.Floats("INPUT0", []int64{1, int64(n)}, data)}, Outputs: []string{"OUTPUT0"}})
		want = append(want, right)
	}
	return list, want
}

// checkEvery is how often a client decodes a response and compares it. All others must have the status of success.
const checkEvery = 16

// send sends n requests over all protocols, fewer if the deadline of ctx is before their end. beside runs until they are answered.
func (k *soak) send(ctx context.Context, n int, beside func(context.Context)) error {
	requests, want := soakRequests()
	over, stop := context.WithCancel(ctx)
	defer stop()
	var wg, watching sync.WaitGroup
	if beside != nil {
		watching.Go(func() { beside(over) })
	}
	k.sent.Store(0)
	var next atomic.Int64
	var groups []*load.Group
	for _, protocol := range load.Protocols() {
		g, err := load.Dial(load.Target{HTTP: k.server.HTTP, GRPC: k.server.GRPC}, protocol, requests, soakClients)
		if err != nil {
			return err
		}
		groups = append(groups, g)
		for _, c := range g.Clients {
			wg.Go(func() {
				for i := int(next.Add(1)); i <= n && ctx.Err() == nil; i = int(next.Add(1)) {
					if err := k.one(c, i, want); err != nil {
						k.fault(fmt.Sprintf("request %d over %s: %v", i, protocol, err))
						return
					}
				}
			})
		}
	}
	wg.Wait()
	stop()
	watching.Wait()
	var errs []error
	for _, g := range groups {
		errs = append(errs, g.Close())
	}
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (k *soak) one(c load.Client, i int, want [][]float64) error {
	if err := c.Do(i); err != nil {
		return err
	}
	k.sent.Add(1)
	if i%checkEvery >= len(want) { // a run of four, so that each of the requests is checked
		return nil
	}
	k.checked.Add(1)
	outputs, err := c.Outputs()
	if err != nil {
		return err
	}
	if right := want[i%len(want)]; len(outputs) != 1 || !slices.Equal(outputs[0].Floats, right) {
		return fmt.Errorf("the response is %v, expected %v", outputs, right)
	}
	return nil
}
