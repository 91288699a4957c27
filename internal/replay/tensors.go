package replay

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/internal/tensordiff"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/capture"
)

// instance is one tensor: a step has one for each response of the decoupled steps before it.
type instance struct {
	subRun int32
	read   func() (*tensordiff.Tensor, error)
}

// group is the tensors of one output of a step, or of one output of the response, in the order of their sub-runs.
type group struct {
	step, tensor string
	node         int32
	list         []instance
}

// groupKey identifies a group.
type groupKey struct{ step, tensor string }

// instanceOf returns tensor i of a file.
func instanceOf(f *capture.File, i int) instance {
	x := &f.List[i]
	return instance{x.SubRun, func() (*tensordiff.Tensor, error) {
		c := &tensordiff.Tensor{DType: tensor.ParseDType(x.Type), Shape: x.Shape}
		if !x.HasContent {
			return c, nil
		}
		var err error
		if c.Data, c.Whole, err = f.Content(i); c.Data == nil {
			c.Data = []byte{} // which is known
		}
		return c, err
	}}
}

// groups returns the tensors of a file, in groups. names returns the groups of tensor i.
func groups(f *capture.File, names func(i int) []groupKey) []*group {
	var list []*group
	at := map[groupKey]*group{}
	for i := range f.List {
		x := &f.List[i]
		for _, key := range names(i) {
			g := at[key]
			if g == nil {
				g = &group{step: key.step, tensor: key.tensor, node: x.Node}
				at[key], list = g, append(list, g)
			}
			g.list = append(g.list, instanceOf(f, i))
		}
	}
	for _, g := range list {
		slices.SortStableFunc(g.list, func(a, b instance) int { return cmp.Compare(a.subRun, b.subRun) })
	}
	slices.SortStableFunc(list, func(a, b *group) int { return cmp.Compare(uint32(a.node), uint32(b.node)) }) //nolint:gosec // -1, the response, is the last
	return list
}

// stepsOf returns the tensors of every step.
func stepsOf(f *capture.File) []*group {
	return groups(f, func(i int) []groupKey {
		x := &f.List[i]
		if x.Step == tracing.RequestStep {
			return nil
		}
		return []groupKey{{x.Step, x.Tensor}}
	})
}

// outputGroups returns the outputs of the response, under the names of the steps that wrote them. outputs has their names in the response.
func outputGroups(f *capture.File) (list []*group, outputs []string) {
	producer := map[string]groupKey{}
	for i := range f.List {
		for _, name := range outputsOf(&f.List[i]) {
			producer[name] = groupKey{f.List[i].Step, f.List[i].Tensor}
		}
	}
	list = groups(f, func(i int) (keys []groupKey) {
		for _, name := range outputsOf(&f.List[i]) {
			keys = append(keys, groupKey{tracing.ResponseStep, name})
		}
		return keys
	})
	for _, g := range list {
		outputs = append(outputs, g.tensor)
		p := producer[g.tensor]
		g.step, g.tensor = p.step, p.tensor
	}
	return list, outputs
}

// compareSteps compares all tensors of a captured request with those of its replay.
func (r *replayer) compareSteps(f, now *capture.File, res *Result) error {
	replayed := map[groupKey]*group{}
	for _, g := range stepsOf(now) {
		replayed[groupKey{g.step, g.tensor}] = g
	}
	list, outputs := outputGroups(now)
	for i, g := range list {
		key := groupKey{tracing.ResponseStep, outputs[i]} // for captures of responses from a cache
		if replayed[key] == nil {
			replayed[key] = g
		}
	}
	partly := f.Status != succeeded || now.Status != succeeded
	for _, want := range stepsOf(f) {
		got, loose := replayed[groupKey{want.step, want.tensor}], want.step == tracing.ResponseStep
		if got == nil {
			got, loose = sameOutput(f, want, replayed), true
		}
		if err := r.compareGroup(want, got, partly, loose, res); err != nil {
			return err
		}
	}
	return nil
}

// sameOutput returns what the response has in place of a tensor whose step did not execute: the response came from the server's
// response cache, or another step writes the output now.
func sameOutput(f *capture.File, want *group, replayed map[groupKey]*group) *group {
	for i := range f.List {
		if x := &f.List[i]; x.Step == want.step && x.Tensor == want.tensor {
			for _, name := range outputsOf(x) {
				if g := replayed[groupKey{tracing.ResponseStep, name}]; g != nil {
					return g
				}
			}
		}
	}
	return &group{}
}

// compareResponses compares the captured outputs with those of responses.
func (r *replayer) compareResponses(f *capture.File, responses []*client.Response, sent error, res *Result) error {
	if sent != nil && f.Status == succeeded {
		return nil
	}
	list, outputs := outputGroups(f)
	most := longest(list)
	for i, want := range list {
		if f.Sent != nil && len(f.Sent.Outputs) > 0 && !slices.Contains(f.Sent.Outputs, outputs[i]) {
			continue
		}
		got := &group{}
		for n, resp := range responses {
			if t := resp.Output(outputs[i]); t != nil {
				c := &tensordiff.Tensor{DType: t.DType, Shape: t.Shape, Data: t.Data, Whole: true}
				got.list = append(got.list, instance{int32(n + 1), func() (*tensordiff.Tensor, error) { return c, nil }}) //nolint:gosec // there are few
			}
		}
		if len(want.list) < most && len(got.list) > 0 && f.Status == succeeded {
			if err := r.spread(want, got); err != nil {
				return err
			}
		}
		if err := r.compareGroup(want, got, f.Status != succeeded, true, res); err != nil {
			return err
		}
	}
	return nil
}

