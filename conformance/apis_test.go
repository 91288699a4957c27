package conformance_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
	"github.com/tutti-server/tutti/internal/runtimes"
)

// apisPackages holds the clients of OpenAI, Cohere, Text Embeddings Inference and MCP.
const apisPackages prepared = "apis"

// TestAPIClients runs unchanged clients of the routes of other servers and of MCP against the text example: those of OpenAI and Cohere,
// LangChain, Chroma, Haystack and the Hugging Face hub, the one of MCP, and AIPerf.
func TestAPIClients(t *testing.T) {
	t.Parallel()
	packages := apisPackages.require(t)
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("../examples/ensembles/text/minilm/1/model.onnx"); err != nil {
		preparedtest.Skip(t, "text", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "python3", "-B", "apis/run.py", "--json")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, preparedtest.Variable("program")+"="+path)
	for _, r := range runtimes.List() {
		if library, err := preparedtest.Find(r.Name); err == nil {
			cmd.Env = append(cmd.Env, preparedtest.Variable(r.Name)+"="+library)
		}
	}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, &stderr)
	}
	for line := range strings.Lines(stdout.String()) {
		var r realReport
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			for _, failure := range r.Failures {
				t.Error(failure)
			}
		})
	}
	if stdout.Len() == 0 {
		t.Error("no client has run")
	}
}
