package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// agreement is how far throughput and mean latency may be from perf_analyzer's.
	agreement = 0.05
	// cheapCores is the most CPU of tutti bench at cheapRate requests per second.
	cheapCores = 1.0 / 3
	cheapRate  = 20000
	agreeTime  = 3 * time.Second // of each measurement
)

var (
	analyzerMean = regexp.MustCompile(`Avg latency: ([0-9]+) usec`)
	analyzerP50  = regexp.MustCompile(`p50 latency: ([0-9]+) usec`)
)

// agreed are the figures of one measurement: requests per second, and microseconds.
type agreed struct{ rate, mean, p50, p99 float64 }

// agreeCase is a load that both programs send.
type agreeCase struct {
	name, model string
	grpc        bool
	ours        []string
	theirs      []string
}

func agreeCases() []agreeCase {
	var list []agreeCase
	for _, grpc := range []bool{false, true} {
		protocol := map[bool]string{false: "http", true: "grpc"}[grpc]
		for _, n := range []string{"1", "8"} {
			list = append(list, agreeCase{
				protocol + ", 20 ms, closed loop, " + n + " clients", "wait", grpc, []string{"--concurrency", n}, []string{"--concurrency-range=" + n},
			})
		}
		list = append(list, agreeCase{
			protocol + ", 20 ms, 100/s at equal gaps", "wait", grpc, []string{"--rate", "100", "--constant"}, []string{"--request-rate-range=100"},
		})
	}
	return list
}

// agreeModels are models whose time is known, so that the programs' own load on the machine matters little, and one that takes
// no time.
const agreeModels = "backend: \"identity\"\n" +
	"input { name: \"INPUT0\" data_type: TYPE_FP32 dims: 16 }\noutput { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: 16 }\n"

// agree compares tutti bench with perf_analyzer: the same loads on the same server, in turns. It fails when throughput or mean
// latency differ by more than agreement. It then measures the CPU of tutti bench.
func (b *bench) agree() (err error) {
	folder, err := output(nil, "scripts/prepare-conformance", "perf")
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "agree")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	for name, more := range map[string]string{
		"wait": "instance_group { count: 4 kind: KIND_CPU }\nparameters { key: \"execute_delay_ms\" value { string_value: \"20\" } }\n", "quick": "",
	} {
		if err := os.MkdirAll(filepath.Join(root, name, "1"), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(agreeModels+more), 0o600); err != nil {
			return err
		}
	}
	p, err := b.serve(root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	var far []error
	for _, c := range agreeCases() {
		far = append(far, b.agreeOn(&c, p, strings.TrimSpace(folder)))
	}
	far = append(far, b.cheap(p, false), b.cheap(p, true))
	return errors.Join(append(far, b.table.Flush())...) // the table is printed in any case
}

// agreeOn compares one load. It takes the best round of each side: other work on the machine only makes figures worse.
func (b *bench) agreeOn(c *agreeCase, p *process, folder string) error {
	var ours, theirs [4][]float64
	add := func(to *[4][]float64, m *agreed) {
		for i, v := range []float64{m.rate, m.mean, m.p50, m.p99} {
			to[i] = append(to[i], v)
		}
	}
	for range b.rounds {
		mine, _, err := b.benched(p, c.model, c.grpc, c.ours)
		if err != nil {
			return err
		}
		add(&ours, mine)
		other, err := analyzedOnce(p, folder, c)
		if err != nil {
			return err
		}
		add(&theirs, other)
	}
	var far []error
	for i, what := range []string{"requests/s", "mean us", "p50 us", "p99 us"} {
		a, o := slices.Min(ours[i]), slices.Min(theirs[i])
		if i == 0 {
			a, o = slices.Max(ours[i]), slices.Max(theirs[i])
		}
		fmt.Fprintf(b.table, "%s\t%s\ttutti bench %.1f\tperf_analyzer %.1f\tratio %.3f\n", c.name, what, a, o, a/o)
		if i < 2 && math.Abs(a/o-1) > agreement {
			far = append(far, fmt.Errorf("%s: %s of tutti bench and perf_analyzer have the ratio %.3f", c.name, what, a/o))
		}
	}
	return errors.Join(far...)
}

