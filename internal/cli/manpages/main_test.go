package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPages checks that each command has a page, with its flags and examples, and that man can show it.
func TestPages(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("SOURCE_DATE_EPOCH", "86400")
	if err := write(folder); err != nil {
		t.Fatal(err)
	}
	for page, want := range map[string][]string{
		"man/man1/tutti.1":                     {`"TUTTI" "1" "Jan 1970" "tutti `, `tutti-infer(1)`, `tutti-repo(1)`},
		"man/man1/tutti-infer.1":               {`--input`, `--cacert`, `tutti infer chain --input X=[1,2,3]`},
		"man/man1/tutti-repo-unload.1":         {`--dependents`, `tutti-repo(1)`},
		"man/man1/tutti-completion.1":          {".EX\nbash  tutti completion bash"},
		"bash-completion/completions/tutti":    {"__start_tutti"},
		"zsh/vendor-completions/_tutti":        {"#compdef tutti"},
		"fish/vendor_completions.d/tutti.fish": {"complete -c tutti"},
		"man/man1/tutti-serve.1":               {`--http-port`, `tutti serve --model-repository models`},
	} {
		text, err := os.ReadFile(filepath.Join(folder, page))
		if err != nil {
			t.Error(err)
			continue
		}
		plain := strings.ReplaceAll(string(text), `\-`, "-")
		for _, w := range want {
			if !strings.Contains(plain, w) {
				t.Errorf("%s does not contain %q:\n%s", page, w, plain)
			}
		}
	}
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("no groff to read the pages: ", err)
	}
	pages, err := filepath.Glob(filepath.Join(folder, "man/man1/*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("there are %d pages (%v)", len(pages), err)
	}
	// A line without a space, as that of a long value, is no mistake.
	if out, err := exec.CommandContext(t.Context(), groff, append([]string{"-man", "-Tascii", "-ww", "-Wbreak", "-z"}, pages...)...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("groff: %v\n%s", err, out)
	}
}
