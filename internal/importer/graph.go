package importer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// wire is a tensor of an ensemble. Its name is chosen when the ensemble is complete.
type wire struct {
	name  string
	port  port
	when  *condition // that of the step that writes it; nil for all rows
	fixed bool       // the name is a client's
}

// port is an input or output. A type or dims that are not known are empty.
type port struct {
	name  string
	dtype string // as in config.pbtxt
	dims  []int64
	known bool
}

// same reports whether two ports may stand for each other.
func (p port) same(q port) bool {
	return !p.known || !q.known || p.dtype == q.dtype && slices.Equal(p.dims, q.dims)
}

// signature is the tensors of a model.
type signature struct{ in, out []port }

func find(list []port, name string) (port, bool) {
	i := slices.IndexFunc(list, func(p port) bool { return p.name == name })
	if i < 0 {
		return port{}, false
	}
	return list[i], true
}

// condition is an expression; %s stands for the names of its wires.
type condition struct {
	text  string
	wires []*wire
}

// String returns the expression with the names of its tensors.
func (c *condition) String() string {
	names := make([]any, len(c.wires))
	for i, w := range c.wires {
		names[i] = w.name
	}
	return fmt.Sprintf(c.text, names...)
}

// negated returns the opposite of a condition.
func (c *condition) negated() *condition { return &condition{"!(" + c.text + ")", c.wires} }

// both returns the condition that two conditions hold; either may be nil.
func both(a, b *condition) *condition {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return &condition{"(" + a.text + ") && (" + b.text + ")", append(slices.Clone(a.wires), b.wires...)}
}

// of returns the condition of a step whose inputs have the rows of another condition: none if these are its own rows. Else it reads
// one of the inputs, so that its rows are a part of theirs.
func (c *condition) of(rows *condition, in []link) *condition {
	if c == nil || rows == c {
		return nil
	}
	if rows == nil {
		return c
	}
	i := slices.IndexFunc(in, func(l link) bool { return l.wire.when == rows })
	return &condition{"size(%s) >= 0 && (" + c.text + ")", append([]*wire{in[i].wire}, c.wires...)}
}

// step is a step of an ensemble.
type step struct {
	model   string
	version int64
	in, out []link
	when    *condition
	demux   bool // its outputs are divided into items
}

// link connects a tensor of a model with one of the ensemble.
type link struct {
	port string
	wire *wire
}

// joined is a tensor that is the first of others that has a row.
type joined struct {
	to   *wire
	from []*wire
}

// ensemble is an ensemble that is being built.
type ensemble struct {
	name    string
	steps   []*step
	in, out []*wire
	joins   []joined
	gathers []gathered
	params  [][2]string
	wires   []*wire
	comment string
}

// wire adds a tensor with a name that may change if it is taken.
func (e *ensemble) wire(name string, p port, when *condition) *wire {
	w := &wire{name: name, port: p, when: when}
	e.wires = append(e.wires, w)
	return w
}

// input returns the input of a name, which it adds if it is new.
func (e *ensemble) input(name string, p port) (*wire, bool) {
	for _, w := range e.in {
		if w.name == name {
			ok := w.port.same(p)
			if !w.port.known {
				w.port = p
			}
			return w, ok
		}
	}
	w := e.wire(name, p, nil)
	w.fixed = true
	e.in = append(e.in, w)
	return w, true
}

// output makes a tensor an output of the ensemble. A tensor that is an input, or an output already, is no other output.
func (e *ensemble) output(w *wire, name string) bool {
	if w.fixed {
		return w.name == name && slices.Contains(e.out, w)
	}
	if slices.ContainsFunc(e.out, func(o *wire) bool { return o.name == name }) {
		return false
	}
	w.name, w.fixed = name, true
	e.out = append(e.out, w)
	return true
}

// name makes the names of the ensemble's tensors unique.
func (e *ensemble) nameWires() {
	taken := map[string]bool{}
	for _, w := range e.wires {
		if w.fixed {
			taken[w.name] = true
		}
	}
	for _, w := range e.wires {
		if w.fixed {
			continue
		}
		base := identifier(w.name)
		w.name = base
		for i := 2; taken[w.name]; i++ {
			w.name = base + "_" + strconv.Itoa(i)
		}
		taken[w.name] = true
	}
}

// identifier returns a name that an expression can read. For example, "step-1.out" becomes "step_1_out".
func identifier(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name)
}

// isIdentifier reports whether an expression can read a tensor of this name.
func isIdentifier(name string) bool {
	return name != "" && identifier(name) == name && (name[0] < '0' || name[0] > '9')
}

// stepKey returns how parameters name a step: by its model, or by its position where the ensemble has the model twice.
func (e *ensemble) stepKey(i int) string {
	for k, s := range e.steps {
		if k != i && s.model == e.steps[i].model {
			return strconv.Itoa(i)
		}
	}
	return e.steps[i].model
}

