package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/tutti-server/tutti/bench/load"
	"github.com/tutti-server/tutti/bench/proc"
)

// matrix compares servers: each scenario over each protocol, at each concurrency, in closed and open loops.
type matrix struct {
	scenarios, protocols, loops, peers list
	concurrency                        counts
	addresses                          list
	time                               time.Duration
	instances, threads, starts, models int
	least                              int // requests of a measurement
	json, profile                      string
	perf, tax                          bool

	tutti   string // the binary
	rounds  int
	work    string // a folder of this run
	socket  string // where our server's profiles are, in a build for them
	cpus    []int  // of the servers, all when empty
	report  report
	against []contender
}

const (
	closed  = "closed"
	poisson = "poisson"
)

// flags makes the matrix's flags.
func (m *matrix) flags(f *flag.FlagSet) {
	m.scenarios, m.protocols = list{"identity3", "text", "image", "parallel", "python3"}, load.Protocols()
	m.loops, m.concurrency = list{closed, poisson}, counts{1, 8, 32, 128}
	f.Var(&m.scenarios, "scenarios", "matrix: the folders of bench/repository to serve, or text")
	f.Var(&m.protocols, "protocols", "matrix: of "+strings.Join(load.Protocols(), ","))
	f.Var(&m.loops, "loops", "matrix: of closed,poisson")
	f.Var(&m.peers, "peers", "matrix: the folders of bench/peers that have a start; none for our server alone, all of them when empty")
	f.Var(&m.concurrency, "concurrency", "matrix: how many clients the closed loops have")
	f.Var(&m.addresses, "address", "matrix: a server that runs already, as `host:port[,gRPC's host:port[,pid]]`, instead of peers unless they are named")
	f.DurationVar(&m.time, "time", 2*time.Second, "matrix: how long each measurement takes")
	f.IntVar(&m.least, "least", 0, "matrix: how many requests each measurement has at least, which slow servers take longer for")
	f.IntVar(&m.instances, "instances", 1, "matrix: of each model that is no native step")
	f.IntVar(&m.threads, "threads", 1, "matrix: of a model's instance")
	f.IntVar(&m.starts, "starts", 1, "matrix: how often each server is started, to see how long that takes")
	f.IntVar(&m.models, "start", 0, "matrix: measure nothing but the start over so many identity models")
	f.StringVar(&m.json, "json", "", "matrix: a `file` for all figures")
	f.StringVar(&m.profile, "profile", "", "matrix: a `folder` for a CPU profile of our server in each cell")
	f.BoolVar(&m.perf, "perf", false, "matrix: ask perf_analyzer too")
	f.BoolVar(&m.tax, "tax", true, "matrix: measure the ensembles' steps alone too")
}

// list is a flag of words with commas between them.
type list []string

// String is what was given.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set takes the words.
func (l *list) Set(s string) error {
	*l = strings.Split(s, ",")
	return nil
}

// counts is a flag of numbers with commas between them.
type counts []int

// String is what was given.
func (c *counts) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*c), " ", ","), "[]")
}

// Set takes the numbers.
func (c *counts) Set(s string) error {
	*c = nil
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("expected numbers from 1 on, found '%s'", word)
		}
		*c = append(*c, n)
	}
	return nil
}

// check refuses words that mean nothing.
func (m *matrix) check() error {
	for _, set := range []struct {
		name         string
		given, known []string
	}{{"protocol", m.protocols, load.Protocols()}, {"loop", m.loops, []string{closed, poisson}}} {
		for _, word := range set.given {
			if !slices.Contains(set.known, word) {
				return fmt.Errorf("unknown %s '%s', expected one of %v", set.name, word, set.known)
			}
		}
	}
	if m.instances < 1 || m.threads < 1 || m.rounds < 1 || m.starts < 1 || m.time <= 0 {
		return errors.New("instances, threads, rounds, starts and time have to be more than nothing")
	}
	return nil
}

// matrix runs what its flags say and prints one table. What was measured is printed even when something failed.
func (b *bench) matrix() (err error) {
	m := b.cells
	m.tutti, m.rounds, m.report.Machine = b.tutti, b.rounds, where()
	if err := m.check(); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if m.work, err = os.MkdirTemp("", "bench-matrix"); err != nil {
		return err
	}
	defer os.RemoveAll(m.work)
	if err := m.pin(); err != nil {
		return err
	}
	if m.profile != "" {
		if err := m.profiled(); err != nil {
			return err
		}
	}
	if m.models > 0 {
		return m.startup(ctx)
	}
	if err := m.contenders(); err != nil {
		return err
	}
	var errs []error
	for _, name := range m.scenarios {
		s, err := newScenario(name)
		if err == nil {
			err = m.scenario(ctx, s)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	m.report.print(os.Stdout)
	return errors.Join(append(errs, m.save())...)
}

// pin keeps clients and servers apart where there are CPUs enough.
func (m *matrix) pin() error {
	servers, clients, err := proc.Split()
	if err != nil || len(clients) == 0 {
		return err
	}
	m.cpus = servers
	runtime.GOMAXPROCS(len(clients))
	return proc.Pin(clients)
}

// save writes all figures as JSON.
func (m *matrix) save() error {
	if m.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(&m.report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.json, append(text, '\n'), 0o644) //nolint:gosec // figures are for everybody
}

// scenario measures one scenario: all its servers run at once.
func (m *matrix) scenario(ctx context.Context, s *scenario) (err error) {
	servers, err := m.bring(ctx, s)
	defer func() {
		for _, v := range servers {
			err = errors.Join(err, v.Stop())
		}
	}()
	if err != nil {
		return err
	}
	if err := m.agree(s, servers); err != nil {
		return err
	}
	for _, protocol := range m.protocols {
		if err := m.protocol(ctx, s, protocol, servers); err != nil {
			return err
		}
	}
	if m.tax {
		if err := m.taxes(ctx, s, servers); err != nil {
			return err
		}
	}
	if m.perf && s.name == "identity3" {
		return m.analyzer(ctx, s, servers)
	}
	return nil
}

// note tells how far it is.
func note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

// path is a file of this run.
func (m *matrix) path(parts ...string) string {
	return filepath.Join(append([]string{m.work}, parts...)...)
}
