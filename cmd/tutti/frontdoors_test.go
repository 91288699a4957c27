package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// textBackend is a backend whose models read texts, for the routes of other servers. Each output is computed by its name:
//
//   - dense: the number of words, the length in bytes, the last word if it is a number, and 1
//   - count: the number of words; weights: how many words have each length below 8; indices: the numbers from 0
//   - vectors, mask: one vector for each of at most three words: its length, and 1
//   - score: how many words the text shares with the query
//   - ids, special, offsets: the words are tokens; the first one is special
//
// The text "poison" fails the batch, and "nan" has that embedding. The text "wait" waits for a token of the gate.
type textBackend struct {
	entered, gate chan struct{}
}

func (x *textBackend) factory() backends.Factory {
	return backends.Factory{Name: "texts", New: func(backends.Options) (backends.Backend, error) {
		return backends.Loader(func(_ context.Context, s backends.Settings) (backends.Model, error) {
			sig := config.ModelOf(config.SignatureOf(s.Config))
			sig.Model, sig.Version = s.Model, s.Version
			return &textModel{backends.Ports{Sig: sig}, x}, nil
		}), nil
	}}
}

type textModel struct {
	backends.Ports

	texts *textBackend
}

func (m *textModel) NewInstance(context.Context, tensor.Place) (backends.Instance, error) {
	return &textInstance{m}, nil
}

type textInstance struct{ *textModel }

func (*textInstance) Close() error { return nil }

// column returns the texts of an input. Rows of token ids are texts of numbers.
func (i *textInstance) column(b *backends.Batch, name string) (list []string) {
	for port := range b.In {
		t := &b.In[port]
		switch {
		case i.Sig.Inputs[port].Name != name || !t.Present():
		case t.DType == tensor.Bytes:
			for rest := t.Bytes(); len(rest) > 0; {
				var text []byte
				text, rest, _ = tensor.NextBytes(rest)
				list = append(list, string(text))
			}
		default:
			all, width := tensor.Slice[int64](t), int(t.Shape.Dim(1))
			for at := 0; at < len(all); at += width {
				list = append(list, strings.Trim(fmt.Sprint(all[at:at+width]), "[]"))
			}
		}
	}
	return list
}

func (i *textInstance) Execute(_ context.Context, b *backends.Batch) error {
	rows := append(i.column(b, "TEXT"), i.column(b, "IDS")...)
	queries := i.column(b, "QUERY")
	for _, text := range rows {
		switch text {
		case "poison":
			return errors.New("the batch has a poisoned text")
		case "wait":
			i.texts.entered <- struct{}{}
			<-i.texts.gate
		}
	}
	if b.Responses != nil {
		return i.stream(b, rows)
	}
	for port := range i.Sig.Outputs {
		if err := i.output(b, port, rows, queries); err != nil {
			return err
		}
	}
	return nil
}

// output computes an output.
func (i *textInstance) output(b *backends.Batch, port int, rows, queries []string) error {
	var floats []float32
	var integers []int64
	dims := []int64{int64(len(rows))}
	for n, text := range rows {
		words := strings.Fields(text)
		switch i.Sig.Outputs[port].Name {
		case "dense":
			last := 0.0
			if len(words) > 0 {
				last, _ = strconv.ParseFloat(words[len(words)-1], 32)
			}
			if text == "nan" {
				last = math.NaN()
			}
			floats, dims = append(floats, float32(len(words)), float32(len(text)), float32(last), 1), []int64{dims[0], 4}
		case "count":
			integers, dims = append(integers, int64(len(words))), []int64{dims[0], 1}
		case "weights":
			of := make([]float32, 8)
			for _, w := range words {
				of[min(len(w), 7)]++
			}
			floats, dims = append(floats, of...), []int64{dims[0], 8}
		case "indices":
			integers, dims = append(integers, 0, 1, 2, 3, 4, 5, 6, 7), []int64{dims[0], 8}
		case "vectors":
			of := make([]float32, 6)
			for n, w := range words[:min(3, len(words))] {
				of[2*n], of[2*n+1] = float32(len(w)), 1
			}
			floats, dims = append(floats, of...), []int64{dims[0], 3, 2}
		case "mask":
			for n := range 3 {
				integers = append(integers, int64(min(1, max(0, len(words)-n))))
			}
			dims = []int64{dims[0], 3}
		case "score":
			shared := float32(0)
			for _, w := range words {
				if strings.Contains(queries[n], w) {
					shared++
				}
			}
			floats, dims = append(floats, shared), []int64{dims[0], 1}
		}
	}
	d := i.Sig.Outputs[port].DType
	t, err := b.Alloc(port, d, tensor.Of(dims...))
	if err != nil {
		return err
	}
	if d == tensor.FP32 {
		copy(tensor.Slice[float32](t), floats)
	} else {
		copy(tensor.Slice[int64](t), integers)
	}
	return nil
}

