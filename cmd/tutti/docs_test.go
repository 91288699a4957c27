package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/cli"
	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/steps"
)

const docsDir = "../../docs/"

func TestStepsPage(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString("<!-- page run by TestStepsPage -->\n# Native steps\n\nAfter this page you can add pre- and post-processing to an ensemble without writing code. A native step runs in Go inside the " +
		"server: for example, from a JPEG file to a normalised tensor, or from the outputs of a detector to boxes. This page is written by `make golden` from the declarations of the steps.\n\n" +
		"## Use a step\n\nA native step is a model. Create a folder in the model repository with a `config.pbtxt`:\n\n```\nbackend: \"native\"\n" +
		"max_batch_size: 8\nparameters { key: \"step\" value { string_value: \"top_k\" } }\n" +
		"parameters { key: \"k\" value { string_value: \"3\" } }\n```\n\n" +
		"Then name the model in the `ensemble_scheduling` of an ensemble, or send requests to it directly.\n\n" +
		"- The parameter `step` selects the step; the other parameters are the step's own.\n" +
		"- Inputs and outputs may be omitted from the configuration.\n" +
		"- The shapes below have no batch dimension. With `max_batch_size` above 0 every tensor has one in front.\n" +
		"- Files that a parameter names are searched in the version folder, then in the model folder. A step without files needs " +
		"no version folder.\n" +
		"- A parameter that a step does not have is an error that names the nearest one, because a misspelt parameter would " +
		"change the results. Other backends ignore unknown parameters as Triton does, with a warning, unless the server runs with " +
		"`--strict-parameters`.\n\n## Find a step\n\n| step | what it does |\n|---|---|\n")
	for _, f := range components().Steps {
		first, _, _ := strings.Cut(f.Doc, ". ")
		fmt.Fprintf(&b, "| [%s](#%s) | %s. |\n", f.Name, f.Name, strings.ReplaceAll(strings.TrimSuffix(first, "."), "|", `\|`))
	}
	address := serveExamples(t)
	for _, f := range components().Steps {
		if err := writeStep(&b, &f); err != nil {
			t.Fatal(err)
		}
		for i := range f.Examples {
			writeExample(t, &b, address, exampleName(&f, i), &f.Examples[i])
		}
	}
	goldentest.Check(t, docsDir+"steps.md", b.Bytes())
}

func TestOptionsPage(t *testing.T) {
	t.Parallel()
	var help, log bytes.Buffer
	if code := cli.Main(t.Context(), []string{"tutti", "serve", "--help-all"}, &help, &log, components()); code != 0 || log.Len() > 0 {
		t.Fatalf("status %d: %s", code, &log)
	}
	goldentest.Check(t, docsDir+"options.md", []byte("<!-- page run by TestOptionsPage -->\n# Options of tutti serve\n\nAfter this page you know each option of `tutti serve`, its default, and which of tritonserver's have no effect. Written by `make golden` from `tutti serve --help-all`.\n\n"+
		"The same in a file for `--config`:\n\n```yaml\nmodel-repository: [/models, /more]\nhttp-port: 9000\nbackend-config:\n"+
		"  - onnxruntime,default-max-batch-size=8\n```\n\nand in the environment:\n\n```\nTUTTI_MODEL_REPOSITORY=/models,/more\n"+
		"TUTTI_HTTP_PORT=9000\n```\n\nAn empty variable is ignored. In the environment `TRITON_SERVER_ESCAPE_LOG_MESSAGES=0` "+
		"leaves the messages of the log unquoted, as in Triton. A Kubernetes service named `tutti-http` gives its pods a `TUTTI_HTTP_PORT` "+
		"that is no port: name it otherwise, or set `enableServiceLinks: false`.\n\n```\n"+help.String()+"```\n"))
}

// commandsHeading is the heading in docs/cli.md below which the help of every command is generated.
const commandsHeading = "## All commands\n"

func TestCommandsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(docsDir + "cli.md")
	if err != nil {
		t.Fatal(err)
	}
	guide, _, _ := strings.Cut(string(page), commandsHeading)
	run := func(args ...string) string {
		var out, errs bytes.Buffer
		if code := cli.Main(t.Context(), append([]string{"tutti"}, args...), &out, &errs, components()); code != 0 || errs.Len() > 0 {
			t.Fatalf("%v: status %d: %s", args, code, &errs)
		}
		return "\n```\n" + strings.TrimSpace(out.String()) + "\n```\n"
	}
	help := run("help")
	var b strings.Builder
	b.WriteString(guide + commandsHeading + "\nWritten by `make golden` from `tutti help` and `tutti help COMMAND`; [options.md](options.md) has the options of serve and worker.\n" + help)
	var write func(c *cobra.Command)
	write = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			name := strings.TrimPrefix(sub.CommandPath(), "tutti ")
			if name != "serve" && name != "worker" { // which options.md lists
				b.WriteString("\n### " + name + "\n" + run(append([]string{"help"}, strings.Fields(name)...)...))
			}
			write(sub)
		}
	}
	write(cli.Tree(components()))
	goldentest.Check(t, docsDir+"cli.md", []byte(b.String()))
}

