package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/tutti-server/tutti/scheduler/sim"
)

// Graph is a graph of steps to simulate.
type Graph struct {
	Name string
	sim.Graph

	// Devices are the names of the devices that several steps may share; that of number n is at n-1.
	Devices []string
	// Limit is how long a request may take; 0 if that is not known.
	Limit time.Duration
	// Notes say what the graph leaves out.
	Notes []string
}

// graphFile is a graph as a file has it.
type graphFile struct {
	Name  string     `yaml:"name"`
	Limit float64    `yaml:"slo_ms"`
	Steps []stepFile `yaml:"steps"`
}

// stepFile is a step of a graph as a file has it.
type stepFile struct {
	Name      string   `yaml:"name"`
	After     []string `yaml:"after"`
	Fixed     float64  `yaml:"fixed_ms"`
	PerRow    float64  `yaml:"row_ms"`
	MaxBatch  *int     `yaml:"max_batch_size"`
	Instances *int     `yaml:"instances"`
	Device    string   `yaml:"device"`
	Share     *float64 `yaml:"share"`
}

// ReadGraph reads a graph from a file of YAML or JSON.
func ReadGraph(path string) (*Graph, error) {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return nil, err
	}
	var f graphFile
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("'%s': %w", path, err)
	}
	g, err := f.graph()
	if err != nil {
		return nil, fmt.Errorf("'%s': %w", path, err)
	}
	if g.Name == "" {
		g.Name = filepath.Base(path)
	}
	return g, nil
}

// graph returns the graph. Steps may be in any order.
func (f *graphFile) graph() (*Graph, error) {
	if f.Limit < 0 {
		return nil, fmt.Errorf("slo_ms is %v, expected milliseconds above 0", f.Limit)
	}
	g := &Graph{Name: f.Name, Limit: millis(f.Limit)}
	steps, err := f.sorted()
	if err != nil {
		return nil, err
	}
	at := map[string]int{}
	for i := range steps {
		s := &steps[i]
		n := sim.Node{Name: s.Name, Fixed: millis(s.Fixed), PerRow: millis(s.PerRow), MaxBatch: 1}
		if s.MaxBatch != nil {
			n.MaxBatch = *s.MaxBatch
		}
		if s.Instances != nil {
			if n.Instances = *s.Instances; n.Instances < 1 {
				return nil, fmt.Errorf("step '%s': instances is %d, expected at least 1", s.Name, n.Instances)
			}
		}
		if s.Share != nil {
			if n.Share = *s.Share; n.Share <= 0 || n.Share > 1 {
				return nil, fmt.Errorf("step '%s': share is %v, expected the part of the requests that execute the step, above 0 and up to 1", s.Name, n.Share)
			}
		}
		n.Device = g.device(s.Device)
		for _, a := range s.After {
			n.After = append(n.After, at[a])
		}
		at[s.Name] = i
		g.Nodes = append(g.Nodes, n)
	}
	return g, g.Check()
}

// sorted returns the steps, each behind those that it reads.
func (f *graphFile) sorted() (list []stepFile, err error) {
	names := map[string]bool{}
	for i := range f.Steps {
		name := f.Steps[i].Name
		switch {
		case name == "":
			return nil, fmt.Errorf("step %d has no name", i+1)
		case names[name]:
			return nil, fmt.Errorf("two steps have the name '%s', expected one", name)
		}
		names[name] = true
	}
	for i := range f.Steps {
		for _, a := range f.Steps[i].After {
			if !names[a] {
				return nil, fmt.Errorf("step '%s' is after '%s', which is no step", f.Steps[i].Name, a)
			}
		}
	}
	left, done := slices.Clone(f.Steps), map[string]bool{}
	for len(left) > 0 {
		i := slices.IndexFunc(left, func(s stepFile) bool {
			return !slices.ContainsFunc(s.After, func(a string) bool { return !done[a] })
		})
		if i < 0 {
			return nil, fmt.Errorf("step '%s' waits for itself, by the steps that it is after", left[0].Name)
		}
		done[left[i].Name] = true
		list, left = append(list, left[i]), slices.Delete(left, i, i+1)
	}
	return list, nil
}

// device returns the number of a device, 0 for a device of the step alone.
func (g *Graph) device(name string) int {
	if name == "" {
		return 0
	}
	i := slices.Index(g.Devices, name)
	if i < 0 {
		i = len(g.Devices)
		g.Devices = append(g.Devices, name)
	}
	return i + 1
}

// ShareDevice puts all steps on one device.
func (g *Graph) ShareDevice() {
	g.Devices = []string{"shared"}
	for i := range g.Nodes {
		g.Nodes[i].Device = 1
	}
}

func millis(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