// stream sends each word as a response, with the bytes of a "ö" apart. The word "bad" fails the request.
func (i *textInstance) stream(b *backends.Batch, rows []string) error {
	for n, text := range rows {
		words := strings.Fields(text)
		for at, w := range words {
			if w == "bad" {
				b.SendError(n, errors.New("a bad word"), true)
				break
			}
			head, tail, cut := strings.Cut(w+" ", "\xb6")
			parts := []string{head}
			if cut {
				parts = append(parts, "\xb6"+tail)
			}
			for p, part := range parts {
				reason := ""
				if at == len(words)-1 && p == len(parts)-1 && text != "silent" {
					reason = "length"
				}
				if err := i.respond(b, n, part, reason, len(words)); err != nil {
					return nil //nolint:nilerr // its client has left
				}
			}
		}
	}
	return nil
}

func (i *textInstance) respond(b *backends.Batch, n int, text, reason string, words int) error {
	out := make([]tensor.Tensor, len(i.Sig.Outputs))
	for port := range out {
		var err error
		switch name := i.Sig.Outputs[port].Name; name {
		case "completion", "finish":
			s := map[string]string{"completion": text, "finish": reason}[name]
			if out[port], err = tensor.NewBytes(b.Allocator, tensor.Of(1, 1), tensor.EncodedLen(len(s))); err == nil {
				tensor.AppendBytes(out[port].Bytes()[:0], s)
			}
		default:
			if out[port], err = tensor.New(b.Allocator, tensor.Int64, tensor.Of(1, 1)); err == nil {
				tensor.Slice[int64](&out[port])[0] = map[string]int64{"one": 1, "asked": int64(words)}[name]
			}
		}
		if err != nil {
			tensor.ReleaseAll(out)
			return err
		}
	}
	return b.Send(n, out, false)
}

// port returns the description of a tensor of a configuration.
func port(name, dtype, dims string) string {
	return fmt.Sprintf("{ name: %q data_type: TYPE_%s dims: [ %s ] }", name, dtype, dims)
}

func api(name, value string) string {
	return fmt.Sprintf("parameters { key: \"api.%s\" value { string_value: %q } }\n", name, value)
}

// stepOf returns an ensemble of one step, with its tensors under their own names.
func stepOf(model string, in, out []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "platform: \"ensemble\" max_batch_size: 4 ensemble_scheduling { step { model_name: %q model_version: -1 ", model)
	for _, name := range in {
		fmt.Fprintf(&b, "input_map { key: %q value: %q } ", name, name)
	}
	for _, name := range out {
		fmt.Fprintf(&b, "output_map { key: %q value: %q } ", name, name)
	}
	return b.String() + "} }\n"
}

