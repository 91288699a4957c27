package starter

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/tensor"
)

const (
	requestJSON = "request.json" // sample requests as JSON
	requestBin  = "request.bin"  // with binary tensors
	// mostJSON is the most bytes of a tensor in request.json.
	mostJSON = 1 << 16
)

// binary reports whether the sample request has tensors that JSON cannot hold well.
func (r *Repository) binary() bool {
	for _, s := range r.Sample {
		if s.File != "" || s.DType == tensor.FP16 || s.DType == tensor.BF16 || len(s.Data) > mostJSON {
			return true
		}
	}
	return false
}

// sampleFiles returns the files of the sample request.
func (r *Repository) sampleFiles() map[string][]byte {
	files := map[string][]byte{}
	for _, s := range r.Sample {
		if s.Shape == nil {
			return nil
		}
		if s.File != "" {
			files[s.File] = s.Content
		}
	}
	if body, _ := r.request(); r.binary() {
		files[requestBin] = body
	} else {
		files[requestJSON] = append(body, '\n')
	}
	return files
}

// request returns the body of the sample request, and the length of its JSON if tensors follow it.
func (r *Repository) request() (body []byte, head int) {
	type input struct {
		Name       string         `json:"name"`
		Datatype   string         `json:"datatype"`
		Shape      []int64        `json:"shape"`
		Data       any            `json:"data,omitempty"`
		Parameters map[string]int `json:"parameters,omitempty"`
	}
	var all struct {
		Inputs []input `json:"inputs"`
	}
	var tail []byte
	raw := r.binary()
	for _, s := range r.Sample {
		in := input{Name: s.Name, Datatype: s.DType.String(), Shape: s.Shape}
		if raw {
			in.Parameters = map[string]int{"binary_data_size": len(s.Data)}
			tail = append(tail, s.Data...)
		} else {
			in.Data = s.elements()
		}
		all.Inputs = append(all.Inputs, in)
	}
	text, _ := json.Marshal(all) // plain values
	return append(text, tail...), len(text)
}

// elements returns the elements of the sample for encoding/json.
func (s *Sample) elements() any {
	if s.DType == tensor.Bytes {
		list := []string{}
		for rest := s.Data; len(rest) > 0; {
			e, next, ok := tensor.NextBytes(rest)
			if !ok || !utf8.Valid(e) {
				break
			}
			list, rest = append(list, string(e)), next
		}
		return list
	}
	size := s.DType.Size()
	list := make([]any, len(s.Data)/size)
	for i := range list {
		e := s.Data[i*size:]
		switch s.DType {
		case tensor.FP32:
			var f float32
			_, _ = binary.Decode(e, binary.LittleEndian, &f)
			list[i] = f
		case tensor.FP64:
			var f float64
			_, _ = binary.Decode(e, binary.LittleEndian, &f)
			list[i] = f
		case tensor.Bool:
			list[i] = e[0] != 0
		default:
			list[i] = e[0] // samples of integers are small
		}
	}
	return list
}

// readme returns the README of the repository.
func (r *Repository) readme(golden bool) string {
	t := &strings.Builder{}
	fmt.Fprintf(t, "# %s\n\nA model repository for Tutti, written by `tutti init` around `%s`. Clients send requests to `%s`.\n\n", r.Name, r.Model.File, r.Name)
	t.WriteString("| folder | what it does |\n|---|---|\n")
	for _, f := range r.Folders {
		fmt.Fprintf(t, "| `%s` | %s |\n", f.Name, f.Doc())
	}
	t.WriteString("\n## Try it\n\nIn the folder of this file:\n\n```\ntutti validate .\ntutti serve --model-repository .\n```\n\nThen, in another terminal:\n\n```\n")
	for _, c := range r.Commands() {
		t.WriteString(c + "\n")
	}
	t.WriteString("```\n\n`tutti infer` also shows the time of each step; curl prints the response alone.\n")
	t.WriteString("\n## Inputs and outputs\n\n| | name | type | shape |\n|---|---|---|---|\n")
	for _, s := range r.Sample {
		fmt.Fprintf(t, "| input | `%s` | %s | %v |\n", s.Name, s.DType, tensor.Of(s.Shape...))
	}
	for _, p := range r.outputs {
		fmt.Fprintf(t, "| output | `%s` | %s | dims %s |\n", p.name, p.dtype, extents(p.dims))
	}
	if list := r.measures(golden); len(list) > 0 {
		t.WriteString("\n## Measure and tune it\n\n`tutti bench` measures the server that runs. `tutti tune` starts its own for some minutes, so end the other first; " +
			"it searches for the settings with which 99 of 100 requests take at most 50 ms: write your objective there.\n\n```\n" + strings.Join(list, "\n") + "\n```\n")
	}
	if len(r.Notes) > 0 {
		t.WriteString("\n## What was guessed\n\n")
		for _, n := range r.Notes {
			t.WriteString("- " + n + "\n")
		}
	}
	if !golden {
		return t.String()
	}
	fmt.Fprintf(t, "\n## The golden request\n\n`%[1]s/golden/sample.json` is the sample request with the response that the model gave when this folder was written. The server "+
		"sends it whenever it loads `%[1]s` or one of its steps, and refuses a version that responds otherwise. After a change that is meant to change responses, "+
		"write the new values into it, or delete it.\n", r.Name)
	return t.String()
}

// Commands returns the commands that send the sample request: with tutti infer, and with curl.
func (r *Repository) Commands() []string {
	body, head := r.request()
	curl := "curl -s localhost:8000/v2/models/" + r.Name + "/infer"
	if len(body) == 0 || r.sampleFiles() == nil {
		return nil
	}
	if !r.binary() {
		return []string{"tutti infer " + r.Name + " --data " + requestJSON, curl + " -d @" + requestJSON}
	}
	curl += fmt.Sprintf(" -H 'Inference-Header-Content-Length: %d' --data-binary @%s", head, requestBin)
	if s := r.Sample[0]; len(r.Sample) == 1 && s.File != "" && s.Shape[0] == 1 {
		return []string{"tutti infer " + r.Name + " --input " + s.Name + "=@" + s.File, curl}
	}
	return []string{"tutti infer " + r.Name + " --data " + requestBin, curl}
}

// measures returns the commands that measure and tune the ensemble with the sample request. Random inputs are only fit for a model of
// which nothing is known.
func (r *Repository) measures(golden bool) []string {
	bench, tune := "tutti bench "+r.Name, "tutti tune . "+r.Name+" --slo-ms 50"
	switch {
	case golden:
		return []string{bench + " --input " + r.Name + "/golden/sample.json", tune}
	case r.sampleFiles() == nil, r.binary() && r.Kind != Custom:
		return nil
	case r.binary():
		return []string{bench}
	}
	return []string{bench + " --input " + requestJSON, tune + " --data " + requestJSON}
}

// Doc returns the first sentence of the configuration's comment, without its period.
func (f *Folder) Doc() string {
	line, _, _ := strings.Cut(strings.TrimPrefix(f.Config, "# "), "\n")
	doc, _, _ := strings.Cut(line, ". ")
	return strings.TrimSuffix(doc, ".")
}
