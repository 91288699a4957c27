package cli

import (
	"os/exec"
	"testing"
)

// TestShellWord checks that a shell reads back each word.
func TestShellWord(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"models", "../a-b/c.d", "my models", "it's", `a"b`, "$HOME", "a;b", "äö", "*", "~", "a\nb", "#x"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+shellWord(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q is written %s, which a shell reads as %q, %v", word, shellWord(word), out, err)
		}
	}
	if got := shellWord("models/v1"); got != "models/v1" {
		t.Errorf("a plain word is written %s", got)
	}
}
