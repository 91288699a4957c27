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

	"github.com/tutti-server/tutti/internal/load"
)

// scenario is a repository with an ensemble, and the requests for it.
type scenario struct {
	name     string
	ensemble string
	dir      string
	models   []string // the folders of dir to serve
	requests []load.Request
}

const (
	textRepository = "examples/ensembles/text"
	imageFiles     = "bench/testdata/pictures/*.jpg"
	vectors        = 8 // requests of a scenario with vectors as inputs
)

// newScenario finds a scenario's repository and builds its requests.
func newScenario(name string) (s *scenario, err error) {
	s = &scenario{name: name, ensemble: name, dir: filepath.Join("bench/repository", name)}
	switch name {
	case "text":
		s.ensemble, s.dir, s.models = "ensemble", textRepository, []string{"ensemble", "tokenizer", "minilm", "pooling"}
		err = s.texts()
	case "image":
		err = s.images()
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

// vectors builds requests of 16 floats.
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

func (s *scenario) images() error {
	files, err := filepath.Glob(imageFiles)
	if len(files) == 0 {
		return errors.Join(err, fmt.Errorf("no images at %s", imageFiles))
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

// copy writes a repository of the scenario in which every model except ensembles and native steps has the given
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

// linkFile links a regular file, or copies it if it cannot be linked. Everything else, such as Python's __pycache__
// folder, is skipped.
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
	compared = 4    // requests whose responses are compared
	near     = 1e-3 // the largest difference of two floats, relative to their size if that is above 1
)

// agree compares the first responses of all servers, over each protocol, with our server's responses over its first
// protocol, and finds the protocols that each server supports. Different responses are an error, and so is a
// protocol that our server does not support.
func (m *matrix) agree(s *scenario, servers []*server) error {
	var want [][]load.Output
	for _, v := range servers {
		v.can = map[string]bool{}
		for _, protocol := range m.protocols {
			got, err := inferAll(v, protocol, s.requests[:min(compared, len(s.requests))])
			if err != nil {
				if v == servers[0] && !noJSON(s, protocol) {
					return fmt.Errorf("%s over %s: %w", v.name, protocol, err)
				}
				logf("%s: %s does not do %s: %v", s.name, v.name, protocol, err)
				continue
			}
			if want == nil {
				want = got
			}
			for i := range got {
				if err := same(want[i], got[i]); err != nil {
					return fmt.Errorf("%s over %s has a different response to request %d: %w", v.name, protocol, i, err)
				}
			}
			v.can[protocol] = true
		}
	}
	return nil
}

// noJSON reports whether a scenario cannot be sent over a protocol, because JSON cannot hold an image.
func noJSON(s *scenario, protocol string) bool { return s.name == "image" && protocol == load.JSON }

func inferAll(v *server, protocol string, requests []load.Request) (all [][]load.Output, err error) {
	for i := range requests {
		got, err := load.Infer(v.target(), protocol, &requests[i])
		if err != nil {
			return nil, err
		}
		all = append(all, got)
	}
	return all, nil
}

// same compares the outputs that both responses have.
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
