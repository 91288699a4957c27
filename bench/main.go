// Command bench compares the server, as a whole process, with peers that do the same work. Both sides run on one
// machine in one run: rounds alternate, and medians are compared. It counts the CPU time of the server's process,
// which other load on the machine disturbs least.
//
//	bench [-rounds 5] [-tutti bin/tutti] [-only wire,text,memory,steps,backends]
//	bench -only audio,jpeg,sched,goodput,goodputlive,goodputtext,goodputshared,streams,tax,pgo,growth,remote,jobs,ocr,router,agree,embeddings,precision
//	bench -only gpu -gpu-models DIR
//	bench -only matrix [-scenarios identity3,text] [-peers triton] [-concurrency 8,32] [-time 2s] ...
//
// The matrix compares servers of KServe v2: ours, the peers of bench/peers, or a server that already runs. See its
// flags. For example, bench -only matrix -peers none measures our server alone.
//
// It needs the binary, the examples and their runtime (make runtime examples). It downloads the packages of the
// Python peers.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	tutti := flag.String("tutti", "bin/tutti", "the `binary` to measure")
	rounds := flag.Int("rounds", 5, "the number of measurements of each side")
	only := flag.String("only", "wire,text,memory", "comma-separated measurements to run; also steps, audio, jpeg, backends, sched, goodput, streams, tax, pgo, growth, matrix, remote, jobs, jobsonline, ocr, router, agree, embeddings, precision and gpu")
	router := flag.String("router", "bin/kserve-router", "KServe's `router`, as scripts/prepare-peers kserve builds it")
	svg := flag.String("svg", "", "a `file` for the plot of goodputlive")
	parts := flag.String("growth", "", "the `parts` of growth to run, all if empty: models, ensembles, idle, busy, bytes, copies, memory")
	backend := flag.String("backend", "", "the `names` of the scripts in bench/peers/backends to measure, or tritonlib; all if empty. What cannot be made here is left out with a message: "+
		"a framework without a network, tritonlib without a C compiler")
	cells := &matrix{}
	cells.flags(flag.CommandLine)
	gpus := &gpuBench{}
	gpus.flags(flag.CommandLine)
	echo := flag.Bool("echo", false, "run the echo servers only, for use by the bench itself")
	flag.Parse()
	if *echo {
		fail(serveEcho())
		return
	}
	words := func(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }
	b := &bench{tutti: *tutti, routerPath: *router, rounds: *rounds, only: words(*backend), parts: words(*parts), cells: cells, gpus: gpus, svg: *svg, table: tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)}
	scenarios := []struct {
		name string
		run  func() error
	}{
		{"wire", b.wire},
		{"text", b.text},
		{"memory", b.memory},
		{"steps", b.steps},
		{"audio", b.audio},
		{"jpeg", b.jpeg},
		{"backends", b.backends},
		{"sched", b.sched},
		{"goodput", b.goodput},
		{"goodputlive", b.goodputLive},
		{"goodputtext", b.goodputText},
		{"goodputshared", b.goodputShared},
		{"streams", b.streams},
		{"matrix", b.matrix},
		{"growth", b.growth},
		{"tax", b.tax},
		{"pgo", b.pgo},
		{"gpu", b.gpu},
		{"remote", b.remote},
		{"jobs", b.jobs},
		{"jobsonline", b.jobsOnline},
		{"ocr", b.ocr},
		{"router", b.kserve},
		{"agree", b.agree},
		{"embeddings", b.embeddings},
		{"precision", b.precision},
	}
	var failures []error // one beyond a limit does not keep the others from being measured
	for _, s := range scenarios {
		if slices.Contains(strings.Split(*only, ","), s.name) {
			failures = append(failures, s.run())
		}
	}
	fail(errors.Join(append(failures, b.table.Flush())...))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench holds the settings that the scenarios share.
type bench struct {
	tutti      string
	routerPath string
	rounds     int
	only       []string // of the backends
	parts      []string // of growth
	table      *tabwriter.Writer
	cells      *matrix
	gpus       *gpuBench
	svg        string
}

// row prints one comparison: its name, the two medians, and their ratio.
func (b *bench) row(what, unit string, ours, theirs []float64, limit float64) {
	fmt.Fprintf(b.table, "%s\ttutti %.1f %s\tpeer %.1f %s\tratio %.2f (at most %.2f)\n",
		what, median(ours), unit, median(theirs), unit, median(ours)/median(theirs), limit)
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}
