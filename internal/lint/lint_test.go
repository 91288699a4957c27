package lint_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/lint"
)

// TestWriteText checks the text report with and without problems.
func TestWriteText(t *testing.T) {
	t.Parallel()
	one := config.Diagnostic{Code: config.NoModels, Severity: config.Fault, File: "m", Model: "a", Reason: "it is wrong"}
	for name, tt := range map[string]struct {
		report lint.Report
		want   string
	}{
		"nothing":    {lint.Report{Models: 1}, "0 errors, 0 warnings, 0 notices in 1 model\n"},
		"one of all": {lint.Report{Models: 2, Diagnostics: []config.Diagnostic{one}}, one.String() + "\n1 error, 0 warnings, 0 notices in 2 models\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b strings.Builder
			if err := tt.report.Write(&b, lint.Text, "1"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, b.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWriteSARIF checks the position, the text and the level of each result.
func TestWriteSARIF(t *testing.T) {
	t.Parallel()
	r := lint.Report{Models: 1, Diagnostics: []config.Diagnostic{
		{Code: config.NoModels, Severity: config.Warning, File: "a b/c#d.pbtxt", Line: 3, Column: 4, Model: "m", Field: "input", Reason: "wrong", Fix: "mend it"},
		{Code: config.NoModels, Severity: config.Notice, File: "/x"},
	}}
	var b strings.Builder
	if err := r.Write(&b, lint.SARIF, "7"); err != nil {
		t.Fatal(err)
	}
	if !json.Valid([]byte(b.String())) {
		t.Fatalf("no JSON: %s", b.String())
	}
	for _, want := range []string{
		`"version": "7"`, `"uri": "a%20b/c%23d.pbtxt"`, `"uri": "file:///x"`, `"startLine": 3`, `"startColumn": 4`,
		`"fullyQualifiedName": "m.input"`, `"text": "wrong\nFix: mend it"`, `"level": "warning"`, `"level": "note"`,
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
}