// textRepo writes the models of these tests: "step" and the ensemble "all" with every kind of embeddings, "plain" without a parameter of a
// route, "ids" of token ids, "pairs" of rerank, and "talk" with the ensemble "chat" of completions.
func textRepo(t *testing.T) string {
	t.Helper()
	const backend = "backend: \"texts\" max_batch_size: 4\n"
	text, dense, count := port("TEXT", "STRING", "1"), port("dense", "FP32", "4"), port("count", "INT64", "1")
	every := "input [ " + text + " ]\noutput [ " + strings.Join([]string{
		dense, count, port("weights", "FP32", "8"), port("indices", "INT64", "8"), port("vectors", "FP32", "3, 2"), port("mask", "INT64", "3"),
	}, ", ") + " ]\n"
	talk := "input [ " + text + " ]\noutput [ " + strings.Join([]string{
		port("completion", "STRING", "1"), port("finish", "STRING", "1"), port("one", "INT64", "1"), port("asked", "INT64", "1"),
	}, ", ") + " ]\nmodel_transaction_policy { decoupled: true }\n"
	completions := api("completions", "completion=completion finish_reason=finish tokens=one prompt_tokens=asked")
	files := map[string]string{
		"step": backend + every,
		"all": stepOf("step", []string{"TEXT"}, []string{"dense", "count", "weights", "indices", "vectors", "mask"}) + every +
			api("embeddings", "dense=dense sparse=indices,weights multi_vector=vectors mask=mask tokens=count max_tokens=6 dimensions=2,3 default"),
		"plain":   backend + every,
		"tool":    backend + "input [ " + text + " ]\noutput [ " + dense + ", " + count + " ]\n" + api("tool", "Counts the words of a text."),
		"cut":     backend + every + api("embeddings", "dense=dense tokens=count max_tokens=2 too_long=truncate names=org/cut,both,both"),
		"short":   backend + every + api("embeddings", "dense=dense tokens=count max_tokens=2 names=both,plain"),
		"weights": backend + "input [ " + text + " ]\noutput [ " + port("weights", "FP32", "8") + " ]\n" + api("embeddings", "sparse=weights"),
		"ids":     backend + "input [ " + port("IDS", "INT64", "-1") + " ]\noutput [ " + dense + " ]\n" + api("embeddings", "ids=IDS"),
		"pairs": backend + "input [ " + port("QUERY", "STRING", "1") + ", " + text + " ]\noutput [ " + port("score", "FP32", "1") + ", " + count + " ]\n" +
			api("rerank", "query=QUERY text=TEXT tokens=count max_tokens=6"),
		"talk": backend + talk,
		"chat": stepOf("talk", []string{"TEXT"}, []string{"completion", "finish", "one", "asked"}) + talk + completions,
		"one": "backend: \"texts\" max_batch_size: 1 input [ " + text + " ]\noutput [ " + dense + " ]\n" + api("embeddings", "") +
			"dynamic_batching { default_queue_policy { max_queue_size: 1 } }\n",
	}
	root := t.TempDir()
	for name, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Join(root, name, "1"), 0o750), os.WriteFile(filepath.Join(root, name, "config.pbtxt"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// doors is a server of textRepo.
type doors struct {
	addresses
	*textBackend

	t   *testing.T
	log *watch
}

func serveTexts(t *testing.T, args ...string) *doors {
	t.Helper()
	x := &textBackend{entered: make(chan struct{}), gate: make(chan struct{})}
	c := components()
	c.AddBackends(x.factory())
	a, log := serveLogged(t, c, append([]string{"--model-repository=" + textRepo(t)}, args...)...)
	return &doors{a, x, t, log}
}

// send sends a request with pairs of header fields, and returns the status, the header and the body.
func (d *doors) send(path, body string, header ...string) (int, http.Header, string) {
	d.t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(d.t.Context(), method, "http://"+d.http+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, b.String()
}

// doorRequest is a request of a table, and the response.
type doorRequest struct {
	name, path, body string
	code             int
	want             string // the body
}

// check sends the requests of a table.
func (d *doors) check(list []doorRequest) {
	for _, e := range list {
		d.t.Run(e.name, func(t *testing.T) {
			code, h, got := d.send(e.path, e.body)
			if code != e.code || got != e.want {
				t.Errorf("%s %s\n%d %s, want\n%d %s", e.path, e.body, code, got, e.code, e.want)
			}
			if !json.Valid([]byte(got)) || h.Get("Content-Type") != "application/json" {
				t.Errorf("the response is no JSON, or its Content-Type is %q", h.Get("Content-Type"))
			}
			if failed := code != http.StatusOK; failed != (h.Get("Tutti-Error-Reason") != "") {
				t.Errorf("%d has the reason '%s'", code, h.Get("Tutti-Error-Reason"))
			}
		})
	}
}

// openAIError returns the body of an error.
func openAIError(text, param, code string) string {
	quoted := func(s string) string {
		if s == "" {
			return "null"
		}
		b, _ := json.Marshal(s)
		return string(b)
	}
	return `{"error":{"message":` + quoted(text) + `,"type":"invalid_request_error","param":` + quoted(param) + `,"code":` + quoted(code) + `}}`
}
