package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const (
	// int8Goal and bf16Goal are how many times less CPU a request of text takes than with the same backend in FP32.
	int8Goal, bf16Goal = 2.0, 1.2
	// precisionClients are the requests in flight.
	precisionClients = 4
	// precisionBound is the fidelity of the INT8 model's own output, precisionCosine that of the sentences' embeddings.
	precisionBound, precisionCosine = "cosine=0.985", 0.985
)

// textVariants are the models of the measurement: the text example's with other backends and precisions.
var textVariants = []struct{ name, backend, precision string }{
	{"fp32", `platform: "onnxruntime_onnx"`, "fp32"},
	{"int8", `platform: "onnxruntime_onnx"`, "fp32"}, // tutti quantize makes its version 2
	{"openvino", `backend: "openvino" default_model_filename: "model.onnx"`, "fp32"},
	{"openvino_bf16", `backend: "openvino" default_model_filename: "model.onnx"`, "bf16"},
}

// precision compares text in INT8 and BF16 with FP32: CPU of a request, texts per second, and how close the sentences' embeddings are.
func (b *bench) precision() (err error) {
	root, err := os.MkdirTemp("", "bench-precision")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	list, err := precisionRepository(root)
	if err != nil {
		return err
	}
	data := filepath.Join(root, "sentences.jsonl")
	if err := os.WriteFile(data, append(bytes.Join(list, []byte("\n")), '\n'), 0o600); err != nil {
		return err
	}
	quantize := exec.Command(b.tutti, "quantize", filepath.Join(root, "models", "minilm_int8"), "--to", "int8", "--ensemble", "text_int8",
		"--data", data, "--fidelity", precisionBound, "--write")
	quantize.Stdout, quantize.Stderr = os.Stderr, os.Stderr
	if err := quantize.Run(); err != nil {
		return fmt.Errorf("'%s quantize' failed: %w", b.tutti, err)
	}
	p, err := b.serve(filepath.Join(root, "models"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	defer func() { err = errors.Join(err, b.table.Flush()) }()
	return errors.Join(
		b.compareTexts(p, list, "int8", "fp32", int8Goal),
		b.compareTexts(p, list, "openvino_bf16", "openvino", bf16Goal),
	)
}

// precisionRepository makes the repository below root, and returns the requests of the example as bodies.
func precisionRepository(root string) (bodies [][]byte, err error) {
	const from = "examples/ensembles/text"
	models := filepath.Join(root, "models")
	write := func(name, text string) error {
		if err := os.MkdirAll(filepath.Join(models, name, "1"), 0o750); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(models, name, "config.pbtxt"), []byte(text), 0o600)
	}
	read := func(name string) string {
		text, failed := os.ReadFile(filepath.Join(from, name))
		err = errors.Join(err, failed)
		return string(text)
	}
	model, ensemble, expected := read("minilm/config.pbtxt"), read("ensemble/config.pbtxt"), read("expected.json")
	here, failed := filepath.Abs(from)
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	for _, v := range textVariants {
		text := strings.NewReplacer(`name: "minilm"`, `name: "minilm_`+v.name+`"`, `platform: "onnxruntime_onnx"`, v.backend).Replace(model)
		text += fmt.Sprintf("\nparameters { key: \"precision\" value { string_value: %q } }\n", v.precision)
		around := strings.NewReplacer(`name: "ensemble"`, `name: "text_`+v.name+`"`, `"minilm"`, `"minilm_`+v.name+`"`, " default\"", "\"").Replace(ensemble)
		err = errors.Join(write("minilm_"+v.name, text), write("text_"+v.name, around),
			os.Symlink(filepath.Join(here, "minilm/1/model.onnx"), filepath.Join(models, "minilm_"+v.name, "1", "model.onnx")))
		if err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"tokenizer", "pooling"} {
		if err := os.Symlink(filepath.Join(here, name), filepath.Join(models, name)); err != nil {
			return nil, err
		}
	}
	var file struct {
		Requests []struct {
			Ensemble string            `json:"ensemble"`
			Inputs   []json.RawMessage `json:"inputs"`
		} `json:"requests"`
	}
	if err := json.Unmarshal([]byte(expected), &file); err != nil {
		return nil, err
	}
	for _, r := range file.Requests {
		if r.Ensemble == "" {
			bodies = append(bodies, encoded(map[string]any{"inputs": r.Inputs}))
		}
	}
	return bodies, nil
}

// compareTexts compares two variants. It fails if one costs more CPU than the goal, or its embeddings are too far.
func (b *bench) compareTexts(p *process, list [][]byte, variant, reference string, goal float64) error {
	url := func(name string) string { return "http://" + p.HTTP + "/v2/models/text_" + name + "/infer" }
	worst, err := worstCosine(url(variant), url(reference), list)
	if err != nil {
		return err
	}
	var cpu, rate []pair
	for round := range b.rounds + 1 {
		ours, err := (&caller{url: url(variant), bodies: list}).run(p, precisionClients)
		if err != nil {
			return err
		}
		theirs, err := (&caller{url: url(reference), bodies: list}).run(p, precisionClients)
		if err != nil {
			return err
		}
		if round > 0 { // the first round fills pools
			cpu, rate = append(cpu, pair{theirs.cpu, ours.cpu}), append(rate, pair{ours.rate, theirs.rate})
		}
	}
	what := fmt.Sprintf("text in %s, worst cosine %.5f: ", variant, worst)
	b.pairs(what+"requests per second over "+reference, "/s", rate, "with what else runs here")
	gain := b.pairs(what+"CPU of a request of "+reference+" over its own", "us", cpu, fmt.Sprintf("at least %.1f", goal))
	switch {
	case gain < goal:
		return fmt.Errorf("text in %s takes %.2f times less CPU than in %s, expected at least %.1f", variant, gain, reference, goal)
	case worst < precisionCosine:
		return fmt.Errorf("text in %s has a worst cosine of %.5f, expected at least %.3f", variant, worst, precisionCosine)
	}
	return nil
}

// worstCosine returns the smallest cosine similarity of a row of the embeddings from two models.
func worstCosine(one, other string, list [][]byte) (float64, error) {
	worst := 1.0
	for _, body := range list {
		a, err := embeddingRows(one, body)
		if err != nil {
			return 0, err
		}
		b, err := embeddingRows(other, body)
		if err != nil {
			return 0, err
		}
		if len(a) == 0 || len(a) != len(b) {
			return 0, fmt.Errorf("expected as many embeddings from both models, found %d of %s and %d of %s", len(a), one, len(b), other)
		}
		for i := range a {
			var product, x, y float64
			for k := range a[i] {
				product, x, y = product+a[i][k]*b[i][k], x+a[i][k]*a[i][k], y+b[i][k]*b[i][k]
			}
			worst = min(worst, product/math.Sqrt(x*y))
		}
	}
	return worst, nil
}

// embeddingRows returns the rows of the output embedding.
func embeddingRows(url string, body []byte) (rows [][]float64, err error) {
	resp, err := http.Post(url, "application/json", bytes.NewReader(body)) //nolint:noctx // the server is ours
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return nil, errors.Join(err, fmt.Errorf("%s: %s: %s", url, resp.Status, text))
	}
	var got struct {
		Outputs []struct {
			Name  string    `json:"name"`
			Shape []int     `json:"shape"`
			Data  []float64 `json:"data"`
		} `json:"outputs"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		return nil, err
	}
	for _, o := range got.Outputs {
		if o.Name == "embedding" && len(o.Shape) == 2 {
			for i := range o.Shape[0] {
				rows = append(rows, o.Data[i*o.Shape[1]:][:o.Shape[1]])
			}
		}
	}
	return rows, nil
}
