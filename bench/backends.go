package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	backendScripts = "bench/peers/backends"
	overheadTime   = "300ms"
	// cannotFetch is a script's exit status when it needs a network, another version of Python or a compiler.
	cannotFetch = 3
)

// call holds the cost of one call of a two-input model by round, in microseconds of CPU and of wall time.
type call struct{ cpu, clock []float64 }

// overheads holds the calls of one side by case.
type overheads map[string]*call

func (c overheads) add(name string, cpu, clock float64) {
	if c[name] == nil {
		c[name] = &call{}
	}
	c[name].cpu, c[name].clock = append(c[name].cpu, cpu), append(c[name].clock, clock)
}

// measured holds the figures that docs/backends.md prints for one backend.
type measured struct {
	Version string         `json:"version"`
	Where   string         `json:"where"`
	When    string         `json:"when"`
	Cases   []measuredCase `json:"cases"`
}

// measuredCase holds the medians of CPU time and wall time, in microseconds.
type measuredCase struct {
	Ours   string     `json:"ours"`
	Theirs string     `json:"theirs"`
	CPU    [2]float64 `json:"cpu_us"`
	Clock  [2]float64 `json:"clock_us"`
}

// backends compares a call of each backend on its two-input model with the framework's own call in Python. For
// every script in bench/peers/backends, the package of the same name runs BenchmarkOverhead, alternating with the
// script. A call that takes more than the limit of its backend is an error. The figures go to measured.json beside the scripts, from which the documentation
// is generated.
func (b *bench) backends() error {
	scripts, err := filepath.Glob(filepath.Join(backendScripts, "*.py"))
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "bench-backends")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	all, slow := map[string]measured{}, []error(nil)
	for _, script := range scripts {
		name := strings.TrimSuffix(filepath.Base(script), ".py")
		if len(b.only) > 0 && !slices.Contains(b.only, name) {
			continue
		}
		if unpinned(name) {
			fmt.Fprintf(os.Stderr, "bench: without %s: set PEERS_%s to the folder of its packages\n", name, strings.ToUpper(name))
			continue
		}
		m, err := b.backend(script, name, filepath.Join(work, name))
		if absent(name, err) {
			continue
		}
		if err != nil {
			return err
		}
		all[name] = m
		for _, c := range m.Cases {
			if most := limit(name) * c.CPU[1]; c.CPU[0] > most {
				slow = append(slow, fmt.Errorf("%s: %.1f us of CPU per call, expected at most %.1f: %s takes %.1f", c.Ours, c.CPU[0], most, c.Theirs, c.CPU[1]))
			}
		}
	}
	err = b.library(work)
	if !absent(farLibrary, err) {
		slow = append(slow, err)
	}
	return errors.Join(append(slow, writeMeasured(all))...)
}

// absent reports whether an error says that a script cannot make what a backend needs, and says that the backend is left out.
func absent(backend string, err error) bool {
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != cannotFetch {
		return false
	}
	fmt.Fprintf(os.Stderr, "bench: without %s: %v\n", backend, err)
	return true
}

// libraryLimit is the most time in microseconds that a call of a library made for Triton may take beyond one in the server's process.
// The package farLibrary runs the library, and nearLibrary the call that it is compared with.
const (
	libraryLimit            = 10
	farLibrary, nearLibrary = "tritonlib", "identity"
)

// library compares a call of a library made for Triton, which runs in a process of its own, with one of the backend identity, which runs in the
// server's. The library of the case adds and subtracts two pairs of numbers: all the rest is the cost of the process.
func (b *bench) library(work string) error {
	const far, near = farLibrary, nearLibrary
	if len(b.only) > 0 && !slices.Contains(b.only, far) {
		return nil
	}
	libraries, err := output(nil, "scripts/prepare-triton-backends")
	if err != nil {
		return err
	}
	env := []string{"TUTTI_TEST_TRITON_BACKENDS=" + strings.TrimSpace(libraries)}
	cost := overheads{}
	for _, name := range []string{far, near} {
		binary := filepath.Join(work, name)
		if _, err := output(nil, "go", "test", "-c", "-o", binary, "./backends/"+name); err != nil {
			return err
		}
	}
	for range b.rounds {
		for _, name := range []string{far, near} {
			if err := cost.overhead(env, filepath.Join(work, name), name); err != nil {
				return err
			}
		}
	}
	library, here := cost["addsub"], cost["identity"]
	if library == nil || here == nil {
		return fmt.Errorf("the benchmarks of backends/%s and backends/%s measured nothing", far, near)
	}
	beyond := median(library.clock) - median(here.clock)
	fmt.Fprintf(b.table, "%s: time per call beyond %s\ttutti %.1f us\t\tat most %d us\n", far, near, beyond, libraryLimit)
	fmt.Fprintf(b.table, "%s: CPU per call, both processes\ttutti %.1f us\t%s %.1f us\t\n", far, median(library.cpu), near, median(here.cpu))
	if beyond > libraryLimit {
		return fmt.Errorf("%s: %.1f us per call beyond %s in the server's process, expected at most %d", far, beyond, near, libraryLimit)
	}
	return nil
}

// limit is the most that a call may cost of the framework's own. A pipeline of DALI runs in a process of its own, and theirs in that of the caller.
func limit(backend string) float64 {
	switch backend {
	case "dali":
		return 1.1
	case "fil":
		return 0.7
	}
	return 1
}

