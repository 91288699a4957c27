// Command chaos runs one real server under load and harms it, or soaks it in requests, and checks what it does.
//
//	chaos [-t 30m] [-seed 1] [-out bin/chaos]      the plan of events of a seed, under mixed traffic
//	chaos -flows 'count|plain' -models count -events 'reload|kill-worker' -gap 300ms -t 2m    only these, to narrow a fault down
//	chaos -soak 10000000 [-out bin/soak]           requests over the sockets, with a test of the slope of the memory
//	chaos -soak 10000000 -soak-time 30m            as many of them as fit in the time, with the growth that the slope gives for all
//
// Every response is compared with the stored right one. An error must say whether the request may be sent again. At the
// end memory, goroutines, descriptors, shared memory and children are compared with those before. The exit status is 1 when
// anything is wrong. It is run from the repository's root: make test-chaos, make soak.
//
//	repository.go  the models
//	process.go     the server and what it holds
//	example.go     the stored requests of the examples
//	flows.go       the kinds of requests, with their right responses
//	outcome.go     how a request ended, and the counts
//	traffic.go     requests in a closed or an open loop
//	plan.go        the events of a seed
//	events.go      what they do to models and processes
//	outside.go     Redis, the bucket, the disk
//	rude.go        clients on raw sockets
//	run.go         the run, and its summary
//	soak.go        the soak
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	duration time.Duration
	seed     uint64
	load     float64
	soak     int
	most     time.Duration // of a soak
	out      string
	tutti    string
	redis    string
	s3       string
	gap      time.Duration
	only     only
}

// only narrows a run down.
type only struct{ flows, events, models *regexp.Regexp }

// pattern returns a flag's value as a pattern that names begin with.
func pattern(to **regexp.Regexp) func(string) error {
	return func(text string) (err error) {
		*to, err = regexp.Compile("^(?:" + text + ")")
		return err
	}
}

// wants reports whether a pattern has a name. Without a pattern all names are wanted.
func wants(p *regexp.Regexp, name string) bool { return p == nil || p.MatchString(name) }

func main() {
	var s settings
	flag.DurationVar(&s.duration, "t", 30*time.Minute, "how long events happen")
	flag.Uint64Var(&s.seed, "seed", 0, "the seed of the plan and of the traffic; 0 for one of the clock")
	flag.Float64Var(&s.load, "load", 0.8, "the offered load, as a part of the measured capacity")
	flag.DurationVar(&s.gap, "gap", 2*time.Second, "the mean time between two events")
	flag.Func("flows", "only requests whose names begin with this `pattern`", pattern(&s.only.flows))
	flag.Func("events", "only events whose names begin with this `pattern`", pattern(&s.only.events))
	flag.Func("models", "events of models happen only to those whose names begin with this `pattern`", pattern(&s.only.models))
	flag.IntVar(&s.soak, "soak", 0, "send this number of requests without events instead")
	flag.DurationVar(&s.most, "soak-time", 0, "end a soak after this time, and judge the requests until then; 0 for none")
	flag.StringVar(&s.out, "out", "bin/chaos", "the `folder` of the plan, the log and the summary")
	flag.StringVar(&s.tutti, "tutti", "", "the `binary`; built with profiles if empty")
	flag.StringVar(&s.redis, "redis", "", "the `path` of redis-server; without one Redis is left out")
	flag.StringVar(&s.s3, "s3", "", "the `path` of the S3 server fakes3; without one the bucket is left out")
	flag.Parse()
	if s.seed == 0 {
		s.seed = uint64(time.Now().UnixNano()) //nolint:gosec // any seed
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := s.start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		cancel()
		os.Exit(1) //nolint:gocritic // cancel has been called
	}
}

// start prepares the folder and the binary, and runs what the flags ask for.
func (s *settings) start(ctx context.Context) error {
	var err error
	if s.out, err = filepath.Abs(s.out); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil { //nolint:gosec // the summary is readable by all users
		return err
	}
	if s.tutti == "" {
		if s.tutti, err = build(ctx, s.out); err != nil {
			return err
		}
	}
	if s.soak > 0 {
		return s.runSoak(ctx)
	}
	return s.runChaos(ctx)
}

func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().UTC().Format("15:04:05 ")+format+"\n", args...)
}

// pause waits, or returns false when ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
