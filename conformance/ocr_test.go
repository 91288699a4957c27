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
)

// ocrPackages holds RapidOCR, a public reader of text, with its networks.
const ocrPackages prepared = "ocr"

// ocrReport is the line of ocr/compare.py for one image.
type ocrReport struct {
	Image        string
	Texts, Boxes bool
	Score        *float64
	Want, Got    []string
}

// TestTextReader checks that the example ocr with RapidOCR's networks reads what RapidOCR reads, on every image.
func TestTextReader(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads many images twice")
	}
	packages := ocrPackages.require(t)
	library, err := preparedtest.Find("onnxruntime")
	if err != nil {
		t.Skip(err)
	}
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "python3", "-B", "ocr/compare.py", "--json", "--server", path, "--models", "../examples/ensembles/ocr")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "TUTTI_ONNXRUNTIME_LIB="+library)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ended := cmd.Run()
	images := 0
	for line := range strings.Lines(stdout.String()) {
		var r ocrReport
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		images++
		t.Run(r.Image, func(t *testing.T) { checkImage(t, &r) })
	}
	if images < 20 {
		t.Errorf("%d images, expected 20 or more\n%s", images, &stderr)
	}
	if ended != nil && !t.Failed() { // an image that differs has failed above
		t.Errorf("compare.py ended early: %v\n%s", ended, &stderr)
	}
}

func checkImage(t *testing.T, r *ocrReport) {
	t.Helper()
	const apart = 0.01 // crops of one ratio may be in different batches of RapidOCR, whose sort is not stable
	switch {
	case !r.Texts:
		t.Errorf("texts %q, expected %q", r.Got, r.Want)
	case !r.Boxes:
		t.Error("the boxes differ by a thousandth of a pixel or more")
	case r.Score == nil || *r.Score > apart:
		t.Errorf("the scores are %v apart, expected at most %v", r.Score, apart)
	}
}
