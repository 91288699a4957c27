package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// unusedInput reports an input of the ensemble that no step reads, with the tensor that was probably meant.
func (l *problems) unusedInput(f *flow, i int, name string) {
	near := f.suggestion(name, f.unwritten)
	field := fmt.Sprintf("input[%d]", i)
	if near != "" {
		near = ": a step reads a tensor that nothing writes" + near
	}
	l.add(InputUnused, field, "ensemble input '%s' for ensemble %s' is not used%s", name, l.cfg.GetName(), near)
}

// suggestion returns a sentence with the most similar candidate, or nothing. The candidate counts as reported.
func (f *flow) suggestion(name string, candidates func() []string) string {
	list := candidates()
	near := DidYouMean(name, slices.DeleteFunc(list, func(t string) bool { return t == name }))
	if near == "" {
		return ""
	}
	for _, t := range list {
		if strings.Contains(near, "\""+t+"\"") {
			f.reported[t] = true
		}
	}
	return "." + near
}

// unread returns the tensors that a step writes and nothing reads, and the ensemble's inputs that nothing reads,
// sorted.
func (f *flow) unread() []string {
	var list []string
	for t := range f.writer {
		if len(f.readers[t]) == 0 {
			list = append(list, t)
		}
	}
	for t := range f.inputs {
		if len(f.readers[t]) == 0 {
			list = append(list, t)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// unwritten returns the tensors that steps read and nothing writes, sorted.
func (f *flow) unwritten() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.readers)), func(t string) bool {
		_, written := f.writer[t]
		return written || f.inputs[t]
	})
}

// root follows the inputs of step i, which writes out, back to a tensor that nothing writes.
func (f *flow) root(i int, out string) string {
	root, seen := out, map[string]bool{out: true}
	for again := true; again; {
		again = false
		ins := f.steps[i].GetInputMap()
		for _, port := range slices.Sorted(maps.Keys(ins)) {
			t := ins[port]
			if !f.unfed[t] || seen[t] {
				continue
			}
			root, seen[t] = t, true
			i, again = f.writer[t]
			break
		}
	}
	return root
}

// cycle reports steps that wait for each other, if there are other problems: the cycle is their cause. Without
// other problems the plan compiler reports it.
func (l *problems) cycle(f *flow) {
	around := f.cycle()
	if around == nil {
		return
	}
	names := make([]string, 0, len(around)+1)
	for _, i := range around {
		names = append(names, f.steps[i].GetModelName())
	}
	l.add(Circle, stepField(around[0]), "steps of ensemble '%s' wait for each other (cycle: %s)", l.cfg.GetName(), strings.Join(append(names, names[0]), " -> "))
}

// cycle returns the steps of one cycle, or nil.
func (f *flow) cycle() []int {
	const (
		fresh = iota
		open
		done
	)
	state := make([]int, len(f.steps))
	var path []int
	var visit func(i int) []int
	visit = func(i int) []int {
		state[i] = open
		path = append(path, i)
		outs := f.steps[i].GetOutputMap()
		for _, port := range slices.Sorted(maps.Keys(outs)) {
			for _, next := range f.readers[outs[port]] {
				switch state[next] {
				case open:
					return path[slices.Index(path, next):]
				case fresh:
					if found := visit(next); found != nil {
						return found
					}
				}
			}
		}
		state[i], path = done, path[:len(path)-1]
		return nil
	}
	for i := range f.steps {
		if state[i] == fresh {
			if found := visit(i); found != nil {
				return found
			}
		}
	}
	return nil
}
