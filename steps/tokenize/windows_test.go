package tokenize_test

import (
	"bytes"
	"encoding/json"
	"hash/crc32"
	"strconv"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/tokenizer/tokenizertest"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/tokenize"
)

// windowsGold is a line of windows.jsonl.gz; see testdata/make_windows.py.
type windowsGold struct {
	Name   string
	Patch  map[string]json.RawMessage
	Pairs  []string
	Picked []int
	Params map[string]string
	Shape  [2]int64
	Sums   map[string]uint32
}

// windowNames are the outputs in the step's order.
func windowNames() []string {
	names := []string{"input_ids", "attention_mask", "token_type_ids", "overflow_to_sample_mapping"}
	for _, p := range moreOutputs() {
		names = append(names, p.Name)
	}
	return names
}

// TestWindowsGold compares windows with those of transformers.
func TestWindowsGold(t *testing.T) {
	t.Parallel()
	entries, cases := tokenizertest.Corpus(t), 0
	for d := json.NewDecoder(bytes.NewReader(tokenizertest.Gunzip(t, "testdata/windows.jsonl.gz"))); d.More(); cases++ {
		var g windowsGold
		if err := d.Decode(&g); err != nil {
			t.Fatal(err)
		}
		t.Run(g.Name+" "+strconv.Itoa(cases), func(t *testing.T) {
			t.Parallel()
			g.compare(t, entries)
		})
	}
	if cases < 50 {
		t.Errorf("%d cases", cases)
	}
}

// compare runs the texts as one request that has another one before it and one behind.
func (g *windowsGold) compare(t *testing.T, entries [][]string) {
	t.Helper()
	f, dir := tokenize.NewFactory(), t.TempDir()
	writeFile(t, dir+"/tokenizer.json", tokenizertest.Replace(t, tokenizertest.Stored(t, g.Name), g.Patch))
	params, err := f.Resolve(g.Params)
	if err != nil {
		t.Fatal(err)
	}
	settings := &steps.Settings{Model: "m", ModelDir: dir, Dir: dir, MaxBatch: 64, Params: params, Outputs: moreOutputs()}
	step, err := f.New(settings)
	if err != nil {
		t.Fatal(err)
	}
	texts, pairs := []string{"before"}, []string{"before"}
	for i, at := range g.Picked {
		if text := entries[at][0]; g.Pairs != nil {
			texts, pairs = append(texts, g.Pairs[i]), append(pairs, text)
		} else {
			texts = append(texts, text)
		}
	}
	b := textBatch(t, append(texts, "behind")...)
	b.Out = make([]tensor.Tensor, len(windowNames()))
	if g.Pairs != nil {
		b.In[1] = textBatch(t, append(pairs, "behind")...).In[0]
	}
	n := len(g.Picked)
	b.Requests = []backends.Request{{Ctx: t.Context(), Rows: 1}, {Ctx: t.Context(), First: 1, Rows: n}, {Ctx: t.Context(), First: 1 + n, Rows: 1}}
	if err := step.Run(t.Context(), b); err != nil || b.Requests[1].Err != nil {
		t.Fatal(err, b.Requests[1].Err)
	}
	sig, err := f.Signature(settings)
	if err != nil {
		t.Fatal(err)
	}
	g.compareOutputs(t, sig.Outputs, b.Requests[1].Out)
	for i := range b.Requests {
		tensor.ReleaseAll(b.Requests[i].Out)
	}
}

func (g *windowsGold) compareOutputs(t *testing.T, ports []config.Port, out []tensor.Tensor) {
	t.Helper()
	for port, name := range windowNames() {
		if ports[port].Name != name || !ports[port].Unchecked {
			t.Errorf("output %d is %+v, expected '%s', which is free", port, ports[port], name)
		}
		values := tensor.Slice[int64](&out[port])
		listed, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		if port == 0 && !out[port].Shape.Equal(tensor.Of(g.Shape[:]...)) {
			t.Errorf("input_ids have shape %s, expected %v", out[port].Shape, g.Shape)
		}
		if crc32.ChecksumIEEE(listed) != g.Sums[name] {
			t.Errorf("'%s' differs from that of transformers, %v", name, g.Params)
		}
	}
}