// cycle returns the models of steps that wait for each other; nil for none.
func (e *ensemble) cycle() (models []string) {
	written, done := map[*wire]bool{}, make([]bool, len(e.steps))
	for _, w := range e.in {
		written[w] = true
	}
	for progress := true; progress; {
		progress = false
		for i, s := range e.steps {
			if !done[i] && !slices.ContainsFunc(s.in, func(l link) bool { return !written[l.wire] }) {
				for _, l := range s.out {
					written[l.wire] = true
				}
				done[i], progress = true, true
			}
		}
		for _, g := range e.gathers {
			if !written[g.to] && written[g.from] {
				written[g.to], progress = true, true
			}
		}
		for _, j := range e.joins {
			if !written[j.to] && !slices.ContainsFunc(j.from, func(w *wire) bool { return !written[w] }) {
				written[j.to], progress = true, true
			}
		}
	}
	for i, s := range e.steps {
		if !done[i] {
			models = append(models, s.model)
		}
	}
	return models
}

// builder makes the repository.
type builder struct {
	Settings
	*reader

	ctx        context.Context //nolint:containedctx // of one call of Import
	result     *Result
	ensembles  []*ensemble
	models     []*model
	signatures map[string]*signature
	unknown    map[string]value // models whose tensors must be known and are not, with the first place that needs them
}

// note reports what did not carry over.
func (b *builder) note(v value, what, format string, args ...any) {
	line := 0
	if v.n != nil {
		line = v.n.Line
	}
	b.result.Notes = append(b.result.Notes, Note{line, v.path, what, fmt.Sprintf(format, args...)})
}

// model is a model that is no ensemble.
type model struct {
	name       string
	remote     string // HOST:PORT; empty for a model with files
	far        string // the name of a remote model, if it is another
	sig        *signature
	from       string
	configText string // the rest of its configuration
}

// remote adds a model that another server executes, unless it is there.
func (b *builder) remote(name, endpoint, far string, sig *signature) {
	if slices.ContainsFunc(b.models, func(m *model) bool { return m.name == name }) {
		return
	}
	if far == name {
		far = ""
	}
	b.models = append(b.models, &model{name: name, remote: endpoint, far: far, sig: sig})
}

// prune removes tensors that nothing reads from the outputs of steps, steps that then have none, and inputs that no step reads.
func (b *builder) prune(at value, e *ensemble) {
	for changed := true; changed; {
		changed = false
		read := e.read()
		e.steps = slices.DeleteFunc(e.steps, func(s *step) bool {
			s.out = slices.DeleteFunc(s.out, func(l link) bool { return !read[l.wire] })
			if len(s.out) > 0 {
				return false
			}
			changed = true
			b.note(at, "step '"+s.model+"' of '"+e.name+"'", "nothing reads its outputs, and the response has none of them: it is left out")
			return true
		})
	}
	read := e.read()
	e.in = slices.DeleteFunc(e.in, func(w *wire) bool {
		if !read[w] {
			b.note(at, "input '"+w.name+"' of '"+e.name+"'", "no step reads it: it is left out")
		}
		return !read[w]
	})
}

// read returns the tensors that something reads.
func (e *ensemble) read() map[*wire]bool {
	read := map[*wire]bool{}
	for _, w := range e.out {
		read[w] = true
	}
	for _, j := range e.joins {
		for _, w := range j.from {
			read[w] = true
		}
	}
	for _, g := range e.gathers {
		read[g.from] = true
	}
	for _, s := range e.steps {
		for _, l := range s.in {
			read[l.wire] = true
		}
		if s.when != nil {
			for _, w := range s.when.wires {
				read[w] = true
			}
		}
	}
	return read
}

// add adds an ensemble.
func (b *builder) add(at value, e *ensemble) {
	if models := e.cycle(); models != nil {
		b.fail(at, "the pipeline '%s' has a cycle through %s, expected a graph in which every step reads what earlier ones write", e.name, strings.Join(models, ", "))
		return
	}
	if len(b.errs) == 0 && len(b.unknown) == 0 {
		b.prune(at, e)
	}
	if len(e.in) == 0 || len(e.out) == 0 {
		if len(b.errs) == 0 && len(b.unknown) == 0 {
			b.fail(at, "the pipeline '%s' has no inputs or no outputs", e.name)
		}
		return
	}
	if slices.ContainsFunc(b.ensembles, func(o *ensemble) bool { return o.name == e.name }) {
		b.fail(at, "there are two pipelines '%s'", e.name)
		return
	}
	b.ensembles = append(b.ensembles, e)
}

// finish renders the folders and sorts the notes.
func (b *builder) finish() {
	slices.SortStableFunc(b.result.Notes, func(a, c Note) int {
		return cmp.Or(cmp.Compare(a.Line, c.Line), strings.Compare(a.Place, c.Place), strings.Compare(a.What, c.What))
	})
	for _, e := range b.ensembles {
		if slices.ContainsFunc(b.models, func(m *model) bool { return m.name == e.name }) {
			b.note(value{}, "pipeline '"+e.name+"'", "it has the name of a model, which a repository cannot have twice: it is '%s_pipeline' here", e.name)
			e.name += "_pipeline"
		}
		b.result.Ensembles = append(b.result.Ensembles, e.name)
		b.result.folders = append(b.result.folders, &folder{name: e.name, text: e.text()})
	}
	for _, m := range b.models {
		b.result.Models = append(b.result.Models, m.name)
		b.result.folders = append(b.result.folders, &folder{name: m.name, text: m.text(), from: m.from})
	}
}
