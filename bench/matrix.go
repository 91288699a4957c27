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

	"github.com/tutti-server/tutti/bench/proc"
	"github.com/tutti-server/tutti/internal/load"
)

// matrix compares servers: each scenario over each protocol, at each concurrency, in closed and open loops.
type matrix struct {
	scenarios, protocols, loops, peers list
	concurrency                        counts
	rates                              counts // of open loops, in requests per second
	addresses                          list
	name                               string // of the server at addresses
	time                               time.Duration
	instances, threads, starts, models int
	least                              int // requests of a measurement
	json, profile                      string
	perf, tax                          bool

	tutti   string // the binary
	rounds  int
	work    string // a temporary folder of this run
	socket  string // the socket of our server's profiles, in a build with profiles
	cpus    []int  // of the servers; empty for all
	report  report
	against []contender
}

const (
	closed  = "closed"
	poisson = "poisson"
)

// flags declares the flags of the matrix.
func (m *matrix) flags(f *flag.FlagSet) {
	m.scenarios, m.protocols = list{"identity3", "text", "image", "parallel", "python3"}, load.Protocols()
	m.loops, m.concurrency = list{closed, poisson}, counts{1, 8, 32, 128}
	f.Var(&m.scenarios, "scenarios", "matrix: the folders of bench/repository to serve, or text")
	f.Var(&m.protocols, "protocols", "matrix: any of "+strings.Join(load.Protocols(), ","))
	f.Var(&m.loops, "loops", "matrix: any of closed,poisson")
	f.Var(&m.peers, "peers", "matrix: the folders of bench/peers that have a start script; none for our server alone; all if empty")
	f.Var(&m.concurrency, "concurrency", "matrix: how many clients the closed loops have")
	f.Var(&m.rates, "rates", "matrix: the requests per second of further open loops, to all servers at once; a rate that one of them cannot serve is left out")
	f.Var(&m.addresses, "address", "matrix: a running server, as `host:port[,gRPC's host:port[,pid]]`, instead of peers unless they are named")
	f.StringVar(&m.name, "name", "", "matrix: how tables call the server at -address; what its metadata says if empty")
	f.DurationVar(&m.time, "time", 2*time.Second, "matrix: how long each measurement takes")
	f.IntVar(&m.least, "least", 0, "matrix: the smallest number of requests of a measurement, for which slow servers may take longer than -time")
	f.IntVar(&m.instances, "instances", 1, "matrix: instances of each model that is not a native step")
	f.IntVar(&m.threads, "threads", 1, "matrix: threads of a model's instance")
	f.IntVar(&m.starts, "starts", 1, "matrix: the number of starts of each server, to measure its start time")
	f.IntVar(&m.models, "start", 0, "matrix: measure only the start, with this number of identity models")
	f.StringVar(&m.json, "json", "", "matrix: a `file` for all figures")
	f.StringVar(&m.profile, "profile", "", "matrix: a `folder` for a CPU profile of our server in each cell")
	f.BoolVar(&m.perf, "perf", false, "matrix: measure with perf_analyzer too")
	f.BoolVar(&m.tax, "tax", true, "matrix: measure the ensembles' steps alone as well")
}

// list is a flag of comma-separated words.
type list []string

// String implements flag.Value.
func (l *list) String() string { return strings.Join(*l, ",") }

// Set implements flag.Value.
func (l *list) Set(s string) error {
	*l = strings.Split(s, ",")
	return nil
}

// counts is a flag of comma-separated numbers.
type counts []int

// String implements flag.Value.
func (c *counts) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*c), " ", ","), "[]")
}

// Set implements flag.Value.
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

// check refuses unknown protocols and loops.
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
	if m.name != "" && len(m.addresses) == 0 {
		return fmt.Errorf("-name is '%s', expected -address with the server of that name", m.name)
	}
	if m.instances < 1 || m.threads < 1 || m.rounds < 1 || m.starts < 1 || m.time <= 0 {
		return errors.New("instances, threads, rounds, starts and time have to be more than nothing")
	}
	return nil
}

// matrix measures everything that its flags select and prints one table. After a failure it still prints the
// figures that it has.
func (b *bench) matrix() (err error) {
	m := b.cells
	m.tutti, m.rounds, m.report.Machine = b.tutti, b.rounds, machine()
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

// pin puts clients and servers on different CPUs if there are enough of them.
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
	return os.WriteFile(m.json, append(text, '\n'), 0o644) //nolint:gosec // the figures are readable by all users
}

// scenario measures one scenario. All its servers run at the same time.
func (m *matrix) scenario(ctx context.Context, s *scenario) (err error) {
	servers, err := m.startServers(ctx, s)
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

// logf reports progress on standard error.
func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

// path returns the path of a file in this run's folder.
func (m *matrix) path(parts ...string) string {
	return filepath.Join(append([]string{m.work}, parts...)...)
}
