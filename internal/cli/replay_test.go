package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/replay"
)

// TestReplayedModels checks that names of models in files, which may come from anywhere, become no other options of the server.
func TestReplayedModels(t *testing.T) {
	t.Parallel()
	var captures []*replay.Capture
	for _, model := range []string{"text", "*", "../x", "a/b", "a,b", "red\x1b[31m", "", "-v", "text", "two words"} {
		c := &replay.Capture{}
		c.About.Model = model
		captures = append(captures, c)
	}
	var loaded []string
	for _, arg := range (&replayCall{against: "models"}).options(captures, "token") {
		if name, ok := strings.CutPrefix(arg, "--load-model="); ok {
			loaded = append(loaded, name)
		}
	}
	if want := []string{"text", "-v", "two words"}; !slices.Equal(loaded, want) {
		t.Errorf("%q are loaded, expected %q", loaded, want)
	}
}
