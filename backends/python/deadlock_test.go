package python

import "testing"

// TestCallGraph checks which calls between models wait, and which are refused because no instance could ever serve
// them.
func TestCallGraph(t *testing.T) {
	t.Parallel()
	w := []*worker{{}, {}, {}}
	type step struct {
		caller string
		worker int
		target string
		want   bool
	}
	tests := map[string]struct {
		instances map[string]int
		steps     []step
	}{
		"itself, the only instance": {map[string]int{"a": 1}, []step{{"a", 0, "a", false}}},
		"itself, then another's":    {map[string]int{"a": 2}, []step{{"a", 0, "a", true}, {"a", 1, "a", false}}},
		"a cycle":                   {map[string]int{"a": 1, "b": 1}, []step{{"a", 0, "b", true}, {"b", 1, "a", false}}},
		"a cycle with room":         {map[string]int{"a": 2, "b": 1}, []step{{"a", 0, "b", true}, {"b", 1, "a", true}, {"a", 2, "b", false}}},
		"a chain":                   {map[string]int{"a": 1, "b": 1, "c": 1}, []step{{"a", 0, "b", true}, {"b", 1, "c", true}, {"c", 2, "x", true}}},
		"itself in an ensemble":     {map[string]int{"a": 1}, []step{{"a", 0, "e", false}}},
		"an ensemble with room":     {map[string]int{"a": 2}, []step{{"a", 0, "e", true}, {"a", 1, "e", false}}},
		"an ensemble in another":    {map[string]int{"a": 1, "b": 1}, []step{{"b", 0, "a", true}, {"a", 1, "outer", false}}},
		"models of other backends":  {map[string]int{"a": 1}, []step{{"a", 0, "x", true}, {"a", 0, "x", true}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := callGraph{instances: map[string]int{}, ensembles: map[string][]string{}, steps: func(name string) []string {
				return map[string][]string{"e": {"x", "a"}, "outer": {"x", "inner"}, "inner": {"b"}}[name]
			}}
			for model, n := range tt.instances {
				b.set(model, n)
			}
			for i, s := range tt.steps {
				if got := b.wait(wait{s.caller, w[s.worker], s.target}); got != s.want {
					t.Fatalf("step %d: wait = %v, want %v", i, got, s.want)
				}
			}
			for _, s := range tt.steps {
				if s.want {
					b.done(wait{s.caller, w[s.worker], s.target})
				}
			}
			if len(b.waits) > 0 {
				t.Errorf("calls %v still wait", b.waits)
			}
		})
	}
}

// TestCallGraphForgets checks that a call of a worker that has ended, which the called model still executes, makes no cycle: the instance has
// another worker.
func TestCallGraphForgets(t *testing.T) {
	t.Parallel()
	b := callGraph{instances: map[string]int{"a": 1, "b": 1}, ensembles: map[string][]string{}}
	ended := &worker{}
	if call := (wait{"a", ended, "b"}); !b.wait(call) {
		t.Fatal("the first call is refused")
	}
	b.forget(ended)
	if !b.wait(wait{"b", &worker{}, "a"}) {
		t.Error("a call of the model whose worker has ended is refused")
	}
	if b.done(wait{"a", ended, "b"}); len(b.waits) != 1 {
		t.Errorf("calls %v wait, want that of model b", b.waits)
	}
}

// FuzzResponse checks that parsing any bytes as a response stays within them, and that valid parts lie within
// memory.
func FuzzResponse(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 11, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0})
	f.Add(appendError(nil, nil))
	f.Add(appendError(nil, errOver()))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a response
		r := reader{b: b}
		a.read(&r)
		if r.at > len(b) {
			t.Errorf("read %d of %d bytes", r.at, len(b))
		}
		for i := range a.parts {
			p := &a.parts[i]
			if !p.valid(64) {
				continue
			}
			if n := p.shape.Elements(); p.off+p.size > 64 || n < 0 || n > 64 {
				t.Errorf("part %+v is not within 64 bytes", p)
			}
		}
	})
}