// longest returns the number of tensors of the longest group: the number of responses.
func longest(list []*group) (most int) {
	for _, g := range list {
		most = max(most, len(g.list))
	}
	return most
}

// spread repeats the tensors of an output that several responses share: its step ran once for the request, or once for a response of an
// outer stream. got has the output of every response. Each is taken for the first tensor that it can be in the order of the captured ones.
func (r *replayer) spread(want, got *group) error {
	var list []instance
	at := 0
	for i := range got.list {
		fit := at
		for n := at; n < len(want.list); n++ {
			d, _, err := r.comparePair(&want.list[n], &got.list[i], true)
			if err != nil {
				return err
			}
			if d == nil {
				fit = n
				break
			}
		}
		at = fit
		list = append(list, want.list[at])
	}
	want.list = list
	return nil
}

// outputs returns the outputs of the last response with their captured contents.
func (r *replayer) outputs(f *capture.File, responses []*client.Response) (out []client.Tensor, err error) {
	if len(responses) == 0 {
		return nil, nil
	}
	last := responses[len(responses)-1]
	list, names := outputGroups(f)
	for i, g := range list {
		t := last.Output(names[i])
		if t == nil || r.ignored(g.step, g.tensor) || unordered(g) || len(g.list) > 1 && len(g.list) < longest(list) {
			continue // which of the tensors is the last response's is not known
		}
		c, err := g.list[len(g.list)-1].read()
		if err != nil {
			return nil, err
		}
		if c.Whole {
			out = append(out, client.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: c.Data})
		}
	}
	return out, nil
}

// compareGroup compares the tensors of an output. partly says that the request failed, so that tensors may be missing.
func (r *replayer) compareGroup(want, got *group, partly, loose bool, res *Result) error {
	if r.ignored(want.step, want.tensor) {
		return nil
	}
	add := func(d *tensordiff.Difference, response int) {
		res.Differences = append(res.Differences, Difference{Step: want.step, Tensor: want.tensor, Response: response, Difference: *d})
	}
	switch {
	case len(got.list) == 0 && !partly:
		add(difference(KindMissing, describe(want), "no tensor"), 0)
		return nil
	case len(got.list) != len(want.list) && !partly:
		add(difference(KindResponses, table.Count(len(want.list), "response"), table.Count(len(got.list), "response")), 0)
	}
	differences, err := r.comparePairs(want, got, loose, res)
	if err != nil {
		return err
	}
	if unordered(want) {
		if differences, err = r.match(want, got, differences, loose); err != nil {
			return err
		}
	}
	for i, d := range differences {
		switch {
		case d == nil:
		case len(want.list) > 1:
			add(d, i+1)
		default:
			add(d, 0)
		}
	}
	return nil
}

// comparePairs compares the tensors at the same places of two groups, and returns the difference at each place, or nil.
func (r *replayer) comparePairs(want, got *group, loose bool, res *Result) ([]*tensordiff.Difference, error) {
	list := make([]*tensordiff.Difference, min(len(want.list), len(got.list)))
	for i := range list {
		d, known, err := r.comparePair(&want.list[i], &got.list[i], loose)
		if err != nil {
			return nil, err
		}
		list[i] = d
		if res.Tensors++; !known {
			res.Unknown++
		}
	}
	return list, nil
}

// comparePair compares two tensors. known is false if the contents of one are not known: then only types and shapes are compared.
func (r *replayer) comparePair(want, got *instance, loose bool) (d *tensordiff.Difference, known bool, err error) {
	a, err := want.read()
	if err != nil {
		return nil, false, err
	}
	b, err := got.read()
	if err != nil {
		return nil, false, err
	}
	if known = a.Data != nil && b.Data != nil; !known {
		a.Data, b.Data = nil, nil
	}
	return tensordiff.Compare(a, b, r.Tolerance(a.DType), loose), known, nil
}

// unordered reports whether the tensors of a group are those of decoupled steps behind decoupled steps. Their sub-runs are counted in
// the order in which they start, which is another one every time.
func unordered(g *group) bool { return len(g.list) > 1 && g.list[0].subRun > 1 }

// match removes the differences of tensors that only have changed places.
func (r *replayer) match(want, got *group, differences []*tensordiff.Difference, loose bool) ([]*tensordiff.Difference, error) {
	var free []int // the places in got that differ
	for i, d := range differences {
		if d != nil {
			free = append(free, i)
		}
	}
	for i, d := range differences {
		if d == nil {
			continue
		}
		for n, at := range free {
			other, _, err := r.comparePair(&want.list[i], &got.list[at], loose)
			if err != nil {
				return nil, err
			}
			if other == nil {
				differences[i], free = nil, slices.Delete(free, n, n+1)
				break
			}
		}
	}
	return differences, nil
}

// describe returns the type and the shape of the first tensor of a group.
func describe(g *group) string {
	c, err := g.list[0].read()
	if err != nil {
		return "a tensor"
	}
	return fmt.Sprintf("%s %s", c.DType, tensordiff.Brackets(c.Shape))
}