// backend measures both sides of one script.
func (b *bench) backend(script, name, binary string) (m measured, err error) {
	packages, err := framework(name)
	if err != nil {
		return m, err
	}
	if _, err := output(nil, "go", "test", "-c", "-o", binary, "./backends/"+name); err != nil {
		return m, err
	}
	m.Where, m.When = machine(), time.Now().UTC().Format("January 2006")
	ours, theirs := overheads{}, overheads{}
	for range b.rounds {
		if err := ours.overhead([]string{"GOMAXPROCS=1", "PYTHONPATH=" + strings.TrimSpace(packages)}, binary, name); err != nil {
			return m, err
		}
		if m.Version, err = theirs.peer(script, strings.TrimSpace(packages)); err != nil {
			return m, err
		}
	}
	if len(ours) == 0 {
		return m, fmt.Errorf("backends/%s measured nothing: run 'make runtimes'", name)
	}
	for _, o := range slices.Sorted(maps.Keys(ours)) {
		before := len(m.Cases)
		for _, t := range slices.Sorted(maps.Keys(theirs)) {
			if t == o || strings.HasPrefix(t, o+", ") {
				b.row(t+": CPU per call", "us", ours[o].cpu, theirs[t].cpu, limit(name))
				fmt.Fprintf(b.table, "%s: time per call\ttutti %.1f us\tpeer %.1f us\t\n", t, median(ours[o].clock), median(theirs[t].clock))
				m.Cases = append(m.Cases, measuredCase{
					Ours: o, Theirs: t,
					CPU:   [2]float64{tenths(median(ours[o].cpu)), tenths(median(theirs[t].cpu))},
					Clock: [2]float64{tenths(median(ours[o].clock)), tenths(median(theirs[t].clock))},
				})
			}
		}
		if len(m.Cases) == before {
			return m, fmt.Errorf("%s has no case '%s'", script, o)
		}
	}
	return m, nil
}

// framework returns the folder of a framework's packages: the folder in PEERS_NAME if they are installed there, or
// a folder that they are downloaded to.
func framework(name string) (string, error) {
	if dir := os.Getenv("PEERS_" + strings.ToUpper(name)); dir != "" {
		return dir, nil
	}
	return output(nil, "scripts/prepare-peers", filepath.Join(backendScripts, "requirements", name+".txt"))
}

// unpinned reports whether no script pins a framework's packages and the user names no folder with them.
func unpinned(name string) bool {
	_, err := os.Stat(filepath.Join(backendScripts, "requirements", name+".txt"))
	return err != nil && os.Getenv("PEERS_"+strings.ToUpper(name)) == ""
}

// overheadLine matches a result of BenchmarkOverhead.
var overheadLine = regexp.MustCompile(`(?m)^BenchmarkOverhead/(\S+?)(?:-\d+)?\s.*?([0-9.e+]+) cpu-us/call.*?([0-9.e+]+) us/call`)

// overhead runs a package's benchmark.
func (c overheads) overhead(env []string, binary, name string) error {
	text, err := output(env, "env", "-C", filepath.Join("backends", name),
		binary, "-test.run=^$", "-test.bench=^BenchmarkOverhead$", "-test.benchtime="+overheadTime)
	if err != nil {
		return err
	}
	for _, m := range overheadLine.FindAllStringSubmatch(text, -1) {
		cpu, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return err
		}
		clock, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return err
		}
		c.add(m[1], cpu, clock)
	}
	return nil
}

// peer runs a script, which prints its framework's version and the cost of each case.
func (c overheads) peer(script, packages string) (version string, err error) {
	text, err := output([]string{"PYTHONPATH=" + packages, "OMP_NUM_THREADS=1"}, "python3", script)
	if err != nil {
		return "", err
	}
	var got struct {
		Version string
		Cases   map[string]struct {
			CPU   float64 `json:"cpu_us"`
			Clock float64 `json:"clock_us"`
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return "", fmt.Errorf("%s: %w", script, err)
	}
	for name, t := range got.Cases {
		c.add(name, t.CPU, t.Clock)
	}
	return got.Version, nil
}

// measuredFile holds the last figures of each backend.
var measuredFile = filepath.Join(backendScripts, "measured.json")

// writeMeasured stores the figures. Backends that this run left out keep their earlier figures.
func writeMeasured(fresh map[string]measured) error {
	all := map[string]measured{}
	text, err := os.ReadFile(measuredFile)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	maps.Copy(all, fresh)
	if text, err = json.MarshalIndent(all, "", "  "); err != nil {
		return err
	}
	return os.WriteFile(measuredFile, append(text, '\n'), 0o644) //nolint:gosec // a committed file is readable by all users
}

func tenths(us float64) float64 {
	v, _ := strconv.ParseFloat(strconv.FormatFloat(us, 'f', 1, 64), 64)
	return v
}

// machine describes this machine.
func machine() string {
	field := func(path, key string) string {
		text, _ := os.ReadFile(path)
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, key); ok && strings.TrimSpace(name) == "" {
				return strings.Trim(strings.TrimSpace(strings.TrimLeft(value, "\t :=")), `"`)
			}
		}
		return "an unknown one"
	}
	return fmt.Sprintf("%s, %s/%s, %d cores of %s", field("/etc/os-release", "PRETTY_NAME"), runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), field("/proc/cpuinfo", "model name"))
}
