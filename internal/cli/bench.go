package cli

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/benchmark"
	"github.com/tutti-server/tutti/internal/load"
)

// measureCommands are the commands that measure and watch servers.
func measureCommands() []command {
	return []command{
		{
			name: "bench", usage: "MODEL [--url URL] [--concurrency N,... | --rate R,...]", summary: "Measure throughput and latency of a model",
			notes: `--concurrency is a closed loop: each client sends its next request when the last one is complete. --rate is an open loop: requests arrive at that rate whatever the server does, and latency counts from the arrival. Windows are measured until three in a row agree, or for --duration. Ctrl-C prints what was measured until then.
--input takes requests from files in turn: .json and .jsonl with bodies of KServe requests, or rows of .npz, .npy, .jsonl, .csv, .parquet and of folders of images or texts. Without it inputs are random.
A decoupled model is measured over gRPC streams: until the first and until the last response to a request. A model with sequences gets one sequence at a time from each client, over gRPC.
--against and --against-model compare two servers or models in rounds, and print ratios with confidence intervals of 95 %.`,
			examples: []string{
				"tutti bench text --concurrency 1,8,32 --report text.html",
				"tutti bench text --rate 200 --duration 30s --input texts.jsonl",
				"tutti bench text --url grpc://127.0.0.1:8001 --against grpc://127.0.0.1:9001",
				"tutti bench accumulator --url grpc://127.0.0.1:8001 --concurrency 16 --sequence-length 50",
			},
			run: (*program).bench, complete: completeModels,
		},
		topCommand(),
		simulateCommand(),
	}
}

// benchCall is one call of bench.
type benchCall struct {
	*program
	connect connection
	set     benchSettings
	loads   []benchmark.Load
	sides   []*benchSide // one, or two that are compared
	report  benchmark.Report
	live    *liveLine
}

// benchSettings are the flags of bench.
type benchSettings struct {
	url                      *string
	protocol, version        string
	concurrency, rate        string
	constant                 bool
	clients, rounds, windows int
	warmup, window, duration time.Duration
	timeout                  time.Duration
	tolerance                float64
	shapes, columns, inputs  list
	batch, letters, sequence int
	seed                     uint64
	against, againstModel    string
	out                      *output
	report                   string
}

// bench measures a model of a running server.
func (p *program) bench(ctx context.Context, args []string) error {
	fs := p.flags("bench")
	a := &benchCall{program: p, live: &liveLine{w: p.stderr, terminal: isTerminal(p.stderr)}}
	a.connect.flags(fs)
	a.set.flags(fs)
	rest, err := arguments(fs, args, 1, 1, "the name of one model")
	if err != nil {
		return err
	}
	if err := a.check(fs); err != nil {
		return err
	}
	report, err := a.createReport()
	if err != nil {
		return err
	}
	err = a.run(ctx, rest[0])
	a.live.end()
	if len(a.report.Results) > 0 || a.report.Comparison != nil {
		err = errors.Join(err, a.print(), a.writeReport(report))
	} else {
		err = errors.Join(err, report.drop())
	}
	return err
}

