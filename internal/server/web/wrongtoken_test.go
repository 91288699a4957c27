package web_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-server/tutti/internal/server/web"
)

// TestWrongTokensAreLogged checks that guesses of the token are in the log, without the guesses, and that they do not fill it.
func TestWrongTokensAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		x := &fakeStore{}
		s := web.New(web.Settings{Inspector: x, Overview: x, Token: "right", Log: slog.New(slog.NewTextHandler(&lines, nil))})
		defer s.Close()
		guess := func(n int, token string) {
			for range n {
				if code, _ := send(s, "PUT", "/ui/api/sampling", `{}`, "Authorization", "Bearer "+token); code != 403 && token != "right" {
					t.Errorf("status %d for the token %q", code, token)
				}
			}
		}
		guess(1, "right")
		if lines.Len() > 0 {
			t.Errorf("the right token is logged: %s", &lines)
		}
		guess(300, "guess")
		<-time.After(10 * time.Second)
		guess(300, "guess")
		text := lines.String()
		if strings.Count(text, "\n") != 2 || !strings.Contains(text, "has a wrong token") || !strings.Contains(text, "client=192.0.2.1:1234") ||
			!strings.Contains(text, "not_logged=299") || strings.Contains(text, "guess") {
			t.Errorf("600 wrong tokens in two bursts are logged as:\n%s", text)
		}
	})
}