// benched runs tutti bench, and returns its CPU time per request, too.
func (b *bench) benched(p *process, model string, grpc bool, flags []string) (*agreed, time.Duration, error) {
	url := "http://" + p.HTTP
	if grpc {
		url = "grpc://" + p.GRPC
	}
	cmd := exec.Command(b.tutti, append([]string{"bench", model, "--url", url, "--warmup", "500ms", "--duration", agreeTime.String(), "-o", "json"}, flags...)...) //nolint:gosec // the binary to measure
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, 0, fmt.Errorf("tutti bench: %w", err)
	}
	var got struct {
		Results []struct {
			Requests   int64   `json:"requests"`
			Throughput float64 `json:"throughput"`
			Cores      float64 `json:"client_cores"`
			Latency    struct {
				Mean float64 `json:"mean_us"`
				P50  float64 `json:"p50_us"`
				P99  float64 `json:"p99_us"`
			} `json:"latency"`
		} `json:"results"`
	}
	if err := json.Unmarshal(text, &got); err != nil || len(got.Results) != 1 || got.Results[0].Requests == 0 {
		return nil, 0, fmt.Errorf("tutti bench printed %s: %w", text, err)
	}
	r := &got.Results[0]
	each := time.Duration(r.Cores / r.Throughput * float64(time.Second))
	return &agreed{r.Throughput, r.Latency.Mean, r.Latency.P50, r.Latency.P99}, each, nil
}

// analyzedOnce runs perf_analyzer.
func analyzedOnce(p *process, folder string, c *agreeCase) (*agreed, error) {
	kind, address := "http", p.HTTP
	if c.grpc {
		kind, address = "grpc", p.GRPC
	}
	ctx, cancel := context.WithTimeout(context.Background(), analyzerLimit)
	defer cancel()
	args := append([]string{
		"-i", kind, "-u", address, "-m", c.model, "--measurement-interval=" + strconv.FormatInt(agreeTime.Milliseconds()/3, 10),
		"--stability-percentage=100000", "--max-trials=3",
	}, c.theirs...)
	cmd := exec.CommandContext(ctx, filepath.Join(folder, "bin", "perf_analyzer"), args...) //nolint:gosec // fetched by a script of this repository
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(folder, "lib"))
	text, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("perf_analyzer: %w: %s", err, text[max(0, len(text)-2000):])
	}
	m := &agreed{}
	for _, f := range []struct {
		pattern *regexp.Regexp
		to      *float64
	}{{analyzerRate, &m.rate}, {analyzerMean, &m.mean}, {analyzerP50, &m.p50}, {analyzerP99, &m.p99}} {
		found := f.pattern.FindSubmatch(text)
		if found == nil {
			return nil, fmt.Errorf("perf_analyzer printed no %v: %s", f.pattern, text[max(0, len(text)-2000):])
		}
		if *f.to, err = strconv.ParseFloat(string(found[1]), 64); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// cheap measures the CPU of tutti bench. It is the time of a request at the rate that the machine reaches, so that a machine
// on which both sides do not reach cheapRate tells, too.
func (b *bench) cheap(p *process, grpc bool) error {
	var far []error
	for _, flags := range [][]string{{"--concurrency", "8"}, {"--rate", strconv.Itoa(cheapRate), "--clients", "32"}} {
		var cores, rates []float64
		for range b.rounds {
			m, each, err := b.benched(p, "quick", grpc, flags)
			if err != nil {
				return err
			}
			cores, rates = append(cores, each.Seconds()*cheapRate), append(rates, m.rate)
		}
		c := slices.Min(cores) // other work on the machine only makes it worse
		fmt.Fprintf(b.table, "%s, no time, %s\tclient CPU\t%.1f us a request\t%.2f cores at %d/s (at most %.2f)\tmeasured at %.0f/s\n",
			map[bool]string{false: "http", true: "grpc"}[grpc], strings.Join(flags, " "), c*1e6/cheapRate, c, cheapRate, cheapCores, slices.Max(rates))
		if c > cheapCores {
			far = append(far, fmt.Errorf("tutti bench %s takes %.2f cores at %d requests/s", strings.Join(flags, " "), c, cheapRate))
		}
	}
	return errors.Join(far...)
}
