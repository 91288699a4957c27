package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/inspect"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/tracing/ring"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/steps"
	"github.com/tutti-server/tutti/steps/tokenize"
)

// guardInProcess lists the paths without sockets.
func guardInProcess(t *testing.T) []guardPath {
	t.Helper()
	s := &schedBench{workers: scheduler.NewWorkers(), alloc: tensor.NewPool()}
	t.Cleanup(s.workers.Close)
	through := func(nodes int, target func(*config.Signature) scheduler.Scheduler) infer.Inferer {
		x, err := s.executor(chain(nodes), target)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	newPath := func(name string, x infer.Inferer) guardPath {
		c := s.client(x, "t0")
		t.Cleanup(c.close)
		return newGuardPath(name, c.infer)
	}
	three := through(3, s.inline)
	return []guardPath{
		newPath("chain of 3", three),
		newPath("chain of 100", through(100, s.inline)),
		newPath("chain of 3 batching models", through(3, func(sig *config.Signature) scheduler.Scheduler { return s.batching(sig, noop{}) })),
		newGuardPath("a batching model, one caller", guardBatcher(t, s)),
		newPath("chain of 3, every request traced", guardTraced(t, three)),
		newGuardPath("tokenize a text", guardTokenize(t)),
	}
}

// guardBatcher is one caller of a model with dynamic batching, without an executor.
func guardBatcher(t *testing.T, s *schedBench) func(n int) {
	t.Helper()
	queue := s.batching(schedSignature(1), noop{})
	input, err := tensor.New(s.alloc, tensor.FP32, tensor.Of(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(input.Release)
	var left sync.WaitGroup
	j, loop := newJob(t.Context(), &left), scheduler.NewRunLoop(s.workers)
	over := func() bool { return true }
	return func(n int) {
		for range n {
			left.Add(1)
			j.In[0] = input.Retain()
			loop.Tick(0)
			loop.Stage(queue, &j.Task)
			loop.Dispatch()
			loop.RunUntil(over)
			left.Wait()
		}
	}
}

// guardTraced returns an executor that records and stores every request, as a slow or failed one would be.
func guardTraced(t *testing.T, x infer.Inferer) infer.Inferer {
	t.Helper()
	store, err := ring.New(64<<20, inspect.Sampling{Failed: true, Slow: true, Every: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	tracer, err := tracing.New(tracing.Options{Sinks: []tracing.Sink{store}, All: true})
	if err != nil {
		t.Fatal(err)
	}
	return tracedInferer{x, tracer}
}

const guardText = "The committee will meet again on Thursday to vote on the plan, and nobody knows what comes of it."

// guardTokenize runs the step on a text whose words are in its cache.
func guardTokenize(t *testing.T) func(n int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tokenizer.json"), guardVocabulary(t), 0o600); err != nil {
		t.Fatal(err)
	}
	f := tokenize.NewFactory()
	params, err := f.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	step, err := f.New(&steps.Settings{Model: "tokenizer", Dir: dir, ModelDir: dir, MaxBatch: 8, Params: params})
	if err != nil {
		t.Fatal(err)
	}
	pool, data := tensor.NewPool(), tensor.AppendBytes(nil, guardText)
	in, err := tensor.NewBytes(pool, tensor.Of(1, 1), len(data))
	if err != nil {
		t.Fatal(err)
	}
	copy(in.Bytes(), data)
	batch := &backends.Batch{
		Requests: []backends.Request{{Meta: &infer.Meta{}, Ctx: context.Background(), Rows: 1}},
		Rows:     1, In: []tensor.Tensor{in, {}}, Out: make([]tensor.Tensor, 3), Allocator: pool,
	}
	return func(n int) {
		for range n {
			fail(step.Run(t.Context(), batch))
		}
	}
}

// guardVocabulary returns a tokenizer file whose words are letters and some pairs of letters.
func guardVocabulary(t *testing.T) []byte {
	t.Helper()
	vocabulary := map[string]int{"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, ".": 3, ",": 4}
	add := func(piece string) {
		if _, ok := vocabulary[piece]; !ok {
			vocabulary[piece] = len(vocabulary)
		}
	}
	for c := 'a'; c <= 'z'; c++ {
		add(string(c))
		add("##" + string(c))
	}
	for word := range strings.FieldsSeq(strings.ToLower(guardText)) {
		if len(word) < 5 {
			add(word)
		}
	}
	var b bytes.Buffer
	err := json.NewEncoder(&b).Encode(map[string]any{
		"version": "1.0", "added_tokens": []any{},
		"normalizer":    map[string]any{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": nil, "lowercase": true},
		"pre_tokenizer": map[string]any{"type": "BertPreTokenizer"},
		"post_processor": map[string]any{
			"type": "BertProcessing", "sep": []any{"[SEP]", 2}, "cls": []any{"[CLS]", 1},
		},
		"model": map[string]any{
			"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100, "vocab": vocabulary,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
