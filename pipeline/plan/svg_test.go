package plan_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"tutti/core/config"
	"tutti/core/tensor"
	"tutti/pipeline/plan"
)

func TestSVG(t *testing.T) {
	t.Parallel()
	p := plan.Single(&config.Signature{
		Model:   "a<b>&",
		Inputs:  []config.Port{{Name: `"X"`, DType: tensor.FP32, Dims: tensor.Of(-1)}, {Name: "Y", DType: tensor.Bytes, Dims: tensor.Of(1)}},
		Outputs: []config.Port{{Name: "Z", DType: tensor.FP32, Dims: tensor.Of(-1)}},
	})
	var first, second bytes.Buffer
	if err := errors.Join(p.SVG(&first), p.SVG(&second)); err != nil {
		t.Fatal(err)
	}
	if first.String() != second.String() {
		t.Error("two drawings of one plan differ")
	}
	var texts []string
	dec := xml.NewDecoder(&first)
	for {
		token, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the drawing is not XML: %v", err)
		}
		if c, ok := token.(xml.CharData); ok {
			texts = append(texts, string(c))
		}
	}
	all := strings.Join(texts, "|")
	for _, want := range []string{"a<b>&", `"X"`, "|Y|", "|Z|", "Y BYTES [1]"} {
		if !strings.Contains(all, want) {
			t.Errorf("the drawing has no text %q in %q", want, all)
		}
	}
}
