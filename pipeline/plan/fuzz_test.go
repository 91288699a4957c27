package plan_test

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// FuzzCompile compiles arbitrary configurations with arbitrary models. No input may panic or hang, and every plan
// must be consistent.
func FuzzCompile(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var known strings.Builder
		for i := range archive.Files {
			if a := &archive.Files[i]; strings.HasPrefix(a.Name, "models/") {
				name := strings.TrimSuffix(filepath.Base(a.Name), ".pbtxt")
				fmt.Fprintf(&known, "name: %q\n%s\n---\n", name, a.Data)
			}
		}
		for i := range archive.Files {
			if a := &archive.Files[i]; strings.HasSuffix(a.Name, ".pbtxt") {
				f.Add(string(a.Data), known.String())
			}
		}
	}
	f.Fuzz(func(t *testing.T, text, known string) {
		cfg, err := config.Parse("fuzz", []byte(text))
		if err != nil {
			return
		}
		repo := repository{}
		for one := range strings.SplitSeq(known, "---") {
			if m, err := config.Parse("fuzz", []byte(one)); err == nil {
				repo[m.Name] = m
			}
		}
		check(t, cfg, repo)
	})
}

func check(t *testing.T, cfg *modelconfig.ModelConfig, repo repository) {
	t.Helper()
	p, err := plan.Compile(cfg, 1, repo)
	if err != nil {
		return
	}
	written := make([]bool, p.Slots)
	for _, slot := range p.Inputs {
		written[slot] = true
	}
	readers := make([]int32, p.Slots)
	for i := range p.Nodes {
		n := &p.Nodes[i]
		for _, slot := range n.In {
			if slot == plan.None {
				continue
			}
			readers[slot]++
			if !written[slot] {
				t.Errorf("step %s reads %s before it is written", n.Name, p.Names[slot])
			}
		}
		for _, slot := range n.Out {
			if slot != plan.None && written[slot] {
				t.Errorf("step %s writes %s a second time", n.Name, p.Names[slot])
			}
			if slot != plan.None {
				written[slot] = true
			}
		}
		if len(n.Rules) != len(n.In) || !p.AllNodes.Contains(int32(i)) {
			t.Errorf("step %s has %d rules for %d inputs, or no output needs it", n.Name, len(n.Rules), len(n.In))
		}
	}
	for _, slot := range p.Outputs {
		readers[slot]++
		if !written[slot] {
			t.Errorf("output %s is not written", p.Names[slot])
		}
	}
	for slot, n := range readers {
		if n != p.Readers[slot] {
			t.Errorf("tensor %s has %d readers, the plan says %d", p.Names[slot], n, p.Readers[slot])
		}
	}
	checkParts(t, p)
	if p.Text() == "" || p.SVG(io.Discard, nil) != nil || p.DOT(io.Discard) != nil {
		t.Error("the plan cannot be printed")
	}
}

// checkParts checks that the segments of a divided plan are closed: every tensor that a segment reads is written in
// it or shared by the segment around it. Every step is in one segment.
func checkParts(t *testing.T, p *plan.Plan) {
	t.Helper()
	nodes := 0
	for i := range p.Segments {
		part := &p.Segments[i]
		sub := part.Plan
		if (i == 0) != (part.Parent < 0) || int(part.Parent) >= i || (i > 0) != (part.Producer != plan.None || part.Operator != plan.None) {
			t.Errorf("part %d is in part %d and begins with step %d or operation %d", i, part.Parent, part.Producer, part.Operator)
		}
		for n, number := range part.Numbers {
			if op := sub.Nodes[n].Operation; op != nil && op.Feed != nil {
				continue
			}
			nodes++
			if int(p.Nodes[number].Stream) != i || p.Nodes[number].Name != sub.Nodes[n].Name {
				t.Errorf("part %d has step %d as %s, the plan as %s of stream %d", i, number, sub.Nodes[n].Name, p.Nodes[number].Name, p.Nodes[number].Stream)
			}
		}
		if part.Operator != plan.None {
			nodes++
		}
		written := make([]bool, sub.Slots)
		for _, slot := range append(append([]plan.Slot{}, sub.Inputs...), part.Ports...) {
			if slot != plan.None {
				written[slot] = true
			}
		}
		for _, in := range part.Shared {
			if before := p.Segments[part.Parent].Plan; before.Names[in.From] != sub.Names[in.To] {
				t.Errorf("part %d shares %s as %s", i, before.Names[in.From], sub.Names[in.To])
			}
			written[in.To] = true
		}
		for n := range sub.Nodes {
			for _, slot := range sub.Nodes[n].In {
				if slot != plan.None && !written[slot] {
					t.Errorf("step %s reads %s before it is written", sub.Nodes[n].Name, sub.Names[slot])
				}
			}
			for _, slot := range sub.Nodes[n].Out {
				if slot != plan.None {
					written[slot] = true
				}
			}
		}
		for _, slot := range sub.Outputs {
			if slot != plan.None && !written[slot] {
				t.Errorf("output %s is not written", sub.Names[slot])
			}
		}
	}
	if p.Segments != nil && nodes != len(p.Nodes) {
		t.Errorf("the parts have %d steps, the plan %d", nodes, len(p.Nodes))
	}
}
