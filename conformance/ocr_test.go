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

// ocrReport is the line of ocr/compare.py for one picture.
type ocrReport struct {
	Picture      string
	Texts, Boxes bool
	Score        *float64
	Want, Got    []string
}

// TestTextReader checks that the example ocr with RapidOCR's networks reads what RapidOCR reads, on every picture.
func TestTextReader(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("reads many pictures twice")
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
	_ = cmd.Run() // a picture that differs has its own failure below
	pictures := 0
	for line := range strings.Lines(stdout.String()) {
		var r ocrReport
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		pictures++
		t.Run(r.Picture, func(t *testing.T) { checkPicture(t, &r) })
	}
	if pictures < 20 {
		t.Errorf("%d pictures, expected 20 or more\n%s", pictures, &stderr)
	}
}

func checkPicture(t *testing.T, r *ocrReport) {
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
