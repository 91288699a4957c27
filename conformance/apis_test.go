package conformance_test

import (
	"os"
	"testing"

	"github.com/tutti-server/tutti/internal/preparedtest"
)

// apisPackages holds the clients of OpenAI, Cohere, Text Embeddings Inference and MCP.
const apisPackages prepared = "apis"

// TestAPIClients runs unchanged clients of the routes of other servers and of MCP against the text example: those of OpenAI and Cohere,
// LangChain, Chroma, Haystack and the Hugging Face hub, the one of MCP, and AIPerf.
func TestAPIClients(t *testing.T) {
	t.Parallel()
	packages := apisPackages.require(t)
	if _, err := os.Stat("../examples/ensembles/text/minilm/1/model.onnx"); err != nil {
		preparedtest.Skip(t, "text", err)
	}
	runReports(t, packages, "apis/run.py")
}