func (s *benchSettings) flags(fs *flag.FlagSet) {
	s.url = urlFlag(fs, "http://, https://, grpc:// or grpcs://")
	fs.StringVar(&s.protocol, "protocol", "", "`protocol`: binary, json, shm (system shared memory) or sse (generate_stream) over HTTP, grpc or stream over gRPC; by default binary or grpc, and sse or stream for decoupled models")
	fs.StringVar(&s.version, "version", "", "model `version`; by default the server chooses")
	fs.StringVar(&s.concurrency, "concurrency", "8", "`numbers` of clients of a closed loop, separated by commas")
	fs.StringVar(&s.rate, "rate", "", "arrivals per second of an open loop, `numbers` separated by commas; in place of --concurrency")
	fs.BoolVar(&s.constant, "constant", false, "with --rate, equal gaps between arrivals in place of random ones (Poisson)")
	fs.IntVar(&s.clients, "clients", 128, "with --rate, the most requests under way")
	fs.DurationVar(&s.warmup, "warmup", time.Second, "time before the measurement")
	fs.DurationVar(&s.window, "window", time.Second, "length of a window; it is longer while it has fewer than 50 responses")
	fs.IntVar(&s.windows, "windows", 10, "the most windows until three in a row agree")
	fs.Float64Var(&s.tolerance, "tolerance", 10, "`percent` within which windows agree in throughput and mean latency")
	fs.DurationVar(&s.duration, "duration", 0, "measure for this time, whether windows agree or not")
	fs.IntVar(&s.batch, "batch", 1, "`rows` of a request")
	fs.Var(&s.shapes, "shape", "`NAME:N,...`: shape of a random input without the batch dimension; by default variable extents are 1; may be repeated")
	fs.IntVar(&s.letters, "text-length", 16, "`letters` of a random text")
	fs.Uint64Var(&s.seed, "seed", 0, "`seed` of random inputs and arrivals")
	fs.IntVar(&s.sequence, "sequence-length", 0, "`requests` of a sequence, of which each client has one at a time; by default 20 for models with sequence_batching; over gRPC only")
	fs.Var(&s.inputs, "input", "`file` or folder with inputs; may be repeated")
	fs.Var(&s.columns, "column", "`INPUT=COLUMN` of a file with rows; by default the column with the input's name; may be repeated")
	fs.StringVar(&s.against, "against", "", "`URL` of a second server to compare with")
	fs.StringVar(&s.againstModel, "against-model", "", "`model` to compare with, at --against or at the same server")
	fs.IntVar(&s.rounds, "rounds", 10, "rounds of a comparison; in each both sides are measured for --window")
	fs.DurationVar(&s.timeout, "timeout", time.Minute, "time after which a request without a response fails")
	s.out = outputFlag(fs, formatTable, formatJSON, formatYAML)
	fs.StringVar(&s.report, "report", "", "`file` for a report in HTML with plots")
}

// check checks the flags and sets the loads.
func (a *benchCall) check(fs *flag.FlagSet) error {
	s := &a.set
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"clients", float64(s.clients)},
		{"rounds", float64(s.rounds)},
		{"windows", float64(s.windows)},
		{"batch", float64(s.batch)},
		{"text-length", float64(s.letters)},
		{"window", s.window.Seconds()},
		{"timeout", s.timeout.Seconds()},
		{"tolerance", s.tolerance},
	} {
		if f.value <= 0 {
			return usagef("--%s is %s, expected more than 0", f.name, fs.Lookup(f.name).Value)
		}
	}
	switch {
	case given["sequence-length"] && s.sequence < 1:
		return usagef("--sequence-length is %d, expected at least 1", s.sequence)
	case s.warmup < 0 || s.duration < 0:
		return usagef("--warmup is %v and --duration is %v, expected no negative times", s.warmup, s.duration)
	case given["duration"] && s.duration == 0:
		return usagef("--duration is 0, expected more; without it windows are measured until they agree")
	case given["rate"] && given["concurrency"]:
		return usagef("--rate and --concurrency exclude each other: an open loop or a closed one")
	case !given["rate"] && (given["clients"] || given["constant"]):
		return usagef("--clients and --constant are for --rate; --concurrency sets the clients of a closed loop")
	case len(s.inputs) > 0 && (len(s.shapes) > 0 || given["text-length"]):
		return usagef("--shape and --text-length are for random inputs, and --input has inputs")
	case len(s.columns) > 0 && len(s.inputs) == 0:
		return usagef("--column is for --input")
	}
	if err := a.setLoads(given["rate"]); err != nil {
		return err
	}
	if len(a.loads) > 1 && a.compares() {
		return usagef("a comparison has one load, found %d: expected one number for --concurrency or --rate", len(a.loads))
	}
	return nil
}

func (a *benchCall) compares() bool { return a.set.against != "" || a.set.againstModel != "" }

// mostClients bounds the connections of a load.
const mostClients = 100000

func (a *benchCall) setLoads(open bool) error {
	name, text := "concurrency", a.set.concurrency
	if open {
		name, text = "rate", a.set.rate
	}
	for part := range strings.SplitSeq(text, ",") {
		v, err := strconv.ParseFloat(strings.TrimSpace(part), 64)
		l := benchmark.Load{Clients: a.set.clients, Rate: v, Constant: a.set.constant, Seed: a.set.seed}
		switch {
		case err != nil || v <= 0 || math.IsNaN(v) || v > 1e7:
			return usagef("--%s has '%s', expected numbers above 0, separated by commas", name, part)
		case !open && (v != math.Trunc(v) || v > mostClients):
			return usagef("--%s has '%s', expected whole numbers from 1 to %d", name, part, mostClients)
		case !open:
			l = benchmark.Load{Clients: int(v), Seed: a.set.seed}
		}
		a.loads = append(a.loads, l)
	}
	return nil
}

