package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/bench/load"
)

// scenario is a repository with an ensemble, and what is asked of it.
type scenario struct {
	name     string
	ensemble string
	dir      string
	models   []string // the folders of dir to serve
	requests []load.Request
}

const (
	textRepository = "examples/ensembles/text"
	pictures       = "bench/testdata/pictures/*.jpg"
	vectors        = 8 // requests of a scenario that takes vectors
)

// newScenario finds a scenario's repository and makes its requests.
func newScenario(name string) (s *scenario, err error) {
	s = &scenario{name: name, ensemble: name, dir: filepath.Join("bench/repository", name)}
	switch name {
	case "text":
		s.ensemble, s.dir, s.models = "ensemble", textRepository, []string{"ensemble", "tokenizer", "minilm", "pooling"}
		err = s.texts()
	case "image":
		err = s.pictures()
	default:
		s.vectors()
	}
	if err != nil || s.models != nil {
		return s, err
	}
	configs, err := filepath.Glob(filepath.Join(s.dir, "*", "config.pbtxt"))
	for _, c := range configs {
		s.models = append(s.models, filepath.Base(filepath.Dir(c)))
	}
	if len(configs) == 0 {
		err = errors.Join(err, fmt.Errorf("%s has no models", s.dir))
	}
	return s, err
}

// vectors are requests of 16 floats.
func (s *scenario) vectors() {
	for i := range vectors {
		values := make([]float32, 16)
		for j := range values {
			values[j] = float32(i) + float32(j)*0.37
		}
		s.requests = append(s.requests, load.Request{
			Model: s.ensemble, Outputs: []string{"OUTPUT0"}, Inputs: []load.Tensor{load.Floats("INPUT0", []int64{1, 16}, values)},
		})
	}
}

func (s *scenario) texts() error {
	mix, err := os.ReadFile("bench/testdata/text_mix.txt")
	for line := range strings.Lines(string(mix)) {
		r := embed(strings.TrimSuffix(line, "\n"))
		r.Outputs = []string{"embedding"}
		s.requests = append(s.requests, r)
	}
	return err
}

func (s *scenario) pictures() error {
	files, err := filepath.Glob(pictures)
	if len(files) == 0 {
		return errors.Join(err, fmt.Errorf("no pictures at %s", pictures))
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		s.requests = append(s.requests, load.Request{
			Model: s.ensemble, Outputs: []string{"LABELS", "INDICES", "PROBABILITIES"},
			Inputs: []load.Tensor{load.Bytes("IMAGE", []int64{1, 1}, data)},
		})
	}
	return nil
}

var (
	hasInstances = regexp.MustCompile(`instance_group\s*\[\s*\{[^{}]*\}\s*\]\n*`)
	hasThreads   = regexp.MustCompile(`parameters\s*\{\s*key:\s*"intra_op_thread_count"\s*value\s*\{[^{}]*\}\s*\}\n*`)
	isOther      = regexp.MustCompile(`(?m)^(platform:\s*"ensemble"|backend:\s*"native")`)
)

// copy makes a repository of the scenario in which models that are neither ensembles nor native steps have the given
// instances and threads. Their files are linked.
func (s *scenario) copy(to string, instances, threads int) error {
	for _, model := range s.models {
		text, err := os.ReadFile(filepath.Join(s.dir, model, "config.pbtxt"))
		if err != nil {
			return err
		}
		if !isOther.Match(text) {
			text = hasThreads.ReplaceAll(hasInstances.ReplaceAll(text, nil), nil)
			text = fmt.Appendf(text, "instance_group [ { count: %d kind: KIND_CPU } ]\n", instances)
			text = fmt.Appendf(text, "parameters { key: \"intra_op_thread_count\" value { string_value: \"%d\" } }\n", threads)
		}
		version := filepath.Join(to, model, "1")
		if err := os.MkdirAll(version, 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, model, "config.pbtxt"), text, 0o600); err != nil {
			return err
		}
		files, err := filepath.Glob(filepath.Join(s.dir, model, "1", "[^.]*"))
		if err != nil {
			return err
		}
		for _, f := range files {
			if err := linkFile(f, filepath.Join(version, filepath.Base(f))); err != nil {
				return err
			}
		}
	}
	return nil
}

// linkFile links a file, or copies it where links do not reach. What is no file, as a cache of Python's, stays behind.
func linkFile(from, to string) error {
	if info, err := os.Stat(from); err != nil || !info.Mode().IsRegular() {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}

const (
	compared = 4    // requests whose answers are compared
	near     = 1e-3 // how far floats may be apart, of their size if that is more than 1
)

// agree compares the first answers of all servers, over each protocol, with our server's over its first one, and finds out
// which protocols each of them can do. Different answers are an error, and so is a protocol that ours cannot do.
func (m *matrix) agree(s *scenario, servers []*server) error {
	var want [][]load.Output
	for _, v := range servers {
		v.can = map[string]bool{}
		for _, protocol := range m.protocols {
			got, err := answers(v, protocol, s.requests[:min(compared, len(s.requests))])
			if err != nil {
				if v == servers[0] && !textless(s, protocol) {
					return fmt.Errorf("%s over %s: %w", v.name, protocol, err)
				}
				note("%s: %s does not do %s: %v", s.name, v.name, protocol, err)
				continue
			}
			if want == nil {
				want = got
			}
			for i := range got {
				if err := same(want[i], got[i]); err != nil {
					return fmt.Errorf("%s over %s answers request %d otherwise: %w", v.name, protocol, i, err)
				}
			}
			v.can[protocol] = true
		}
	}
	return nil
}

// textless reports whether a scenario has no form in a protocol: JSON has no place for bytes.
func textless(s *scenario, protocol string) bool { return s.name == "image" && protocol == load.JSON }

func answers(v *server, protocol string, requests []load.Request) (all [][]load.Output, err error) {
	for i := range requests {
		got, err := load.Ask(v.target(), protocol, &requests[i])
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	return all, nil
}

// same compares the outputs that both have.
func same(want, got []load.Output) error {
	shared := 0
	for _, w := range want {
		i := slices.IndexFunc(got, func(o load.Output) bool { return o.Name == w.Name })
		if i < 0 {
			continue
		}
		shared++
		g := got[i]
		if !slices.Equal(w.Strings, g.Strings) {
			return fmt.Errorf("output '%s' is %q, expected %q", w.Name, g.Strings, w.Strings)
		}
		if len(w.Floats) != len(g.Floats) {
			return fmt.Errorf("output '%s' has %d elements, expected %d", w.Name, len(g.Floats), len(w.Floats))
		}
		for j, x := range w.Floats {
			if d := math.Abs(x - g.Floats[j]); d > near*max(1, math.Abs(x)) || math.IsNaN(d) {
				return fmt.Errorf("output '%s' has %s at %d, expected %s", w.Name, short(g.Floats[j]), j, short(x))
			}
		}
	}
	if shared == 0 {
		return fmt.Errorf("none of its %d outputs is one of ours", len(got))
	}
	return nil
}

func short(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
