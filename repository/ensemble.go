package repository

import (
	"maps"
	"slices"

	"tutti/core/config"
	"tutti/core/infer"
	"tutti/core/status"
	"tutti/pipeline/exec"
	"tutti/pipeline/plan"
	"tutti/scheduler"
)

// compileAll compiles every ensemble that the change concerns; nested ones are
// inlined, so their order does not matter. It returns those that serve and would not
// after the change.
func (c *change) compileAll() (broken []*model) {
	c.undo()
	for _, name := range c.stale() {
		m := c.anew(name)
		c.renewed = append(c.renewed, name)
		c.next[name] = m
		for _, l := range m.lives {
			v, err := c.compile(m, l)
			if err != nil {
				m.err = err
				break // another version is made of the same
			}
			m.versions = append(m.versions, v)
			c.compiled = append(c.compiled, v)
		}
		if m.err == nil {
			continue
		}
		m.versions = nil
		for _, l := range m.lives {
			l.to(infer.Unavailable, m.err.Error())
		}
		if old := c.base.models[name]; old != nil && len(old.versions) > 0 {
			broken = append(broken, m)
		}
	}
	return broken
}

// undo takes back what compileAll did before.
func (c *change) undo() {
	for _, v := range c.compiled {
		_ = v.close() // an ensemble has nothing that fails to close
	}
	for _, name := range c.renewed { // those neither loaded nor kept are what they were
		if old := c.base.models[name]; c.loading[name] == nil && old != nil && !slices.Contains(old.versions, c.next[name].version(0)) {
			c.next[name] = old
		}
	}
	c.compiled, c.renewed = nil, nil
}

// anew returns an ensemble to be compiled, as often as it takes.
func (c *change) anew(name string) *model {
	m := *c.next[name]
	m.versions, m.lives, m.err = nil, nil, nil
	for _, n := range m.folder.versions {
		l := newLife(n)
		l.to(infer.Loading, "")
		m.lives = append(m.lives, l)
	}
	if c.loading[name] != nil {
		c.loading[name] = &m
	}
	return &m
}

// stale lists the ensembles that are loaded anew or made of what changes, sorted.
func (c *change) stale() []string {
	changed := map[string]bool{}
	for name := range c.loading {
		changed[name] = true
	}
	for _, name := range c.gone {
		changed[name] = true
	}
	stale := map[string]bool{}
	for again := true; again; {
		again = false
		for name, m := range c.next {
			if stale[name] || !m.wanted || m.folder.err != nil || !m.ensemble() {
				continue
			}
			if c.loading[name] != nil || m.usesAny(changed) {
				stale[name], changed[name], again = true, true, true
			}
		}
	}
	return slices.Sorted(maps.Keys(stale))
}

func (m *model) usesAny(names map[string]bool) bool {
	for used := range m.folder.uses {
		if names[used] {
			return true
		}
	}
	return false
}

// compile makes a version of an ensemble whose models are open.
func (c *change) compile(m *model, l *life) (*version, error) {
	p, err := plan.Compile(m.folder.cfg, l.number, lookup(c.next))
	if err != nil {
		return nil, err
	}
	if err := config.ReadLabels(p.Config, m.folder.dir, p.Signature); err != nil {
		return nil, err
	}
	v := &version{
		cfg: p.Config, sig: p.Signature, about: newDescription(p.Signature), life: l,
		stats: c.stats(m.name, l.number), temp: m.folder.temp,
	}
	targets := make([]scheduler.Scheduler, len(p.Nodes))
	for i := range p.Nodes {
		used := c.next[p.Nodes[i].Model].version(p.Nodes[i].Version)
		targets[i] = used.queue
		if !slices.Contains(v.uses, used) {
			v.uses = append(v.uses, used)
		}
	}
	for _, used := range v.uses {
		used.users.Add(1)
	}
	v.temp.use()
	v.exec = exec.New(exec.Settings{Plan: p, Targets: targets, Stats: v.stats, Workers: c.r.workers})
	return v, nil
}

// lookup answers the compiler from models.
type lookup map[string]*model

var _ plan.Lookup = lookup{}

// Model implements plan.Lookup.
func (l lookup) Model(name string, number int64) (plan.Model, error) {
	m := l[name]
	switch {
	case m == nil:
		return plan.Model{}, status.Errorf(status.NotFound, "there is no model '%s'", name)
	case !m.wanted:
		return plan.Model{}, status.Errorf(status.Unavailable, "%s", unloaded)
	case m.folder.err != nil:
		return plan.Model{}, status.Errorf(status.InvalidArg, "%w", m.folder.err)
	case m.ensemble() && number > 0 && !slices.Contains(m.folder.versions, number):
		return plan.Model{}, status.Errorf(status.InvalidArg, "there is no version %d of ensemble '%s'", number, name)
	case m.ensemble():
		return plan.Model{Signature: config.SignatureOf(m.folder.cfg), Ensemble: m.folder.cfg}, nil
	}
	v := m.version(number)
	switch {
	case v == nil && m.err != nil:
		return plan.Model{}, status.Errorf(status.Unavailable, "%w", m.err)
	case v == nil:
		return plan.Model{}, status.Errorf(status.InvalidArg, "version %d of model '%s' is not loaded", number, name)
	}
	return plan.Model{Signature: v.sig}, nil
}