// reportFile is the file of the report while it is measured for.
type reportFile struct {
	*os.File
	made bool // it did not exist before
}

// createReport opens the file of the report, so that a path that cannot be written is found before the measurement. A file
// that exists keeps its content until the report is written.
func (a *benchCall) createReport() (*reportFile, error) {
	if a.set.report == "" {
		return nil, nil //nolint:nilnil // no report is wanted
	}
	info, err := os.Stat(a.set.report)
	if err == nil && info.IsDir() {
		return nil, usagef("--report '%s' is a folder, expected a file", a.set.report)
	}
	f, failed := os.OpenFile(a.set.report, os.O_WRONLY|os.O_CREATE, 0o644)
	if failed != nil {
		return nil, fmt.Errorf("--report '%s' cannot be written: %w", a.set.report, failed)
	}
	return &reportFile{f, errors.Is(err, os.ErrNotExist)}, nil
}

// drop closes the file of a report that has no content.
func (f *reportFile) drop() error {
	if f == nil {
		return nil
	}
	err := f.Close()
	if f.made {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// writeReport writes the report.
func (a *benchCall) writeReport(f *reportFile) error {
	if f == nil {
		return nil
	}
	var page bytes.Buffer
	err := a.report.HTML(&page)
	if err == nil {
		_ = f.Truncate(0) // a pipe cannot be truncated, and need not be
		_, err = f.Write(page.Bytes())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("--report: %w", err)
	}
	fmt.Fprintf(a.stderr, "report: %s\n", a.set.report)
	return nil
}

// parseShapes returns the shapes of random inputs.
func (s *benchSettings) parseShapes() (map[string][]int64, error) {
	shapes := map[string][]int64{}
	for _, arg := range s.shapes {
		i := strings.LastIndex(arg, ":")
		if i <= 0 {
			return nil, usagef("--shape is '%s', expected NAME:N,... for example IMAGE:3,224,224", arg)
		}
		dims := []int64{}
		for part := range strings.SplitSeq(arg[i+1:], ",") {
			n, err := strconv.ParseInt(strings.TrimSpace(part), 10, 32)
			if err != nil || n < 0 {
				return nil, usagef("--shape is '%s', expected NAME:N,... with whole numbers", arg)
			}
			dims = append(dims, n)
		}
		shapes[arg[:i]] = dims
	}
	return shapes, nil
}

// parseColumns returns the columns of inputs.
func (s *benchSettings) parseColumns() (map[string]string, error) {
	columns := map[string]string{}
	for _, arg := range s.columns {
		input, column, ok := strings.Cut(arg, "=")
		if !ok || input == "" || column == "" {
			return nil, usagef("--column is '%s', expected INPUT=COLUMN", arg)
		}
		columns[input] = column
	}
	return columns, nil
}

// protocolFor returns the protocol for the port at a URL: gRPC or not.
func (s *benchSettings) protocolFor(grpc bool, server string) (string, error) {
	switch {
	case s.protocol == "" && grpc:
		return load.GRPC, nil
	case s.protocol == "":
		return load.Binary, nil
	case !slices.Contains(benchProtocols(), s.protocol):
		return "", usagef("--protocol is '%s', expected one of %s", s.protocol, strings.Join(benchProtocols(), ", "))
	case grpc && s.protocol != load.GRPC && s.protocol != load.Stream:
		return "", usagef("--protocol %s is over HTTP, and '%s' is a gRPC port: expected http://HOST:PORT", s.protocol, server)
	case !grpc && (s.protocol == load.GRPC || s.protocol == load.Stream):
		return "", usagef("--protocol %s needs a gRPC port: expected --url grpc://HOST:PORT, found '%s'", s.protocol, server)
	}
	return s.protocol, nil
}

// benchProtocols returns the values of --protocol.
func benchProtocols() []string { return append(load.Protocols(), load.Stream, load.Events) }
