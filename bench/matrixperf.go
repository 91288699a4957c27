package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/load"
)

const (
	analyzed = 8 // clients of perf_analyzer
	// analyzerLimit bounds one run of perf_analyzer.
	analyzerLimit = 2 * time.Minute
)

var (
	analyzerRate = regexp.MustCompile(`Throughput: ([0-9.]+) infer/sec`)
	analyzerP99  = regexp.MustCompile(`p99 latency: ([0-9]+) usec`)
)

// analysis holds perf_analyzer's figures of a server beside this program's at the same point.
type analysis struct {
	Scenario string     `json:"scenario"`
	Server   string     `json:"server"`
	Protocol string     `json:"protocol"`
	Clients  int        `json:"clients"`
	Theirs   [2]float64 `json:"perf_analyzer"` // requests per second, p99 in milliseconds
	Ours     [2]float64 `json:"bench"`
}

// analyzer runs perf_analyzer against each server, over the protocols that it has in common with this program.
func (m *matrix) analyzer(ctx context.Context, s *scenario, servers []*server) error {
	folder, err := output(nil, "scripts/prepare-conformance", "perf")
	if err != nil {
		return err
	}
	folder = strings.TrimSpace(folder)
	for _, protocol := range []string{load.Binary, load.GRPC} {
		for _, v := range servers {
			if !v.can[protocol] {
				continue
			}
			a := analysis{Scenario: s.name, Server: v.name, Protocol: protocol, Clients: analyzed}
			if err := m.analyze(ctx, folder, s, v, &a); err != nil {
				return err
			}
			m.report.Analyses = append(m.report.Analyses, a)
		}
	}
	return nil
}

// analyze measures one server with both programs, one after the other.
func (m *matrix) analyze(ctx context.Context, folder string, s *scenario, v *server, a *analysis) (err error) {
	logf("%s: perf_analyzer on %s over %s", s.name, v.name, a.Protocol)
	kind, address := "http", v.HTTP
	if a.Protocol == load.GRPC {
		kind, address = "grpc", v.GRPC
	}
	ctx, cancel := context.WithTimeout(ctx, analyzerLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(folder, "bin", "perf_analyzer"), //nolint:gosec // fetched by a script of this repository
		"-i", kind, "-u", address, "-m", s.ensemble, "--concurrency-range="+strconv.Itoa(analyzed), "--percentile=99",
		"--measurement-interval="+strconv.FormatInt(m.time.Milliseconds(), 10), "--stability-percentage=100000", "--max-trials="+strconv.Itoa(max(3, m.rounds)))
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(folder, "lib"))
	text, err := cmd.CombinedOutput()
	rate, p99 := analyzerRate.FindSubmatch(text), analyzerP99.FindSubmatch(text)
	if err != nil || rate == nil || p99 == nil {
		return fmt.Errorf("perf_analyzer on %s: %w: %s", v.name, err, text[max(0, len(text)-2000):])
	}
	if a.Theirs[0], err = strconv.ParseFloat(string(rate[1]), 64); err != nil {
		return err
	}
	us, err := strconv.ParseFloat(string(p99[1]), 64)
	if err != nil {
		return err
	}
	a.Theirs[1] = us / 1e3
	c := cell{Scenario: s.name, Protocol: a.Protocol, Loop: closed, Clients: analyzed}
	if err := m.cell(ctx, &c, s.requests, []*server{v}); err != nil {
		return err
	}
	a.Ours = [2]float64{c.Servers[0].Throughput, c.Servers[0].P99}
	return nil
}
