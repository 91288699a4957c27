package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	peerTime = "300ms"
	// slowest is the CPU time that a step may take, as a multiple of its peer's. limits.json overrides it.
	slowest = 1.0
)

// costs holds the CPU time of an item in microseconds, by case and round.
type costs map[string][]float64

// steps compares the native steps with the Python libraries that do the same work.
func (b *bench) steps() error { return b.stepsOf("bench/peers/steps") }

// audio compares the steps for audio. Their peers are in a folder of their own, because their packages are large.
func (b *bench) audio() error { return b.stepsOf("bench/peers/audio") }

// jpeg compares the JPEG decoder with libjpeg-turbo. The peer writes the files that both sides decode.
func (b *bench) jpeg() error {
	files, err := os.MkdirTemp("", "bench-jpeg")
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	os.Setenv("TUTTI_PEER_FILES", files)
	defer os.Unsetenv("TUTTI_PEER_FILES")
	return b.stepsOf("bench/peers/jpeg")
}

// stepsOf compares steps: for every script in a folder, the package of the same name runs BenchmarkPeer on one thread, alternating with the
// script.
func (b *bench) stepsOf(folder string) error {
	scripts, err := filepath.Glob(filepath.Join(folder, "*.py"))
	if err != nil {
		return err
	}
	limits, err := readLimits(folder)
	if err != nil {
		return err
	}
	packages, err := output(nil, "scripts/prepare-peers", filepath.Join(folder, "requirements.txt"))
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "bench-steps")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, script := range scripts {
		name := strings.TrimSuffix(filepath.Base(script), ".py")
		binary := filepath.Join(work, name)
		if _, err := output(nil, "go", "test", "-c", "-o", binary, "./steps/"+name); err != nil {
			return err
		}
		ours, theirs := costs{}, costs{}
		for range b.rounds {
			if err := errors.Join(theirs.python(script, strings.TrimSpace(packages)), ours.go1(binary, name)); err != nil {
				return err
			}
		}
		for _, c := range slices.Sorted(maps.Keys(ours)) {
			if len(theirs[c]) == 0 {
				return fmt.Errorf("%s has no case '%s'", script, c)
			}
			limit, ok := limits[name+"/"+c]
			if !ok {
				limit = slowest
			}
			b.row(name+", "+c+": CPU per item", "us", ours[c], theirs[c], limit)
		}
	}
	return nil
}

// readLimits reads the cases' limits, as multiples of the peer's CPU time.
func readLimits(folder string) (map[string]float64, error) {
	limits := map[string]float64{}
	text, err := os.ReadFile(filepath.Join(folder, "limits.json"))
	if err == nil {
		err = json.Unmarshal(text, &limits)
	}
	return limits, err
}

// peerLine matches a result of BenchmarkPeer.
var peerLine = regexp.MustCompile(`(?m)^BenchmarkPeer/(\S+?)(?:-\d+)?\s.*?([0-9.e+]+) us/item`)

// go1 runs a package's benchmark on one processor.
func (c costs) go1(binary, name string) error {
	text, err := output([]string{"GOMAXPROCS=1"}, "env", "-C", filepath.Join("steps", name),
		binary, "-test.run=^$", "-test.bench=^BenchmarkPeer$", "-test.benchtime="+peerTime)
	if err != nil {
		return err
	}
	for _, m := range peerLine.FindAllStringSubmatch(text, -1) {
		us, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return err
		}
		name := strings.ReplaceAll(m[1], "_", " ")
		c[name] = append(c[name], us)
	}
	return nil
}

// python runs a script, which prints a JSON object of microseconds per item by case. The flag -P prevents imports
// of the scripts in place of standard modules of the same name.
func (c costs) python(script, packages string) error {
	text, err := output([]string{"PYTHONPATH=" + packages, "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "RAYON_NUM_THREADS=1", "TOKENIZERS_PARALLELISM=false"}, "python3", "-P", script)
	if err != nil {
		return err
	}
	var got map[string]float64
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return fmt.Errorf("%s: %w", script, err)
	}
	for name, us := range got {
		c[name] = append(c[name], us)
	}
	return nil
}

// output runs a command and returns its standard output.
func output(env []string, name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(text), nil
}
