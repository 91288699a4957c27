package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// chaos is a repository of random configurations, and the number of requests for each model.
type chaos struct {
	rng     *rand.Rand
	root    string
	models  []string
	batches map[string]int
	streams []string
	calm    bool // no client cancels, no model is reloaded

	sent, good, bad map[string]*atomic.Int64
}

// one returns one of the choices.
func one[T any](r *rand.Rand, choices ...T) T { return choices[r.IntN(len(choices))] }

func (c *chaos) write(t *testing.T, name, text string) {
	t.Helper()
	dir := filepath.Join(c.root, name, "1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.root, name, "config.pbtxt"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// policy returns a random queue policy.
func (c *chaos) policy() string {
	r := c.rng
	return fmt.Sprintf("{ timeout_action: %s default_timeout_microseconds: %d allow_timeout_override: %t max_queue_size: %d }",
		one(r, "REJECT", "DELAY"), one(r, uint64(0), 1, 1000, 50_000, 1<<63), r.IntN(2) == 0, one(r, 0, 0, 1, 16))
}

// batching returns random dynamic batching.
func (c *chaos) batching(batch int) string {
	r := c.rng
	var b strings.Builder
	b.WriteString("dynamic_batching {")
	if r.IntN(2) == 0 && batch > 1 {
		fmt.Fprintf(&b, " preferred_batch_size: %d", one(r, 2, batch))
	}
	if r.IntN(2) == 0 {
		fmt.Fprintf(&b, " max_queue_delay_microseconds: %d", one(r, 0, 1, 100, 3000))
	}
	if levels := one(r, 0, 0, 3, 4096); levels > 0 {
		fmt.Fprintf(&b, " priority_levels: %d default_priority_level: %d", levels, one(r, 1, 2, levels))
		fmt.Fprintf(&b, " priority_queue_policy { key: 1 value %s }", c.policy())
	} else if r.IntN(3) == 0 {
		b.WriteString(" preserve_ordering: true")
		if r.IntN(2) == 0 {
			b.WriteString(" default_queue_policy " + strings.Replace(c.policy(), "DELAY", "REJECT", 1))
		}
		b.WriteString(" }\n")
		return b.String()
	}
	if r.IntN(2) == 0 {
		b.WriteString(" default_queue_policy " + c.policy())
	}
	b.WriteString(" }\n")
	return b.String()
}

// model writes a random identity model.
func (c *chaos) model(t *testing.T, name string) {
	t.Helper()
	r := c.rng
	batch := one(r, 0, 1, 4, 8)
	c.batches[name] = batch
	c.models = append(c.models, name)
	var b strings.Builder
	ragged := batch > 1 && r.IntN(4) == 0
	fmt.Fprintf(&b, "backend: \"identity\" max_batch_size: %d\n", batch)
	fmt.Fprintf(&b, "input { name: \"INPUT0\" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: %t }\n", ragged)
	b.WriteString("output { name: \"OUTPUT0\" data_type: TYPE_FP32 dims: -1 }\n")
	if ragged {
		b.WriteString("batch_output { target_name: \"OUTPUT0\" kind: BATCH_SCATTER_WITH_INPUT_SHAPE source_input: \"INPUT0\" }\n")
	}
	pad := false
	if r.IntN(3) > 0 {
		b.WriteString(c.batching(batch))
		pad = batch > 1 && !ragged && r.IntN(4) == 0
	}
	if pad {
		b.WriteString(`parameters { key: "pad.INPUT0" value { string_value: "0" } } parameters { key: "unpad.OUTPUT0" value { string_value: "INPUT0" } }` + "\n")
	}
	if r.IntN(2) == 0 {
		b.WriteString(`parameters { key: "execute_delay_ms" value { string_value: "1" } }` + "\n")
	}
	limit := ""
	if r.IntN(2) == 0 {
		limit = fmt.Sprintf("rate_limiter { priority: %d resources { name: \"R\" count: %d } }", r.IntN(4), r.IntN(3)+1)
	}
	fmt.Fprintf(&b, "instance_group { count: %d kind: KIND_CPU %s }\n", one(r, 1, 1, 2, 4), limit)
	if r.IntN(4) == 0 {
		b.WriteString("response_cache { enable: true }\n")
	}
	c.write(t, name, b.String())
}

// chain writes an ensemble of n random steps, one after another.
func (c *chaos) chain(t *testing.T, name string, from []string, n int) {
	t.Helper()
	r := c.rng
	batch := 4
	var steps strings.Builder
	for i := range n {
		of := one(r, from...)
		in, out := "t"+strconv.Itoa(i), "t"+strconv.Itoa(i+1)
		if i == 0 {
			in = "INPUT0"
		}
		if i == n-1 {
			out = "OUTPUT0"
		}
		fmt.Fprintf(&steps, "step { model_name: %q model_version: -1 input_map { key: \"INPUT0\" value: %q } output_map { key: \"OUTPUT0\" value: %q } }\n", of, in, out)
		batch = min(batch, c.batches[of])
	}
	if batch == 0 {
		return // ensembles of both kinds are tested elsewhere
	}
	c.batches[name] = batch
	c.models = append(c.models, name)
	cached := ""
	if r.IntN(4) == 0 {
		cached = "response_cache { enable: true }\n"
	}
	c.write(t, name, fmt.Sprintf(`platform: "ensemble" max_batch_size: %d
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
%sensemble_scheduling { max_inflight_requests: %d
%s}
`, batch, cached, one(r, 0, 1, 2), &steps))
}

// stream writes decoupled models and an ensemble of them.
func (c *chaos) stream(t *testing.T) {
	t.Helper()
	for _, name := range []string{"square0", "square1"} {
		more := ""
		if c.rng.IntN(2) == 0 {
			more = "dynamic_batching { preserve_ordering: true }\n"
		}
		c.write(t, name, "backend: \"square\" model_transaction_policy { decoupled: true }\n"+more+
			"input { name: \"IN\" data_type: TYPE_INT32 dims: 1 }\noutput { name: \"OUT\" data_type: TYPE_INT32 dims: 1 }\n")
	}
	second := one(c.rng, "square0", "square1")
	c.write(t, "squares", fmt.Sprintf(`platform: "ensemble" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
ensemble_scheduling { max_inflight_requests: %d
step { model_name: "square0" model_version: -1 input_map { key: "IN" value: "IN" } output_map { key: "OUT" value: "t" } }
step { model_name: %q model_version: -1 input_map { key: "IN" value: "t" } output_map { key: "OUT" value: "OUT" } }
}
`, one(c.rng, 0, 1, 2), second))
	c.write(t, "number", fmt.Sprintf(`backend: "identity" %s
input { name: "INPUT0" data_type: TYPE_INT32 dims: 1 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 1 }
`, one(c.rng, "", "", "max_batch_size: 4 dynamic_batching { preserve_ordering: true }", "max_batch_size: 8 dynamic_batching { default_queue_policy { max_queue_size: 1 } }",
		"max_batch_size: 2 dynamic_batching { max_queue_delay_microseconds: 500 } response_cache { enable: true }")))
	for name, inner := range map[string]string{"numbers": "square1", "outer": "squares"} {
		c.write(t, name, fmt.Sprintf(`platform: "ensemble" model_transaction_policy { decoupled: true }
input { name: "IN" data_type: TYPE_INT32 dims: 1 }
output { name: "OUT" data_type: TYPE_INT32 dims: 1 }
ensemble_scheduling { max_inflight_requests: %d
step { model_name: "number" model_version: -1 input_map { key: "INPUT0" value: "IN" } output_map { key: "OUTPUT0" value: "t" } }
step { model_name: %q model_version: -1 input_map { key: "IN" value: "t" } output_map { key: "OUT" value: "u" } }
step { model_name: "number" model_version: -1 input_map { key: "INPUT0" value: "u" } output_map { key: "OUTPUT0" value: "OUT" } }
}
`, one(c.rng, 0, 1, 2), inner))
	}
	c.streams = []string{"squares", "square0", "numbers", "outer"}
}

func newChaos(t *testing.T, seed uint64, calm bool) *chaos {
	t.Helper()
	c := &chaos{
		rng: rand.New(rand.NewPCG(seed, 1)), root: t.TempDir(), batches: map[string]int{}, calm: calm, //nolint:gosec // a test's choices
		sent: map[string]*atomic.Int64{}, good: map[string]*atomic.Int64{}, bad: map[string]*atomic.Int64{},
	}
	for i := range 5 {
		c.model(t, "model"+strconv.Itoa(i))
	}
	plain := slices.Clone(c.models)
	c.chain(t, "short", plain, 2)
	c.chain(t, "long", plain, 5)
	c.chain(t, "nested", c.models, 3)
	c.stream(t)
	for _, m := range append(slices.Clone(c.models), c.streams...) {
		c.sent[m], c.good[m], c.bad[m] = new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)
	}
	return c
}

// print shows the configurations of a test that failed.
func (c *chaos) print(t *testing.T) {
	t.Helper()
	if !t.Failed() {
		return
	}
	found, _ := filepath.Glob(c.root + "/*/config.pbtxt") // the pattern is sound
	for _, path := range found {
		text, err := os.ReadFile(path)
		t.Logf("%s: %v\n%s", path, err, text)
	}
}