func writeStep(b *bytes.Buffer, f *steps.Factory) error {
	fmt.Fprintf(b, "\n## %s\n\n%s\n", f.Name, f.Doc)
	if len(f.Params) > 0 {
		b.WriteString("\n| parameter | default | meaning |\n|---|---|---|\n")
	}
	given, samples := map[string]string{}, []string(nil)
	for _, p := range f.Params {
		byDefault := "`" + p.Default + "`"
		switch {
		case p.Required:
			byDefault = "required"
		case p.Default == "":
			byDefault = "not set"
		}
		if given[p.Key] = sample(&p); given[p.Key] == "" {
			delete(given, p.Key)
		} else {
			samples = append(samples, fmt.Sprintf("`%s` %s", p.Key, given[p.Key]))
		}
		doc := strings.ToUpper(p.Doc[:1]) + strings.TrimSuffix(p.Doc[1:], ".")
		if len(p.Values) > 0 {
			doc += ". Values: `" + strings.Join(p.Values, "`, `") + "`"
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", p.Key, byDefault, strings.ReplaceAll(doc, "|", `\|`))
	}
	writePresets(b, f)
	params, err := f.Resolve(given)
	if err != nil {
		return err
	}
	sig, err := f.Signature(&steps.Settings{Model: f.Name, Params: params})
	if err != nil {
		return err
	}
	caption := "Tensors:"
	if len(samples) > 0 {
		caption = "Tensors, with " + strings.Join(samples, ", ") + ":"
	}
	fmt.Fprintf(b, "\n%s\n\n| | name | type | shape |\n|---|---|---|---|\n", caption)
	writePorts(b, "input", sig.Inputs)
	writePorts(b, "output", sig.Outputs)
	return nil
}

// sample returns the value of a parameter in the page's example tensors, empty for the default.
func sample(p *steps.Param) string {
	if p.Sample == "" && p.Required && len(p.Values) > 0 {
		return p.Values[0]
	}
	return p.Sample
}

func writePresets(b *bytes.Buffer, f *steps.Factory) {
	if len(f.Presets) > 0 {
		b.WriteString("\n| preset | sets |\n|---|---|\n")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Presets)) {
		var sets []string
		for _, key := range slices.Sorted(maps.Keys(f.Presets[name])) {
			sets = append(sets, fmt.Sprintf("`%s` %s", key, f.Presets[name][key]))
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", name, strings.Join(sets, ", "))
	}
}

func exampleName(f *steps.Factory, i int) string {
	if i == 0 {
		return f.Name
	}
	return fmt.Sprintf("%s_%d", f.Name, i+1)
}

// serveExamples serves the examples of all steps and returns the HTTP address.
func serveExamples(t *testing.T) string {
	t.Helper()
	repository := t.TempDir()
	for _, f := range components().Steps {
		for i, e := range f.Examples {
			dir := filepath.Join(repository, exampleName(&f, i))
			files := map[string][]byte{"../config.pbtxt": []byte("backend: \"native\"\n" + e.Config)}
			maps.Copy(files, e.Files)
			for name, data := range files {
				path := filepath.Join(dir, "1", name)
				if err := errors.Join(os.MkdirAll(filepath.Join(dir, "1"), 0o755), os.WriteFile(path, data, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return serve(t, "--model-repository", repository).http
}

// writeExample sends an example's request and writes its configuration, the request and the response.
func writeExample(t *testing.T, b *bytes.Buffer, address, model string, e *steps.Example) {
	t.Helper()
	path, how, body := "/v2/models/"+model+"/infer", "-d '"+e.Request+"'", []byte(e.Request)
	if e.Request == "" {
		how, body = "--data-binary @"+e.Send+" -H 'Inference-Header-Content-Length: 0'", e.Files[e.Send]
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if e.Request == "" {
		req.Header.Set("Inference-Header-Content-Length", "0")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the response to example %s is %s: %s (%v)", model, resp.Status, response, err)
	}
	fmt.Fprintf(b, "\nThe model `%s`:\n\n```\nbackend: \"native\"\n%s\n```\n\n```\n$ curl -s localhost:8000%s %s\n%s\n```\n", model, strings.TrimSpace(e.Config), path, how, printable(response, resp.Header.Get("Inference-Header-Content-Length")))
}

// printable formats a response for the page, with the bytes after the JSON in hexadecimal.
func printable(response []byte, header string) string {
	n, err := strconv.Atoi(header)
	if err != nil || n > len(response) {
		return string(response)
	}
	return fmt.Sprintf("%s\n(and %d bytes, the first of them % x)", response[:n], len(response)-n, response[n:min(len(response), n+12)])
}

func writePorts(b *bytes.Buffer, kind string, ports []config.Port) {
	for _, p := range ports {
		role := kind
		if p.Optional {
			role = "optional " + kind
		}
		fmt.Fprintf(b, "| %s | `%s` | %s | %s |\n", role, p.Name, p.DType.ConfigName(), p.Dims)
	}
}

// TestPlanImage checks that the images of the pages are those that the program draws.
func TestPlanImage(t *testing.T) {
	t.Parallel()
	library := requireRuntime(t)
	for image, of := range map[string][2]string{
		"ensemble.svg": {"parallel", "parallel_nested"}, "second_look.svg": {"digits", "second_look"}, "detection_kinds.svg": {"detection", "detection_kinds"},
		"estimate.svg": {"shop", "estimate"}, "total.svg": {"shop", "total"}, "shop.svg": {"shop", "shop"}, "watched.svg": {"shop", "watched"},
	} {
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), []string{
			"tutti", "plan", examplesDir + "/" + of[0], of[1], "--format=svg", "--backend-config=onnxruntime,library-path=" + library,
		}, &out, &errs, components())
		if code != 0 {
			t.Fatalf("tutti plan ended with %d: %s", code, &errs)
		}
		goldentest.Check(t, docsDir+image, out.Bytes())
	}
}
